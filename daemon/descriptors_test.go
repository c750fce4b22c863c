package daemon

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestClientsBeyondTheLimit: as many connections are served as there are descriptors; the others
// get a refusal with the reason. A descriptor that is returned in any way serves the next client.
func TestClientsBeyondTheLimit(t *testing.T) {
	c := realCluster(t, 4, 4)
	d := c.host(1)
	budget := fdlimit.NewBudget(3, func(int) bool { return true })
	s := &served{t: t, d: d, srv: newServer(t, alone(d), func(c *server.Config) { c.Descriptors = budget }), path: filepath.Join(t.TempDir(), "s")}
	ln, err := server.Listen(s.path)
	require.NoError(t, err)
	t.Cleanup(func() { require.Zero(t, budget.InUse(), "all were given back") })
	serving(t, s.srv, s.srv.Serve, ln)
	const link = "GET /v1/link HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: bakery-link/1\r\n\r\n"
	for round := range 3 {
		var inside []net.Conn
		for n := range 3 {
			conn := s.dial()
			if (n+round)%2 == 0 {
				_, err := io.WriteString(conn, link)
				require.NoError(t, err)
				await(t, conn, "101 Switching")
			} else {
				ask(t, conn, fmt.Sprintf(`{"name":"x%d"}`, n), "")
				await(t, conn, "granted")
			}
			inside = append(inside, conn)
		}
		for range 2 * fdlimit.Refusing {
			conn := s.dial()
			_, _ = io.WriteString(conn, link)
			answer, err := io.ReadAll(conn)
			if err != nil && len(answer) == 0 {
				continue // closed before its request: too many
			}
			require.Contains(t, string(answer), "503 Service Unavailable")
			require.Contains(t, string(answer), `"code":"unavailable"`)
			require.Contains(t, string(answer), "all 3 file descriptors")
			require.NoError(t, conn.Close())
		}
		for _, conn := range inside {
			require.NoError(t, conn.Close())
		}
		eventually(t, "they are given back", func() bool { return budget.InUse() == 0 })
	}
}

// slowDisk counts the requests in flight, all of which wait.
type slowDisk struct {
	blockdev.Device
	now, most atomic.Int32
	release   chan struct{}
}

func (d *slowDisk) Read(p []byte, off int64) error {
	n := d.now.Add(1)
	for most := d.most.Load(); n > most && !d.most.CompareAndSwap(most, n); most = d.most.Load() {
	}
	<-d.release
	d.now.Add(-1)
	return d.Device.Read(p, off)
}

// TestRequestsTakeTurns: a hung device occupies a bounded number of threads, however many locks are
// read.
func TestRequestsTakeTurns(t *testing.T) {
	slow := &slowDisk{Device: disktest.NewMemory(1<<20, 512, 512).Open(), release: make(chan struct{})}
	dev := DevicesOn(slow, new(tally.Tally), nil).Locks
	var wg sync.WaitGroup
	for range 4 * maxUnderWay {
		wg.Go(func() {
			buf := blockdev.Alloc(512)
			assertNoError(t, dev.Read(buf, 0))
			assertNoError(t, dev.Write(buf, 512))
		})
	}
	eventually(t, "as many as there may be", func() bool { return slow.now.Load() == maxUnderWay })
	close(slow.release)
	within(t, "all of them", wg.Wait)
	require.EqualValues(t, maxUnderWay, slow.most.Load())
}

// TestLeaseTakesNoTurn: the lease is renewed while requests of locks use up all turns.
func TestLeaseTakesNoTurn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		d := c.host(1)
		turns := d.disk.Dev.(purposeDevice).turns
		for range maxUnderWay {
			turns <- struct{}{}
		}
		before := c.HostRecord(1).Sequence
		eventually(t, "renewals", func() bool { return c.HostRecord(1).Sequence > before+3 })
		for range maxUnderWay {
			<-turns
		}
		require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
	})
}

// TestBodyThatNeverEnds: the connection of a client that does not finish its request is closed.
func TestBodyThatNeverEnds(t *testing.T) {
	c := realCluster(t, 4, 4)
	s := serveSocket(t, c.host(1))
	conn := s.dial()
	_, err := io.WriteString(conn, "POST /v1/lock HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, conn.SetReadDeadline(began.Add(generous)))
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), "400 Bad Request")
	require.Contains(t, strings.ToLower(string(answer)), "timeout")
	require.GreaterOrEqual(t, time.Since(began), 9*time.Second)
}
