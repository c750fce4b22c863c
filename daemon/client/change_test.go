package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/clienttest"
)

// change is the body of a call that changes a hold.
type change struct {
	Session string        `json:"session"`
	Token   layout.Ticket `json:"token"`
	Mode    *layout.Mode  `json:"mode"`
	Value   *[]byte       `json:"value"`
}

func readChange(t *testing.T, r *http.Request) (c change) {
	t.Helper()
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		t.Error(err)
	}
	return c
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%q,"message":"no"}}`, code)
}

// await waits for a condition.
func await(t *testing.T, so func() bool) {
	t.Helper()
	for bound := time.Now().Add(soon); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(bound) {
			t.Fatalf("condition not met within %v", soon)
		}
	}
}

func TestSetMode(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	h := mustLock(t, b.Socket, Options{Mode: Shared})
	b.Answer("POST /v1/mode", func(w http.ResponseWriter, r *http.Request) {
		c := readChange(t, r)
		if c.Session != h.Session() || c.Token != token {
			t.Errorf("asked by session %s, token %v", c.Session, c.Token)
		}
		fmt.Fprintf(w, `{"mode":%q,"token":%q}`, *c.Mode, token)
	})
	for _, mode := range []Mode{Exclusive, Exclusive, Shared} {
		if err := h.SetMode(t.Context(), mode); err != nil || h.Mode() != mode {
			t.Errorf("%v: %v, mode %v", mode, err, h.Mode())
		}
	}
	b.Answer("POST /v1/mode", func(w http.ResponseWriter, r *http.Request) { refuse(w, 409, api.CodeUpgrade) })
	if err := h.SetMode(t.Context(), Exclusive); !errors.Is(err, ErrUpgrade) || h.Mode() != Shared {
		t.Errorf("error %v, mode %v, want ErrUpgrade and shared", err, h.Mode())
	}
}

// TestModeIsHeard: another process changes the mode.
func TestModeIsHeard(t *testing.T) {
	b := clienttest.Serve(t, func(x *exchange) {
		x.Grant(time.Hour)
		x.Send(`{"event":"mode","mode":"shared"}`)
		<-x.Gone
	})
	h := mustLock(t, b.Socket, Options{})
	await(t, func() bool { return h.Mode() == Shared })
}

// TestComesBackInTheModeThatItHas: the hold resumes with the mode that bakeryd reports.
func TestComesBackInTheModeThatItHas(t *testing.T) {
	back := make(chan clienttest.Request, 1)
	b := clienttest.Serve(t, func(x *exchange) {
		x.Grant(time.Hour)
		x.Send(`{"event":"mode","mode":"shared"}`)
		<-x.Gone
	})
	h := mustLock(t, b.Socket, Options{})
	await(t, func() bool { return h.Mode() == Shared })
	b.Kill()
	b.Start(func(x *exchange) {
		back <- x.Request
		x.Mode = layout.Exclusive // changed by another process
		x.Grant(time.Hour)
		<-x.Gone
	})
	if got := <-back; got.Mode != layout.Shared || got.Token != token {
		t.Errorf("came back %v with token %v", got.Mode, got.Token)
	}
	await(t, func() bool { return h.Mode() == Exclusive })
	if h.Err() != nil {
		t.Error(h.Err())
	}
}

// TestChangeIsAskedForAgain: an answer is lost, then bakeryd restarts.
func TestChangeIsAskedForAgain(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	h := mustLock(t, b.Socket, Options{})
	var asked atomic.Int64
	b.Answer("POST /v1/mode", func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 1:
			panic(http.ErrAbortHandler) // the connection breaks
		case 2:
			refuse(w, 503, api.CodeUnavailable)
		default:
			fmt.Fprintf(w, `{"mode":"shared","token":%q}`, token)
		}
	})
	if err := h.SetMode(t.Context(), Shared); err != nil || asked.Load() != 3 || h.Mode() != Shared {
		t.Errorf("error %v after %d requests, mode %v", err, asked.Load(), h.Mode())
	}
}

func TestChangeEndsWithTheHold(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	h := mustLock(t, b.Socket, Options{})
	b.Answer("POST /v1/value", func(w http.ResponseWriter, r *http.Request) { refuse(w, 410, api.CodeLost) })
	if err := h.SetValue(t.Context(), nil); !errors.Is(err, ErrLost) {
		t.Errorf("error %v, want ErrLost", err)
	}
	asked := make(chan struct{}, 100)
	b.Answer("POST /v1/value", func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		refuse(w, 503, api.CodeUnavailable)
	})
	ended := make(chan error, 1)
	go func() { ended <- h.SetValue(context.Background(), nil) }()
	<-asked
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrLost) {
		t.Errorf("error %v, want ErrLost", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("changed my mind")
	cancel(why)
	if err := New(b.Socket).Access(h.Session(), Token(token)).SetMode(ctx, Shared); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
}

func TestValue(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	h := mustLock(t, b.Socket, Options{})
	var stored []byte
	b.Answer("POST /v1/value", func(w http.ResponseWriter, r *http.Request) {
		c := readChange(t, r)
		if c.Value == nil {
			t.Error("no value")
			return
		}
		stored = *c.Value
		fmt.Fprintf(w, `{"name":"x","token":%q}`, token)
	})
	b.Answer("GET /v1/value", func(w http.ResponseWriter, r *http.Request) {
		if name := r.URL.Query().Get("name"); name != "x" && name != "a&b c" {
			refuse(w, 404, api.CodeMissing)
			return
		}
		answer := map[string]any{"name": r.URL.Query().Get("name"), "value": stored, "token": token, "host": 3, "host_name": "db3"}
		if len(stored) == 0 {
			answer["value"] = nil
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
	c := New(b.Socket)
	for _, value := range []string{"10.0.0.1:80", "\x00\xff\n", ""} {
		if err := h.SetValue(t.Context(), []byte(value)); err != nil {
			t.Fatal(err)
		}
		v, err := c.Value(t.Context(), "a&b c")
		if err != nil || string(v.Value) != value || v.Token != Token(token) || v.Host != 3 || v.HostName != "db3" {
			t.Errorf("%q: %+v, %v", value, v, err)
		}
	}
	if err := h.SetValue(t.Context(), nil); err != nil {
		t.Errorf("clearing: %v", err)
	}
	if _, err := c.Value(t.Context(), "y"); !errors.Is(err, ErrNoLock) {
		t.Errorf("error %v, want ErrNoLock", err)
	}
}

func TestValueOfAnotherLock(t *testing.T) {
	socket := serveRaw(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") })
	if _, err := New(socket).Value(t.Context(), "x"); !errors.Is(err, ErrProtocol) {
		t.Errorf("error %v, want ErrProtocol", err)
	}
}
