package daemon

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/schematest"
)

// testLink is a client that sends and receives lines.
type testLink struct {
	t    *testing.T
	conn *net.UnixConn
	in   *bufio.Reader
}

const openTestLink = "GET /v1/link HTTP/1.1\r\nHost: bakery\r\nConnection: Upgrade\r\nUpgrade: bakery-link/1\r\n\r\n"

// link opens a link, and sends some lines.
func (s *served) link(lines ...string) *testLink {
	s.t.Helper()
	return linkBy(s.t, s.dial().(*net.UnixConn), lines...)
}

func linkBy(t *testing.T, conn *net.UnixConn, lines ...string) *testLink {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(generous)))
	l := &testLink{t: t, conn: conn, in: bufio.NewReader(conn)}
	_, err := io.WriteString(conn, openTestLink)
	require.NoError(t, err)
	l.say(lines...)
	r, err := http.ReadResponse(l.in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, r.StatusCode)
	require.Equal(t, "bakery-link/1", r.Header.Get("Upgrade"))
	return l
}

func (l *testLink) say(lines ...string) {
	l.t.Helper()
	for _, text := range lines {
		_, err := io.WriteString(l.conn, text+"\n")
		require.NoError(l.t, err)
	}
}

func (l *testLink) next() (e api.Event) {
	l.t.Helper()
	text, err := l.in.ReadBytes('\n')
	require.NoError(l.t, err)
	require.NoError(l.t, schematest.API().Check("/components/schemas/LockEvent", text))
	require.NoError(l.t, json.Unmarshal(text, &e), "%q", text)
	return e
}

// until returns the next event of a kind. It skips events of renewals and places.
func (l *testLink) until(kind string) api.Event {
	l.t.Helper()
	for {
		e := l.next()
		if e.Kind == kind {
			return e
		}
		require.Contains(l.t, []string{"waiting", "renewed"}, e.Kind, "waiting for %s: %+v", kind, e)
	}
}

func (l *testLink) unlock(token layout.Ticket) {
	l.t.Helper()
	l.say(fmt.Sprintf(`{"unlock":"%v"}`, token))
}

// ended waits until bakeryd has closed the link.
func (l *testLink) ended() {
	l.t.Helper()
	_, err := io.Copy(io.Discard, l.in)
	if err != nil {
		require.ErrorIs(l.t, err, unix.ECONNRESET) // it left something unread
	}
}

func (l *testLink) leave() { require.NoError(l.t, l.conn.Close()) }

func TestLinkTakesOneLockAfterTheOther(t *testing.T) {
	c := realCluster(t, 8, 4)
	d := c.host(1)
	s := serveSocket(t, d)
	l := s.link(`{"lock":{"name":"x","command":"backup"}}`)
	var last layout.Ticket
	for range 3 {
		g := l.next()
		require.Equal(t, "granted", g.Kind)
		require.Equal(t, "x", g.Name)
		require.Equal(t, layout.Exclusive, g.Mode)
		require.Equal(t, 1, g.Host)
		require.Positive(t, g.LeaseMS)
		require.Greater(t, g.Token, last)
		last = g.Token
		held, _ := d.sessions.Holding()
		require.Len(t, held, 1)
		require.Equal(t, os.Getpid(), held[0].PID, "the peer's, where none is given")
		l.unlock(g.Token)
		require.Equal(t, "released", l.until("released").Kind)
		require.Equal(t, layout.Idle, c.Slot(1, 1).Phase, "the release is on the disk by then")
		l.say(`{"lock":{"name":"x"}}`)
	}
	l.unlock(l.until("granted").Token)
	l.until("released")
	require.Zero(t, d.sessions.Count())

	// In one write.
	l.say(`{"lock": {"name": "y", "mode": "shared"}}`)
	g := l.until("granted")
	require.Equal(t, layout.Shared, g.Mode)
	l.say(fmt.Sprintf("{\"unlock\":\"%v\"}\n{\"lock\":{\"name\":\"x\"}}", g.Token))
	l.until("released")
	l.until("granted")
	l.leave()
	require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release(), "what a link holds ends with its connection")
}

