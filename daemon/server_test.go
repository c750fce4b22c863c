package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/layout"
)

// served is a daemon that serves a socket, with functions to call it.
type served struct {
	t    *testing.T
	d    *Host
	srv  *server.Server
	path string

	// the calls of a server in a bubble; nil if path is its socket
	calls *calls
}

func serveSocket(t *testing.T, d *Host, change ...func(*server.Config)) *served {
	serve := serveCurrent
	if d.clock != clock.Boottime {
		serve = serveInBubble
	}
	s := serve(t, alone(d), change...)
	s.d = d
	return s
}

// alone is the function of a server that has one host.
func alone(d *Host) func() (server.Host, error) {
	return func() (server.Host, error) { return d, nil }
}

// newServer returns a server that logs to the test.
func newServer(t *testing.T, current func() (server.Host, error), change ...func(*server.Config)) *server.Server {
	cfg := server.Config{Host: current, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, f := range change {
		f(&cfg)
	}
	return checked(server.New(cfg))
}

// checked makes a server check its answers.
func checked(srv *server.Server) *server.Server {
	srv.HTTP().Handler = answers.Handler(srv.HTTP().Handler)
	return srv
}

func serveCurrent(t *testing.T, current func() (server.Host, error), change ...func(*server.Config)) *served {
	dir, err := os.MkdirTemp("", "bakery") // short: socket paths are limited
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &served{t: t, srv: newServer(t, current, change...), path: filepath.Join(dir, "s")}
	ln, err := server.Listen(s.path)
	require.NoError(t, err)
	serving(t, s.srv, s.srv.Serve, ln)
	return s
}

// serving serves a listener until the end of the test.
func serving(t *testing.T, srv *server.Server, serve func(net.Listener) error, ln net.Listener) {
	done := make(chan error, 1)
	go func() { done <- serve(ln) }()
	t.Cleanup(func() {
		require.NoError(t, srv.Shutdown())
		require.NoError(t, <-done)
	})
}

func (s *served) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial("unix", s.path)
	require.NoError(s.t, err)
	require.NoError(s.t, c.SetReadDeadline(time.Now().Add(generous)))
	// kept until then: the garbage collector would close it, which releases its lock
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// post sends a request and returns the connection and the answer.
func (s *served) post(body string) (net.Conn, *http.Response) {
	s.t.Helper()
	if s.calls != nil {
		return s.calls.request(s.t, s.srv, "POST", "/v1/lock", body)
	}
	c := s.dial()
	_, err := fmt.Fprintf(c, "POST /v1/lock HTTP/1.1\r\nHost: bakery\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(s.t, err)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(s.t, err)
	return c, r
}

func nextEvent(t *testing.T, r *http.Response) api.Event {
	t.Helper()
	var e api.Event
	require.NoError(t, json.NewDecoder(oneLine{r.Body}).Decode(&e), "no event any more of the answer %s", r.Status)
	return e
}

// oneLine reads byte by byte, so that a decoder takes no more than its line.
type oneLine struct{ r io.Reader }

func (o oneLine) Read(p []byte) (int, error) { return o.r.Read(p[:1]) }

func TestAPIHoldsAsLongAsTheConnection(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newCluster(t, 8, 4).host(1)
		s := serveSocket(t, d)
		c, r := s.post(`{"name": "x", "command": "backup"}`)
		require.Equal(t, http.StatusOK, r.StatusCode)
		require.Equal(t, "application/x-ndjson", r.Header.Get("Content-Type"))
		e := nextEvent(t, r)
		require.Equal(t, "granted", e.Kind)
		require.Equal(t, 1, e.Host)
		require.Equal(t, layout.Exclusive, e.Mode)
		require.Positive(t, e.LeaseMS)

		other, r2 := s.post(`{"name": "x"}`)
		w := nextEvent(t, r2)
		require.Equal(t, "waiting", w.Kind)
		require.Equal(t, 1, w.Ahead)
		status := s.status()
		require.Len(t, status.Locks[0].Local, 1)
		require.Equal(t, os.Getpid(), status.Locks[0].Local[0].PID, "the peer's, where none is given")
		require.Equal(t, "live", status.ThisHost.State)

		busy, r3 := s.post(`{"name": "x", "nonblock": true}`)
		require.Equal(t, "busy", nextEvent(t, r3).Code)
		require.NoError(t, busy.Close())
		late, r4 := s.post(`{"name": "x", "timeout_ms": 20}`)
		for e = nextEvent(t, r4); e.Kind == "waiting"; e = nextEvent(t, r4) {
		}
		require.Equal(t, "timeout", e.Code)
		require.NoError(t, late.Close())

		require.NoError(t, c.Close())
		g := nextEvent(t, r2)
		for g.Kind == "waiting" {
			g = nextEvent(t, r2)
		}
		require.Equal(t, "granted", g.Kind)
		require.NoError(t, other.Close())
		last, r5 := s.post(`{"name": "x", "nonblock": true, "mode": "shared"}`)
		for g = nextEvent(t, r5); g.Kind == "waiting"; g = nextEvent(t, r5) {
		}
		require.Equal(t, "granted", g.Kind, "a holder that has closed does not make the lock busy")
		require.NoError(t, last.Close())
	})
}

// transport returns a transport that makes every call on its own connection to the socket.
func (s *served) transport() *http.Transport {
	return &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", s.path) }}
}

func (s *served) status() (r report.Report) {
	s.t.Helper()
	_, text := s.call("GET /v1/status", "")
	require.NoError(s.t, json.Unmarshal([]byte(text), &r))
	return r
}

func TestAPIRenewsTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := serveSocket(t, newCluster(t, 8, 4).host(1))
		c, r := s.post(`{"name": "x"}`)
		defer c.Close()
		require.Equal(t, "granted", nextEvent(t, r).Kind)
		e := nextEvent(t, r)
		require.Equal(t, "renewed", e.Kind)
		require.Greater(t, e.LeaseMS, int64(1000))
	})
}

func TestAPIRefusesBadRequests(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := serveSocket(t, newCluster(t, 8, 1).host(1))
		for _, c := range []struct {
			body, message string
			status        int
		}{
			{`{"name": ""}`, "lock name", 400},
			{`{"name": "a\nb"}`, "lock name", 400},
			{`{"nam": "x"}`, "lock name", 400},
			{`{"name": "x", "name": "y"}`, `member "name" is given twice`, 400},
			{`{"name": "x", "if_idle": true}`, `the condition "if_idle", which this bakeryd does not know`, 400},
			{`{"name": "x"} {}`, "more than one", 400},
			{`{"name": "x", "mode": "upside down"}`, "mode", 400},
			{`{"name": "x", "timeout_ms": -1}`, "timeout_ms -1", 400},
			{`{"name": "x", "timeout_ms": 1e30}`, "timeout_ms", 400},
			{`{"name": "x", "permits": 9}`, "permits 9", 400},
			{`{"name": "x", "pid": -1}`, "pid -1", 400},
			{`{"name": "x", "pid": 4294967296}`, "pid 4294967296", 400},
			{`not json`, "body", 400},
			{`{"name": "` + strings.Repeat("x", 16<<10) + `"}`, "too large", 400},
		} {
			conn, r := s.post(c.body)
			var e struct{ Error api.Error }
			require.NoError(t, json.NewDecoder(r.Body).Decode(&e), c.body)
			require.Equal(t, c.status, r.StatusCode, c.body)
			require.Equal(t, "application/json", r.Header.Get("Content-Type"), c.body)
			require.Equal(t, "invalid", e.Error.Code)
			require.Contains(t, e.Error.Message, c.message)
			require.NoError(t, conn.Close())
		}
		c, r := s.post(`{"name": "the only one"}`)
		require.Equal(t, "granted", nextEvent(t, r).Kind)
		defer c.Close()
		for _, call := range []struct {
			call, body, answer string
			status             int
		}{
			{"POST /v1/lock", `{"name": "no room"}`, `no room for lock \"no room\"","hint":"remove a lock`, 507},
			{"POST /v1/lock", `{"name": "no room"}`, `"code":"full"`, 507},
			{"POST /v1/lock", `{"name": "the only one", "permits": 2}`, `"code":"permits"`, 409},
			{"GET /v1/lock", "", `"code":"invalid"`, 404},
			{"GET /v2", "", `"code":"invalid"`, 404},
			{"DELETE /v1/status", "", `"code":"invalid"`, 404},
		} {
			status, answer := s.call(call.call, call.body)
			require.Equal(t, call.status, status, call.call)
			require.Contains(t, answer, call.answer)
		}
	})
}

// TestAPINoticesAClientThatSaysTooMuch: data after the request must not hide the end of the client.
func TestAPINoticesAClientThatSaysTooMuch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := serveSocket(t, newCluster(t, 8, 4).host(1))
		c, r := s.post(`{"name": "x"}`)
		require.Equal(t, "granted", nextEvent(t, r).Kind)
		_, err := io.WriteString(c, "and another thing")
		require.NoError(t, err)
		require.NoError(t, c.Close())
		c2, r2 := s.post(`{"name": "x"}`)
		defer c2.Close()
		for e := nextEvent(t, r2); e.Kind != "granted"; e = nextEvent(t, r2) {
			require.Equal(t, "waiting", e.Kind)
		}
	})
}

func TestDrainTellsHolders(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := serveSocket(t, newCluster(t, 8, 4).host(1))
		c, r := s.post(`{"name": "x"}`)
		require.Equal(t, "granted", nextEvent(t, r).Kind)
		s.d.ending.Drain("bakeryd is shutting down")
		e := nextEvent(t, r)
		for e.Kind == "renewed" {
			e = nextEvent(t, r)
		}
		require.Equal(t, "lost", e.Kind)
		require.Contains(t, e.Message, "shutting down")
		acquireFails(t, s.d, locks.Request{Name: "x", Try: true}, api.ErrBusy, "it holds the lock until it has stopped")
		require.NoError(t, c.Close())
	})
}

func TestListen(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	_, err := server.Listen(s.path)
	require.ErrorContains(t, err, "another bakeryd serves this socket")
	info, err := os.Stat(s.path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm())

	left := filepath.Join(filepath.Dir(s.path), "left")
	ln, err := net.Listen("unix", left)
	require.NoError(t, err)
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, ln.Close())
	ln, err = server.Listen(left)
	require.NoError(t, err, "a socket that no process serves is replaced")
	require.NoError(t, ln.Close())

	file := filepath.Join(filepath.Dir(s.path), "file")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	_, err = server.Listen(file)
	require.Error(t, err)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "precious", string(content), "only a socket is ever removed")
}

// call makes a call that is not a stream: "METHOD /path".
func (s *served) call(call, body string) (status int, answer string) {
	s.t.Helper()
	method, path, _ := strings.Cut(call, " ")
	if s.calls != nil {
		c, resp := s.calls.request(s.t, s.srv, method, path, body)
		defer c.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(s.t, err)
		return resp.StatusCode, string(b)
	}
	c := s.dial()
	defer c.Close()
	r, err := http.NewRequest(method, "http://bakery"+path, strings.NewReader(body))
	require.NoError(s.t, err)
	client := http.Client{Transport: &http.Transport{DialContext: oneConn(c)}, Timeout: generous}
	resp, err := client.Do(r)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, string(b)
}
