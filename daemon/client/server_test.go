package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// soon bounds what a test waits for; nothing that works takes nearly as long.
const soon = 20 * time.Second

// wanted is the request as the server sees it.
type wanted struct {
	Name      string      `json:"name"`
	Mode      layout.Mode `json:"mode"`
	NonBlock  bool        `json:"nonblock"`
	TimeoutMS int64       `json:"timeout_ms"`
	Permits   int         `json:"permits"`
	PID       int         `json:"pid"`
	Command   string      `json:"command"`
}

// exchange is one request to the fake bakeryd, and the stream that answers it.
type exchange struct {
	t    *testing.T
	w    http.ResponseWriter
	want wanted
	gone <-chan struct{} // closed when the client has closed its last descriptor
}

func (x *exchange) send(format string, args ...any) {
	x.w.Header().Set("Content-Type", "application/x-ndjson")
	fmt.Fprintf(x.w, format+"\n", args...)
	if err := http.NewResponseController(x.w).Flush(); err != nil {
		x.t.Logf("flush: %v", err)
	}
}

// token is that of every grant.
var token = layout.MakeTicket(4711, 1)

func (x *exchange) grant(lease time.Duration) {
	x.send(`{"event":"granted","name":%q,"mode":%q,"token":%q,"host_id":1,"lease_ms":%d}`,
		x.want.Name, x.want.Mode, token, lease.Milliseconds())
}

func (x *exchange) refuse(status int, code, message, hint string) {
	x.w.WriteHeader(status)
	fmt.Fprintf(x.w, `{"error":{"code":%q,"message":%q,"hint":%q}}`, code, message, hint)
}

// serve runs a fake bakeryd that answers every request by script, and returns its socket.
func serve(t *testing.T, script func(x *exchange)) string {
	t.Helper()
	socket, l := listen(t)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/lock", func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{t: t, w: w, gone: r.Context().Done()}
		if err := json.NewDecoder(r.Body).Decode(&x.want); err != nil {
			t.Errorf("request: %v", err)
		}
		script(x)
	})
	s := &http.Server{Handler: mux}
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() { _ = s.Close() })
	return socket
}

// serveRaw answers one connection with those bytes, then calls then.
func serveRaw(t *testing.T, answer func(c net.Conn)) string {
	t.Helper()
	socket, l := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Read(make([]byte, 4096)); err != nil {
			return
		}
		answer(c)
	}()
	t.Cleanup(func() { _ = l.Close(); wait(t, done, "the fake server to end") })
	return socket
}

func listen(t *testing.T) (string, net.Listener) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	return socket, l
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(soon):
		t.Fatalf("waited %v for %s", soon, what)
	}
}

// open says whether nobody has closed the channel yet.
func open(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

func mustLock(t *testing.T, socket string, o Options) *Hold {
	t.Helper()
	h, err := New(socket).Lock(t.Context(), "x", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Unlock() })
	return h
}
