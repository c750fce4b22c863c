// Package clienttest is a fake bakeryd for tests of clients. It serves the socket by a script,
// without a disk, and a test can kill and restart it. It knows the API as package client does; it
// never decides which client gets a lock.
//
// Begin with [Serve].
package clienttest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
)

// soon bounds every wait; a passing test is much faster.
const soon = time.Minute

// Token is the token of every grant.
var Token = layout.MakeTicket(4711, 3)

// HostID is the id of the fake's host.
const HostID = 3

// Request is a request as bakeryd sees it.
type Request struct {
	Name      string        `json:"name"`
	Mode      layout.Mode   `json:"mode"`
	NonBlock  bool          `json:"nonblock"`
	TimeoutMS int64         `json:"timeout_ms"`
	Permits   int           `json:"permits"`
	PID       int           `json:"pid"`
	Command   string        `json:"command"`
	Session   string        `json:"session"`
	Token     layout.Ticket `json:"token"`
	Witness   bool          `json:"witness"`
	Requests  bool          `json:"requests"`
	Confirm   bool          `json:"confirm"`
	NoLinger  bool          `json:"no_linger"`
}

// Exchange is one request and its answer.
type Exchange struct {
	Request
	Nth   int             // number of the request, from 1, counted across restarts
	Gone  <-chan struct{} // closed when the client has unlocked or closed the connection, or bakeryd has ended
	Grace time.Duration   // sent with every grant

	b         *Bakeryd
	link      net.Conn
	refused   bool
	Confirmed chan struct{} // closed when the client has confirmed the grant
	until     atomic.Int64  // the last deadline sent, in milliseconds on boottime
}

// Send sends a line. It ignores errors: the client may be gone.
func (x *Exchange) Send(format string, args ...any) {
	fmt.Fprintf(x.link, format+"\n", args...)
}

// Wait sends the client's place in the queue, and a lease.
func (x *Exchange) Wait(ahead int, lease time.Duration) {
	x.Send(`{"event":"waiting","ahead":%d,"queued":%d,"lease_ms":%d}`, ahead, ahead, lease.Milliseconds())
}

// Grant grants the lock, with a liveness FIFO if the client asks for one.
func (x *Exchange) Grant(lease time.Duration) {
	x.until.Store(clock.Boottime.Now().Milliseconds() + lease.Milliseconds())
	witness := ""
	if x.Witness {
		witness = fmt.Sprintf(`,"witness":%q`, x.b.witness(x.Session))
	}
	x.Send(`{"event":"granted","name":%q,"mode":%q,"token":%q,"host":%d,"lease_ms":%d,"at_ms":%d,"grace_ms":%d%s}`,
		x.Name, x.Mode, Token, HostID, lease.Milliseconds(), clock.Boottime.Now().Milliseconds(), x.Grace.Milliseconds(), witness)
}

// confirmed answers the confirmation of a grant.
func (x *Exchange) confirmed() {
	now := clock.Boottime.Now().Milliseconds()
	close(x.Confirmed)
	x.Send(`{"event":"confirmed","lease_ms":%d,"at_ms":%d}`, x.until.Load()-now, now)
}

// Renew moves the deadline.
func (x *Exchange) Renew(lease time.Duration) {
	x.until.Store(clock.Boottime.Now().Milliseconds() + lease.Milliseconds())
	x.Send(`{"event":"renewed","lease_ms":%d,"at_ms":%d}`, lease.Milliseconds(), clock.Boottime.Now().Milliseconds())
}

// Ask reports that a host wants the lock.
func (x *Exchange) Ask(host int, name, message string) {
	x.Send(`{"event":"requested","host":%d,"host_name":%q,"message":%q}`, host, name, message)
}

// Hold grants the lock, and renews it until the client is gone.
func (x *Exchange) Hold(lease time.Duration) {
	x.Grant(lease)
	for {
		select {
		case <-x.Gone:
			return
		case <-time.After(lease / 20):
			x.Renew(lease)
		}
	}
}

// Lose reports that the hold is over, and waits until the client is gone.
func (x *Exchange) Lose(message string) {
	x.Send(`{"event":"lost","message":%q}`, message)
	<-x.Gone
}

// Refuse refuses the lock.
func (x *Exchange) Refuse(code, message, hint string) {
	x.Send(`{"event":"refused","code":%q,"message":%q,"hint":%q}`, code, message, hint)
	x.refused = true
}

// Script answers one request. If it returns before the client has unlocked, and does not refuse,
// the connection breaks.
type Script func(x *Exchange)

// Holding grants every lock with a lease so long that no test depends on renewals.
func Holding(x *Exchange) {
	x.Grant(time.Hour)
	<-x.Gone
}

// Bakeryd serves a socket. Like a process, it can be killed and started again.
type Bakeryd struct {
	Socket string

	t   testing.TB
	dir string

	mu        sync.Mutex   // guards the fields below
	server    *http.Server // nil: killed
	requests  int
	open      int // connections, without links that take no lock
	links     int
	linked    map[net.Conn]struct{}       // the open ones
	witnesses map[string]int              // read ends, by path
	calls     map[string]http.HandlerFunc // other than lock, by method and path
}

// Serve runs a bakeryd that answers every request with script, until the test ends.
func Serve(t testing.TB, script Script) *Bakeryd {
	t.Helper()
	dir, err := os.MkdirTemp("", "bakeryd") // [testing.T.TempDir] is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	b := &Bakeryd{Socket: filepath.Join(dir, "s"), t: t, dir: dir, linked: map[net.Conn]struct{}{}, witnesses: map[string]int{}}
	b.Start(script)
	t.Cleanup(func() {
		defer func() { _ = os.RemoveAll(dir) }()
		b.Kill()
		for _, fd := range b.witnesses {
			_ = unix.Close(fd)
		}
	})
	return b
}