func TestLinkWaitsAndIsRefused(t *testing.T) {
	c := realCluster(t, 8, 1)
	s := serveSocket(t, c.host(1))
	holder := s.link(`{"lock":{"name":"x"}}`)
	g := holder.until("granted")
	waiter := s.link(`{"lock":{"name":"x"}}`)
	w := waiter.next()
	require.Equal(t, "waiting", w.Kind)
	require.Equal(t, 1, w.Ahead)
	require.Equal(t, 1, w.Queued)
	require.Equal(t, c.SB.Lease.Milliseconds(), w.LeaseMS)

	other := s.link()
	for _, refused := range []struct{ body, code string }{
		{`{"name":"x","nonblock":true}`, "busy"},
		{`{"name":"x","timeout_ms":20}`, "timeout"},
		{`{"name":""}`, "invalid"},
		{`{"name":"x","mode":"upside down"}`, "invalid"},
		{`{"name":"x","if_nam":1}`, "invalid"},
		{`{"name":"x","permits":2}`, "permits"},
		{`{"name":"there is no room"}`, "full"},
		{`{"name":"x","session":"0123456789abcdef0123456789abcdef","token":"` + g.Token.String() + `"}`, "lost"},
	} {
		other.say(`{"lock":` + refused.body + `}`)
		require.Equal(t, refused.code, other.until("refused").Code, refused.body)
	}
	other.unlock(g.Token)
	require.Equal(t, "lost", other.until("refused").Code, "another one's hold")

	holder.unlock(g.Token)
	holder.until("released")
	waiter.until("granted")
	other.say(`{"lock":{"name":"x"}}`)
	waiter.leave()
	other.until("granted")
	other.leave()
}

// TestLinkIsToldWhatHappens: renewals, changes of mode, requests.
func TestLinkIsToldWhatHappens(t *testing.T) {
	d := realCluster(t, 8, 4).host(1)
	s := serveSocket(t, d)
	l := s.link(`{"lock":{"name":"x","requests":true,"session":"0123456789abcdef0123456789abcdef"}}`)
	g := l.until("granted")
	e := l.next()
	require.Equal(t, "renewed", e.Kind)
	require.Greater(t, e.LeaseMS, int64(1000))
	status, _ := s.call("POST /v1/mode", `{"session":"0123456789abcdef0123456789abcdef","token":"`+g.Token.String()+`","mode":"shared"}`)
	require.Equal(t, http.StatusOK, status)
	m := l.until("mode")
	require.Equal(t, layout.Shared, m.Mode)
	require.EqualValues(t, 1, m.Change)
	_, err := d.Request(t.Context(), "x", "please")
	require.NoError(t, err)
	require.Equal(t, "please", l.until("requested").Message)
	l.unlock(g.Token)
	l.until("released")

	l.say(`{"lock":{"name":"x"}}`)
	l.until("granted")
	d.ending.Drain("bakeryd is shutting down")
	require.Equal(t, "bakeryd is shutting down", l.until("lost").Message)
	l.leave()
}

