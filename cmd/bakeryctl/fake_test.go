package main

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

// token is that of every grant of the fake bakeryd.
var token = layout.MakeTicket(4711, 3)

// wanted is the request as bakeryd sees it.
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
	w    http.ResponseWriter
	want wanted
	gone <-chan struct{} // closed when the last descriptor of the connection is
}

// send ignores errors: the client may have gone.
func (x *exchange) send(format string, args ...any) {
	fmt.Fprintf(x.w, format+"\n", args...)
	_ = http.NewResponseController(x.w).Flush()
}

func (x *exchange) grant(lease time.Duration) {
	x.send(`{"event":"granted","name":%q,"mode":%q,"token":%q,"host_id":3,"lease_ms":%d}`,
		x.want.Name, x.want.Mode, token, lease.Milliseconds())
}

func (x *exchange) renew(lease time.Duration) {
	x.send(`{"event":"renewed","lease_ms":%d}`, lease.Milliseconds())
}

func (x *exchange) fail(status int, code, message, hint string) {
	x.w.WriteHeader(status)
	fmt.Fprintf(x.w, `{"error":{"code":%q,"message":%q,"hint":%q}}`, code, message, hint)
}

// fakeBakeryd answers every request by a script.
type fakeBakeryd struct {
	socket   string
	released chan struct{} // gets one for every connection that ended
}

func serve(t *testing.T, script func(x *exchange)) *fakeBakeryd {
	t.Helper()
	b := &fakeBakeryd{socket: filepath.Join(t.TempDir(), "s"), released: make(chan struct{}, 100)}
	l, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/lock", func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{w: w, gone: r.Context().Done()}
		if err := json.NewDecoder(r.Body).Decode(&x.want); err != nil {
			t.Errorf("request: %v", err)
		}
		script(x)
	})
	s := &http.Server{Handler: mux, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			b.released <- struct{}{}
		}
	}}
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() { _ = s.Close() })
	return b
}

// holding grants every lock for so long that nothing depends on renewals.
func holding(x *exchange) {
	x.grant(time.Hour)
	<-x.gone
}

// held says whether the connection is still open.
func (b *fakeBakeryd) held() bool { return len(b.released) == 0 }
