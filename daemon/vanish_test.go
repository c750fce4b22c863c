package daemon

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

func dial(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func ask(t *testing.T, conn net.Conn, body, more string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "POST /v1/lock HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s%s", len(body), body, more)
	require.NoError(t, err)
}

// await reads an answer until a line contains what.
func await(t *testing.T, conn net.Conn, what string) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(generous)))
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		require.NoError(t, err, "waiting for %s", what)
		if strings.Contains(line, what) {
			return
		}
	}
}

// TestListenKeepsAFile: a path given by mistake is not removed.
func TestListenKeepsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	require.NoError(t, os.WriteFile(path, []byte("data"), 0o600))
	ln, err := server.Listen(path)
	if err == nil {
		ln.Close()
	}
	require.Error(t, err)
	require.FileExists(t, path)
}

// TestClientGoneUnseenIsPassedOver: the server does not notice the end of a client that sent more
// than its request. Other clients do not wait for it until the next renewal.
func TestClientGoneUnseenIsPassedOver(t *testing.T) {
	c := realCluster(t, 8, 4)
	c.lasting(5 * time.Minute)
	d := c.host(1)
	path := serveSocket(t, d).path
	h := acquire(t, d, locks.Request{Name: "x"})
	ghost := dial(t, path)
	ask(t, ghost, `{"name":"x"}`, "GET /")
	await(t, ghost, "waiting")
	next := start(t, d, locks.Request{Name: "x"})
	none(t, next)
	require.NoError(t, ghost.Close())
	require.NoError(t, h.Release())
	require.NoError(t, got(t, next).Release())
}

// vanishing waits for a moment before a client vanishes, in which bakeryd may do any part of its
// work.
func vanishing() {
	for range rand.IntN(300) {
		runtime.Gosched()
	}
}

// TestClientsThatVanish: the lock becomes free and nothing of a client stays, whenever it goes.
func TestClientsThatVanish(t *testing.T) {
	c := realCluster(t, 8, 4)
	a, b := c.host(1), c.host(2)
	pa, pb := serveSocket(t, a).path, serveSocket(t, b).path
	require.NoError(t, acquire(t, a, locks.Request{Name: "x"}).Release())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 40 {
				path := pa
				if (i+n)%2 == 0 {
					path = pb
				}
				conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
				if !assertNoError(t, err) {
					return
				}
				body := fmt.Sprintf(`{"name":"x","mode":%q,"nonblock":%v}`, layout.Mode(rand.IntN(2)), rand.IntN(4) == 0)
				fmt.Fprintf(conn, "POST /v1/lock HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				switch rand.IntN(4) {
				case 0:
					in := bufio.NewReader(conn)
					for line := ""; !strings.Contains(line, "granted") && err == nil && !strings.Contains(line, "refused"); {
						line, err = in.ReadString('\n')
					}
				case 1:
					_ = conn.CloseWrite()
				}
				vanishing()
				conn.Close()
			}
		})
	}
	wg.Wait()
	for _, d := range []*Host{a, b} {
		within(t, "the lock", func() {
			h, err := d.Acquire(t.Context(), locks.Request{Name: "x"})
			require.NoError(t, err)
			require.NoError(t, h.Release())
		})
	}
	for _, d := range []*Host{a, b} {
		require.Eventually(t, func() bool { return len(d.InUse()) == 0 }, generous, time.Millisecond)
	}
}

// TestGrantAfterTheEndIsNotTold: the process may stall between a grant and its message to the
// client.
func TestGrantAfterTheEndIsNotTold(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, f := c.faultyHost(1)
		req := api.LockRequest{Name: "x", Session: "00000000000000000000000000000001"}
		first, client := opened(t, d, req)
		<-first.Session().Done()
		h, err := first.Session().Outcome()
		require.NoError(t, err)
		f.Inject(disktest.Fault{Err: unix.EIO})
		<-d.Lost()
		req.Token = h.Token()
		_, again := opened(t, d, req)
		require.Equal(t, []string{api.Refused}, again.kinds())
		require.Equal(t, "unavailable", again.sent[0].Code)
		require.NotContains(t, client.kinds(), api.Refused)
		f.RemoveFaults()
	})
}

// inProcess is a subscriber that asks its hold instead of reading events.
type inProcess struct{}

func (*inProcess) Gone() bool      { return false }
func (*inProcess) Listening() bool { return true }
func (*inProcess) Send(*api.Event) {}
func (*inProcess) Close()          {}

// recordedClient is a subscriber that keeps what it was sent.
type recordedClient struct {
	inProcess
	deaf atomic.Bool // it does not read

	mu   sync.Mutex // guards sent
	sent []api.Event
}

func (c *recordedClient) Listening() bool { return !c.deaf.Load() }

func (c *recordedClient) Send(e *api.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, *e)
}

// kinds returns the kinds of what it was sent.
func (c *recordedClient) kinds() (kinds []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.sent {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// root is a client that may do everything.
func root() session.Client { return session.Client{May: func(string) error { return nil }} }

// opened returns what a client of root's with a request has and is sent, once the lock is requested.
func opened(t *testing.T, d *Host, req api.LockRequest) (*session.Attachment, *recordedClient) {
	t.Helper()
	client := new(recordedClient)
	a, err := d.sessions.Open(req, root(), client)
	require.NoError(t, err)
	a.Start()
	return a, client
}

// TestHostileRequests: no request causes more than an error.
func TestHostileRequests(t *testing.T) {
	c := realCluster(t, 8, 4)
	d := c.host(1)
	path := serveSocket(t, d).path
	for _, body := range []string{
		``, `null`, `[]`, `"x"`, `{}`, `{"name":1}`, `{"name":"x","mode":"both"}`, `{"name":"x","mode":1}`,
		`{"name":"x","pid":-1}`, `{"name":"x","pid":2147483648}`, `{"name":"x","pid":1e99}`, `{"name":"x","pid":99999999999999999999}`,
		`{"name":"x","permits":-1}`, `{"name":"x","permits":9}`, `{"name":"x","permits":9223372036854775807}`,
		`{"name":"x","timeout_ms":-1}`, `{"name":"x","timeout_ms":9223372036854775808}`,
		`{"name":"\u0000"}`, `{"name":"x\ny"}`, `{"name":"` + strings.Repeat("x", 129) + `"}`,
		`{"name":"x"}{"name":"x"}`, `{"name":"x","if_what":1}`, `{"name":"x","command":"` + strings.Repeat("x", 17<<10) + `"}`,
	} {
		conn := dial(t, path)
		ask(t, conn, body, "")
		await(t, conn, "HTTP/1.1 400")
		conn.Close()
	}
	for _, body := range []string{
		`{"name":"x","timeout_ms":9223372036854775807}`, `{"name":"x","pid":2147483647,"permits":1}`,
		`{"name":"x","command":"\ud800\u0000` + strings.Repeat("ä", 4000) + `"}`,
	} {
		conn := dial(t, path)
		ask(t, conn, body, "")
		await(t, conn, `"granted"`)
		eventually(t, "it is shown on the disk, with what the client said", func() bool { return c.Slot(1, 1).Phase == layout.Held })
		conn.Close()
	}
	require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
}