// TestLinkEndsAsItsConnectionDoes: in every way.
func TestLinkEndsAsItsConnectionDoes(t *testing.T) {
	d := realCluster(t, 8, 4).host(1)
	s := serveSocket(t, d)
	for name, end := range map[string]func(l *testLink){
		"closed":      func(l *testLink) { l.leave() },
		"half closed": func(l *testLink) { require.NoError(t, l.conn.CloseWrite()) },
		"half a line": func(l *testLink) { _, _ = io.WriteString(l.conn, `{"unlock":`); l.leave() },
		"a long line": func(l *testLink) { _, _ = io.WriteString(l.conn, strings.Repeat("x", 16<<10)); l.ended() },
		"garbage":     func(l *testLink) { l.say("garbage"); l.ended() },
		"twice":       func(l *testLink) { l.say(`{"lock":{"name":"y"}}`); l.ended() },
		"wrong token": func(l *testLink) { l.say(`{"unlock":"0"}`); l.ended() },
		"unread":      func(l *testLink) { l.unread(); l.ended() },
	} {
		l := s.link(`{"lock":{"name":"x"}}`)
		l.until("granted")
		waiter := s.link(`{"lock":{"name":"x"}}`)
		waiter.until("waiting")
		end(l)
		waiter.unlock(waiter.until("granted").Token)
		require.Equal(t, "released", waiter.until("released").Kind, name)
		waiter.leave()

		// While it waits.
		l = s.link(`{"lock":{"name":"x"}}`)
		g := l.until("granted")
		waiter = s.link(`{"lock":{"name":"x"}}`)
		waiter.until("waiting")
		end(waiter)
		eventually(t, name, func() bool { return d.sessions.Count() == 1 })
		l.unlock(g.Token)
		l.until("released")
		l.leave()
	}
}

// unread releases, and requests much that it does not read.
func (l *testLink) unread() {
	for l.conn.SetWriteDeadline(time.Now().Add(generous)) == nil {
		if _, err := io.WriteString(l.conn, strings.Repeat("{}\n", 1000)); err != nil {
			return
		}
	}
}

// TestLinkThatDoesNotRead: it blocks no other client, and ends when its buffer is full.
func TestLinkThatDoesNotRead(t *testing.T) {
	d := realCluster(t, 8, 4).host(1)
	budget := fdlimit.NewBudget(3, func(int) bool { return true })
	s := serveSocket(t, d, func(c *server.Config) { c.Descriptors = budget })
	deaf := s.link()
	deaf.unread()
	eventually(t, "the link ends", func() bool { return budget.InUse() == 0 })
	require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
}

func TestHostileLines(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	l := s.link()
	for _, text := range []string{
		``, `null`, `[]`, `"x"`, `{}`, `7`, `{"lock":null}`, `{"lock":{}}`, `{"lock":[]}`, `{"lock":{"name":1}}`, `{"lock":{"name":"x"}`,
		`{"lock":{"name":"x"}}}`, `{"lock":{"name":"x"},"unlock":"1"}`, `{"unlock":"1"}`, `{"unlock":1}`, `{"unlock":"-1"}`, `{"unlock":null}`,
		`{"lock":{"name":"x","mode":1}}`, `{"lock":{"name":"x","pid":-1}}`, `{"lock":{"name":"x","pid":2147483648}}`,
		`{"lock":{"name":"x","pid":1e99}}`, `{"lock":{"name":"x","permits":-1}}`, `{"lock":{"name":"x","timeout_ms":-1}}`,
		`{"lock":{"name":"\u0000"}}`, `{"lock":{"name":"` + strings.Repeat("x", 129) + `"}}`, `{"lock":{"name":"x","if_what":1}}`,
		`{"lock":{"name":"x","session":"0"}}`, `{"lock":{"name":"x","token":"1"}}`, `{"lock":{"name":"x"}} {}`, "\x00\xff",
	} {
		l.say(text)
		e := l.next()
		require.Equal(t, "refused", e.Kind, text)
		require.Contains(t, []string{"invalid", "lost"}, e.Code, text)
	}
	l.say(`{"lock":{"name":"x","timeout_ms":9223372036854775807,"command":"\ud800\u0000` + strings.Repeat("ä", 4000) + `"}}`)
	l.unlock(l.until("granted").Token)
	l.until("released")
	l.leave()

	for _, head := range []string{"GET /v1/link HTTP/1.1\r\nHost: x\r\n\r\n", "GET /v1/link HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"} {
		conn := s.dial()
		_, err := io.WriteString(conn, head)
		require.NoError(t, err)
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusUpgradeRequired, r.StatusCode)
		require.Equal(t, "bakery-link/1", r.Header.Get("Upgrade"))
	}
}

