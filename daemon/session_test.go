package daemon

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/processtest"
)

// session returns the session of a client, nil if none.
func (m *mortal) session(s *testSession) *session.Session {
	return sessionOf(m.d, s.id)
}

func sessionOf(d *Host, id string) *session.Session {
	s, _ := d.sessions.Of(id, 0)
	return s
}

// TestSameSessionTwiceAtOnce: a client that sends a request twice has one session, which blocks no
// other client.
func TestSameSessionTwiceAtOnce(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	within(t, "asking", func() {
		for i := range 100 {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					body := fmt.Sprintf(`{"name": "x", "session": "%032x"}`, i)
					conn := s.dial()
					_, err := fmt.Fprintf(conn, "POST /v1/lock HTTP/1.1\r\nHost: bakery\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
					assertNoError(t, err)
					vanishing()
					conn.Close()
				})
			}
			wg.Wait()
		}
		conn, r := s.post(`{"name": "x"}`)
		require.Equal(t, http.StatusOK, r.StatusCode)
		for nextEvent(t, r).Kind != "granted" {
		}
		conn.Close()
	})
}

// TestBackWhileTheHoldIsLetGo: a client that reconnects too late is not sent the ended grant.
func TestBackWhileTheHoldIsLetGo(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		holder, token := m.ask(1, "").granted()
		eventually(t, "the hold is shown", func() bool { return c.Slot(1, 1).Phase.String() == "held" })
		release := m.disk.Hang(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2)})
		holder.leave()
		eventually(t, "the hold is released", func() bool { return len(m.d.Vitals()) == 0 })
		holder.again(m, token.String())
		require.Equal(t, http.StatusGone, holder.r.StatusCode)
		holder.leave()
		holder.again(m, "")
		require.Equal(t, http.StatusServiceUnavailable, holder.r.StatusCode, "nor by a new request, so far")
		holder.leave()
		release()
	})
}

// TestJournalForgetsWhoGaveUp: the handover file has a limited size, and the next process must not
// wait for such clients.
func TestJournalForgetsWhoGaveUp(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		holder, _ := m.ask(1, "").granted()
		for n := range 3 {
			late := m.ask(2+n, `, "timeout_ms": 20`)
			late.until("refused")
			late.leave()
		}
		_, kept := readHandover(t, m.d, c.clock.Now())
		require.Len(t, kept, 1)
		require.Equal(t, holder.id, kept[0].ID)
		holder.leave()
	})
}

// TestTooManySessions: more than the handover file can record would make it void.
func TestTooManySessions(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := c.mortal(1)
	fillers := make([]*session.Attachment, session.MaxSessions)
	for i := range fillers {
		a, err := m.d.sessions.Open(api.LockRequest{Name: "y"}, root(), new(inProcess))
		require.NoError(t, err)
		a.StartSoon()
		fillers[i] = a
	}
	s := m.ask(1, `, "witness": true`)
	require.Equal(t, http.StatusServiceUnavailable, s.r.StatusCode)
	s.leave()
	require.NoFileExists(t, m.dir+"/"+liveness.Name(c.SB.UUID, 1, s.id))
	for _, a := range slices.Backward(fillers) { // none is granted it
		a.Leave()
	}
	s.again(m, "").granted()
	s.leave()
}

// TestWitnessOpenedAnew: a command that opens the FIFO after the last writer has gone keeps the
// lock, too.
func TestWitnessOpenedAnew(t *testing.T) {
	c := realCluster(t, 8, 4)
	m := c.mortal(1)
	holder := m.ask(1, `, "witness": true`)
	g := holder.until("granted")
	s := m.session(holder)
	command := func() *os.File {
		f, err := os.OpenFile(g.Witness, os.O_WRONLY, 0)
		require.NoError(t, err)
		return f
	}
	first := command()
	holder.leave()
	eventually(t, "the hold is an orphan", func() bool { return s.IsOrphan() })
	holder.again(m, g.Token.String()).granted()
	require.NoError(t, first.Close())
	<-s.FIFO.Gone()
	second := command()
	holder.leave()
	eventually(t, "the hold is an orphan", s.IsOrphan)
	require.Same(t, s, m.session(holder))
	require.NoError(t, second.Close())
	acquired, _ := m.ask(2, "").granted()
	acquired.leave()
}

// TestSessionOfAnotherUser: the name of its FIFO shows a session's id.
func TestSessionOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: to be two users takes root")
	}
	c := realCluster(t, 8, 4)
	m := c.mortal(1)
	holder := m.ask(1, "")
	token := holder.until("granted").Token.String()
	conn := dialAs(t, 65534, m.path)
	ask(t, conn, holder.body(token), "")
	await(t, conn, "another user's")
	holder.again(m, token) // root made the request
	holder.until("granted")
	holder.leave()
}

// dialAs connects as another user.
func dialAs(t *testing.T, uid uintptr, path string) (conn *net.UnixConn) {
	t.Helper()
	return dialAsMember(t, uid, 0, []uint32{0}, path)
}

// dialAsMember connects as another user in these groups.
func dialAsMember(t *testing.T, uid, gid uintptr, groups []uint32, path string) (conn *net.UnixConn) {
	t.Helper()
	dialed := make(chan error, 1)
	processtest.OnOwnThread(func() {
		const same = ^uintptr(0)
		if _, _, no := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); no != 0 {
			dialed <- no
			return
		}
		if _, _, no := unix.RawSyscall(unix.SYS_SETRESGID, same, gid, same); no != 0 {
			dialed <- no
			return
		}
		if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, same, uid, same); no != 0 {
			dialed <- no
			return
		}
		// The file system still sees root: other users may not pass the directories above the
		// socket.
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0)
		var err error
		conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		dialed <- err
	})
	require.NoError(t, <-dialed)
	t.Cleanup(func() { conn.Close() })
	return conn
}