// Start starts bakeryd again.
func (b *Bakeryd) Start(script Script) {
	b.t.Helper()
	_ = os.Remove(b.Socket)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.Socket, Net: "unix"})
	if err != nil {
		b.t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	mux := http.NewServeMux()
	s := &http.Server{Handler: mux}
	mux.HandleFunc("GET /v1/link", func(w http.ResponseWriter, r *http.Request) {
		c, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			b.t.Errorf("link: %v", err)
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.server != s {
			_ = c.Close()
			return
		}
		b.links++
		b.linked[c] = struct{}{}
		go b.serveLink(c, in.Reader, script)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		answer := b.calls[r.Method+" "+r.URL.Path]
		b.mu.Unlock()
		if answer == nil && r.URL.Path == "/v1/contain" {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"error":{"code":"unavailable","message":"this bakeryd contains nothing"}}`)
			return
		}
		if answer == nil && r.URL.Path == "/v1/blocker" {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":{"code":"invalid","message":"this bakeryd knows no other client"}}`)
			return
		}
		if answer == nil {
			b.t.Errorf("no answer is set for %s %s", r.Method, r.URL.Path)
			return
		}
		answer(w, r)
	})
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			b.change(func() { b.open++ })
		case http.StateClosed, http.StateHijacked:
			b.change(func() { b.open-- })
		}
	}
	b.change(func() { b.server = s })
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			b.t.Errorf("serve: %v", err)
		}
	}()
}

// serveLink answers a client until it is gone, or bakeryd has ended.
func (b *Bakeryd) serveLink(c net.Conn, in *bufio.Reader, script Script) {
	letGo := func() {}
	var x *Exchange
	defer func() {
		b.change(func() { delete(b.linked, c) })
		c.Close()
		letGo()
	}()
	fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: bakery-link/1\r\n\r\n")
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var said struct {
			Lock    *Request       `json:"lock"`
			Confirm *layout.Ticket `json:"confirm"`
			Unlock  *layout.Ticket `json:"unlock"`
		}
		if err := json.Unmarshal(text, &said); err != nil || said.Lock == nil && said.Confirm == nil && said.Unlock == nil {
			b.t.Errorf("line %q: %v", text, err)
			return
		}
		if said.Confirm != nil {
			x.confirmed()
			continue
		}
		letGo()
		letGo = func() {}
		if said.Unlock != nil {
			fmt.Fprintln(c, `{"event":"released"}`)
			continue
		}
		x, letGo = b.exchange(c, *said.Lock, script)
	}
}

// exchange answers one request. The returned function ends the exchange.
func (b *Bakeryd) exchange(c net.Conn, r Request, script Script) (x *Exchange, letGo func()) {
	gone, cancel := context.WithCancel(context.Background())
	x = &Exchange{Request: r, Confirmed: make(chan struct{}), Gone: gone.Done(), b: b, link: c}
	b.change(func() { b.requests++; b.open++; x.Nth = b.requests })
	done := make(chan struct{})
	go func() {
		defer close(done)
		script(x)
		b.change(func() { b.open-- })
		if gone.Err() == nil && !x.refused {
			_ = c.Close()
		}
	}()
	return x, func() {
		cancel()
		<-done
	}
}

// Links returns how many connections have taken locks.
func (b *Bakeryd) Links() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.links
}

// Answer sets the handler of a call other than lock, such as "POST /v1/mode", also after restarts.
func (b *Bakeryd) Answer(call string, answer http.HandlerFunc) {
	b.change(func() {
		if b.calls == nil {
			b.calls = map[string]http.HandlerFunc{}
		}
		b.calls[call] = answer
	})
}

// Kill ends bakeryd: when it returns, every connection is broken and the socket file remains.
func (b *Bakeryd) Kill() {
	b.mu.Lock()
	s := b.server
	b.server = nil
	for c := range b.linked {
		// A process forked by another test keeps a copy of the descriptor until it calls execve.
		u := c.(*net.UnixConn)
		_ = u.CloseRead()
		_ = u.CloseWrite()
		_ = u.Close()
	}
	b.mu.Unlock()
	if s != nil {
		_ = s.Close()
	}
}

func (b *Bakeryd) change(how func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	how()
}

// witness returns the path of a session's FIFO, and creates it if needed.
func (b *Bakeryd) witness(session string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	path := filepath.Join(b.dir, session+".fifo")
	if _, there := b.witnesses[path]; there {
		return path
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		b.t.Error(err)
		return ""
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		b.t.Error(err)
		return ""
	}
	b.witnesses[path] = fd
	return path
}

// Witnessed reports whether any process has a FIFO open.
func (b *Bakeryd) Witnessed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fd := range b.witnesses {
		if _, err := unix.Read(fd, make([]byte, 1)); errors.Is(err, unix.EAGAIN) {
			return true
		}
	}
	return false
}

// Held reports whether a connection or an open FIFO exists: then the lock is held.
func (b *Bakeryd) Held() bool {
	b.mu.Lock()
	open := b.open
	b.mu.Unlock()
	return open > 0 || b.Witnessed()
}

// AwaitRelease waits until the lock is not held.
func (b *Bakeryd) AwaitRelease() {
	b.t.Helper()
	for bound := time.Now().Add(soon); b.Held(); time.Sleep(time.Millisecond) {
		if time.Now().After(bound) {
			b.t.Fatalf("waited %v for the release", soon)
		}
	}
}

// Requests returns the number of requests so far.
func (b *Bakeryd) Requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}