// TestLinkOfAHostThatHasNotJoined: each lock is refused, and the link outlives the terms of the
// host.
func TestLinkOfAHostThatHasNotJoined(t *testing.T) {
	host := realCluster(t, 8, 4).host(1)
	var d *Host // nil while it has not joined
	var mu sync.Mutex
	s := serveCurrent(t, func() (server.Host, error) {
		mu.Lock()
		defer mu.Unlock()
		if d == nil {
			return nil, fmt.Errorf("%w: it is under way", api.ErrUnavailable)
		}
		return d, nil
	})
	l := s.link(`{"lock":{"name":"x"}}`)
	refused := l.until("refused")
	require.Equal(t, "unavailable", refused.Code)
	l.say(`{"lock":{"name":"x","timeout_ms":-1}}`)
	require.Equal(t, "invalid", l.until("refused").Code, "which does not become valid by a join")
	require.Equal(t, 1, strings.Count(refused.Message, api.ErrUnavailable.Error()), refused.Message)
	mu.Lock()
	d = host
	mu.Unlock()
	l.say(`{"lock":{"name":"x"}}`)
	l.until("granted")
	l.leave()
}

// TestLinkIsToldInTimeThoughTheDeviceHangs: even if the goroutine that reads it waits for the
// device.
func TestLinkIsToldInTimeThoughTheDeviceHangs(t *testing.T) {
	c := realCluster(t, 8, 4)
	d, f := c.faultyHost(1)
	s := serveSocket(t, d)
	for _, name := range []string{"x", "y"} { // its driver rests then
		l := s.link(`{"lock":{"name":"` + name + `"}}`)
		l.unlock(l.until("granted").Token)
		l.until("released")
		l.leave()
	}
	holder := s.link(`{"lock":{"name":"x"}}`)
	holder.until("granted")
	release := f.Hang(disktest.Fault{From: c.Geo.Slot(2, 1), To: c.Geo.Slot(2, 1) + int64(c.Geo.Hosts*c.Geo.Stride)})
	late := s.link(`{"lock":{"name":"y","timeout_ms":50}}`)
	require.Equal(t, "timeout", late.until("refused").Code)
	stuck := s.link(`{"lock":{"name":"y"}}`)
	all := f.Hang(disktest.Fault{}) // which ends the lease
	require.NotEmpty(t, holder.until("lost").Message)
	require.Equal(t, "unavailable", stuck.until("refused").Code)
	release()
	all()
	holder.leave()
}

// TestLinkThatIsLostAndStays: the host does not wait for it longer than other hosts wait for the
// host.
func TestLinkThatIsLostAndStays(t *testing.T) {
	c := realCluster(t, 8, 4)
	d := c.host(1)
	s := serveSocket(t, d)
	stays, goes := s.link(`{"lock":{"name":"x"}}`), s.link(`{"lock":{"name":"y"}}`)
	stays.until("granted")
	g := goes.until("granted")
	d.mem.LoseFor(unix.EIO) // with much of the lease left, in which one goes
	stays.until("lost")
	goes.until("lost")
	goes.unlock(g.Token)
	goes.until("released")
	require.NoError(t, d.sessions.Unheld(t.Context()))
	stays.ended()
}

func (m *mortal) linkAs(session int, rest string) *testLink {
	m.t.Helper()
	return m.link(fmt.Sprintf(`{"lock":{"name":"x","session":"%032x"%s}}`, session, rest))
}

