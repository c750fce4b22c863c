package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/server"
)

// inBubble runs a test in virtual time, which passes only while all goroutines of the test are
// blocked, and then without delay. A goroutine that is blocked by a socket, a FIFO or a process
// stops it.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// inCluster runs a test in virtual time with a cluster of up to eight hosts and four locks.
func inCluster(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	inBubble(t, func(t *testing.T) { f(t, newCluster(t, 8, 4)) })
}

// onTwoHosts runs a test in virtual time with hosts 1 and 2 of a cluster.
func onTwoHosts(t *testing.T, f func(t *testing.T, c *cluster, a, b *Host)) {
	t.Helper()
	inCluster(t, func(t *testing.T, c *cluster) { f(t, c, c.host(1), c.host(2)) })
}

// runInBubble runs a subtest in virtual time.
func runInBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { inBubble(t, f) })
}

// runInCluster runs a subtest with a cluster of its own.
func runInCluster(t *testing.T, name string, f func(t *testing.T, c *cluster)) {
	t.Run(name, func(t *testing.T) { inCluster(t, f) })
}

// endOfProcess ends what a daemon leaves running until its process ends: no goroutine may outlive a
// bubble.
func endOfProcess(d *Host) {
	d.Manager.Halt()
	d.mem.LoseFor(errors.New("the process has ended"))
	<-d.mem.Over()
	d.ending.End()
	d.mem.Wait()
	d.Manager.Wait()
	d.Manager.WaitClients()
	d.tasks.Wait()
	d.sessions.Wait()
}

// serveInBubble returns a daemon that serves clients in a bubble. Requests and answers do not pass
// through their sockets, because no goroutine may wait there. The daemon asks a socket for its
// peer, and whether that is gone.
func serveInBubble(t *testing.T, current func() (server.Host, error), change ...func(*server.Config)) *served {
	s := &served{t: t, srv: newServer(t, current, change...), calls: new(calls)}
	t.Cleanup(func() {
		s.calls.mu.Lock()
		open := s.calls.open
		s.calls.mu.Unlock()
		for _, c := range open {
			c.Close()
		}
		s.calls.under.Wait()
		require.NoError(t, s.srv.Shutdown())
	})
	return s
}

// calls are the calls of a server in a bubble.
type calls struct {
	under sync.WaitGroup

	mu   sync.Mutex // guards open
	open []net.Conn
}

// request makes a call, and returns when the answer begins.
func (cs *calls) request(t *testing.T, srv *server.Server, method, path, body string) (net.Conn, *http.Response) {
	server, client := socketPair(t)
	ctx, cancel := context.WithCancel(srv.HTTP().ConnContext(context.Background(), server))
	r := httptest.NewRequestWithContext(ctx, method, "http://bakery"+path, strings.NewReader(body))
	a := newAnswer()
	c := &inMemory{Conn: client, hangUp: cancel, answer: a}
	cs.mu.Lock()
	cs.open = append(cs.open, c)
	cs.mu.Unlock()
	cs.under.Go(func() {
		defer server.Close()
		defer a.end()
		defer a.WriteHeader(http.StatusOK)
		srv.HTTP().Handler.ServeHTTP(a, r)
	})
	<-a.began
	return c, &http.Response{Status: fmt.Sprint(a.code), StatusCode: a.code, Header: a.sent, Body: a}
}

func socketPair(t *testing.T) (server, client net.Conn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		ends[i], err = net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return ends[0], ends[1]
}

// inMemory is the client's end of a connection.
type inMemory struct {
	net.Conn
	hangUp context.CancelFunc
	answer *answer
}

// Close ends the call, as net/http does when it finds the socket closed.
func (c *inMemory) Close() error {
	err := c.Conn.Close()
	c.hangUp()
	c.answer.end()
	return err
}

// answer is the answer to a call: the client reads what the handler writes.
type answer struct {
	header http.Header
	began  chan struct{} // closed when the fields below are set
	sent   http.Header
	code   int

	mu    sync.Mutex // guards the fields below
	more  *sync.Cond
	text  bytes.Buffer
	ended bool
}

func newAnswer() *answer {
	a := &answer{header: http.Header{}, began: make(chan struct{})}
	a.more = sync.NewCond(&a.mu)
	return a
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) Flush() {}

func (a *answer) SetWriteDeadline(time.Time) error { return nil }

func (a *answer) Close() error { return nil }

func (a *answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code, a.sent = code, a.header.Clone()
		close(a.began)
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.more.Broadcast()
	if a.ended {
		return 0, net.ErrClosed
	}
	return a.text.Write(p)
}

func (a *answer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.more.Broadcast()
}

func (a *answer) Read(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	late := time.Now().Add(generous)
	defer time.AfterFunc(generous, a.more.Broadcast).Stop()
	for a.text.Len() == 0 {
		switch {
		case a.ended:
			return 0, io.EOF
		case !time.Now().Before(late):
			return 0, os.ErrDeadlineExceeded
		}
		a.more.Wait()
	}
	return a.text.Read(p)
}