func TestLinkComesBackAfterARestart(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := c.mortal(1)
	holder := m.linkAs(1, "")
	token := holder.until("granted").Token
	first := m.linkAs(2, "")
	first.until("waiting") // the handover file has it by then
	second := m.linkAs(3, "")
	second.until("waiting")
	m.restart()
	second = m.linkAs(3, "")
	first = m.linkAs(2, "")
	holder = m.linkAs(1, `,"token":"`+token.String()+`"`)
	require.Equal(t, token, holder.until("granted").Token)
	first.until("waiting")
	holder.unlock(token)
	holder.until("released")
	first.unlock(first.until("granted").Token)
	first.until("released")
	last := m.session(&testSession{id: fmt.Sprintf("%032x", 3)})
	g := second.until("granted")

	// By another link, while the first one ends.
	again := m.linkAs(3, `,"token":"`+g.Token.String()+`"`)
	require.Equal(t, g.Token, again.until("granted").Token)
	second.ended()
	require.Same(t, last, m.session(&testSession{id: fmt.Sprintf("%032x", 3)}))
	again.unlock(g.Token)
	again.until("released")
	_, kept := readHandover(t, m.d, clock.Boottime.Now())
	require.Empty(t, kept)
}

// TestLinkOfAnotherUser: the name of its FIFO shows a session's id.
func TestLinkOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: to be two users takes root")
	}
	m := realCluster(t, 8, 4).mortal(1)
	holder := m.linkAs(1, "")
	token := holder.until("granted").Token
	thief := linkBy(t, dialAs(t, 65534, m.path), fmt.Sprintf(`{"lock":{"name":"x","session":"%032x","token":"%v"}}`, 1, token))
	require.Contains(t, thief.until("refused").Message, "another user's")
	holder.unlock(token)
	holder.until("released")
}

// TestLinkLeavesAHoldToItsCommand: the link can be used again, and the lock is held while the
// command runs.
func TestLinkLeavesAHoldToItsCommand(t *testing.T) {
	m := realCluster(t, 8, 4).mortal(1)
	l := m.linkAs(1, `,"witness":true`)
	g := l.until("granted")
	command, err := os.OpenFile(g.Witness, os.O_WRONLY, 0)
	require.NoError(t, err)
	l.unlock(g.Token)
	l.until("kept")
	l.say(`{"lock":{"name":"x","nonblock":true}}`)
	require.Equal(t, "busy", l.until("refused").Code)
	l.say(`{"lock":{"name":"x"}}`)
	l.until("waiting")
	require.NoError(t, command.Close())
	l.unlock(l.until("granted").Token)
	l.until("released")
}

// TestShutdownEndsLinks: also those that hold nothing.
func TestShutdownEndsLinks(t *testing.T) {
	d := realCluster(t, 8, 4).host(1)
	s := serveSocket(t, d)
	idle, holder := s.link(), s.link(`{"lock":{"name":"x"}}`)
	holder.until("granted")
	require.NoError(t, s.srv.Shutdown())
	idle.ended()
	holder.ended()
	require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
}

// TestLinksThatVanish: the lock becomes free and nothing of a client stays, whenever it goes.
func TestLinksThatVanish(t *testing.T) {
	c := realCluster(t, 8, 4)
	a, b := c.host(1), c.host(2)
	require.NoError(t, acquire(t, a, locks.Request{Name: "x"}).Release())
	var wg sync.WaitGroup
	for _, d := range []*Host{a, b} {
		s := serveSocket(t, d)
		for range 4 {
			wg.Go(func() {
				for n := range 40 {
					conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.path, Net: "unix"})
					if !assertNoError(t, err) {
						return
					}
					fmt.Fprintf(conn, "%s{\"lock\":{\"name\":\"x\",\"nonblock\":%v}}\n", openTestLink, n%3 == 0)
					vanishing()
					conn.Close()
				}
			})
		}
	}
	wg.Wait()
	for _, d := range []*Host{a, b} {
		within(t, "the lock", func() { require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release()) })
		eventually(t, "nothing of them stays", func() bool { return d.sessions.Count() == 0 })
	}
}
