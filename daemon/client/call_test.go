package client

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
)

func answered(body string) string {
	return "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body
}

func TestCallsOfLocks(t *testing.T) {
	var asked string
	reply := ""
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			n, _ := io.ReadAtLeast(c, buf, 1)
			asked = string(buf[:n])
			_, _ = io.WriteString(c, reply)
			_ = c.Close()
		}
	}()
	defer func() { _ = l.Close(); wait(t, done, "the fake server to end") }()
	c := New(socket)

	reply = answered(`{"name":"x","number":3,"permits":2,"creation":"9","created":true}`)
	lock, created, err := c.Create(t.Context(), "x", 2)
	if want := (LockInfo{"x", 3, 2, 9}); err != nil || !created || lock != want {
		t.Errorf("Create: %+v, %v, %v", lock, created, err)
	}
	if !strings.HasPrefix(asked, "POST /v1/create ") || !strings.HasSuffix(asked, `{"name":"x","permits":2}`) {
		t.Errorf("Create asked %q", asked)
	}
	if _, _, err := c.Create(t.Context(), "y", 2); !errors.Is(err, ErrProtocol) {
		t.Errorf("Create, answered with another lock: %v", err)
	}

	reply = answered(`{"name":"x"}`)
	if err := c.Remove(t.Context(), "x", RemoveOptions{Timeout: 1500 * time.Microsecond}); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if !strings.HasSuffix(asked, `{"name":"x","nonblock":false,"timeout_ms":2}`) {
		t.Errorf("Remove asked %q", asked)
	}
	reply = "HTTP/1.1 409 Conflict\r\n\r\n" + `{"error":{"code":"value","message":"the lock has a value"}}`
	if err := c.Remove(t.Context(), "x", RemoveOptions{IfNoValue: true}); !errors.Is(err, api.ErrValue) {
		t.Errorf("Remove of a lock with a value: %v", err)
	}
	if !strings.HasSuffix(asked, `{"if_no_value":true,"name":"x","nonblock":false,"timeout_ms":0}`) {
		t.Errorf("Remove asked %q", asked)
	}
	reply = "HTTP/1.1 409 Conflict\r\n\r\n" + `{"error":{"code":"busy","message":"the lock is busy"}}`
	if err := c.Remove(t.Context(), "x", RemoveOptions{NonBlock: true}); !errors.Is(err, ErrBusy) {
		t.Errorf("Remove of a busy lock: %v", err)
	}
	reply = "HTTP/1.1 404 Not Found\r\n\r\n" + `{"error":{"code":"missing","message":"no such lock","hint":"look"}}`
	var refusal *Error
	if err := c.Remove(t.Context(), "x", RemoveOptions{}); !errors.As(err, &refusal) || refusal.Code != api.CodeMissing || refusal.Hint != "look" {
		t.Errorf("Remove of a missing lock: %v", err)
	}

	reply = answered(`{"locks":[{"name":"x","number":3,"permits":2,"creation":"9"}]}`)
	if locks, err := c.Locks(t.Context()); err != nil || len(locks) != 1 || locks[0] != (LockInfo{"x", 3, 2, 9}) {
		t.Errorf("Locks: %+v, %v", locks, err)
	}
	reply = answered(`{"locks":[{"name":"x","number":3,"permits":2,"creation":"9"}],"damaged":"lock 4: bad checksum"}`)
	if locks, err := c.Locks(t.Context()); len(locks) != 1 || !errors.As(err, &refusal) || refusal.Code != api.CodeDevice {
		t.Errorf("Locks of a damaged directory: %+v, %v", locks, err)
	}
}

func TestCallSurvivesABrokenServer(t *testing.T) {
	for name, test := range map[string]struct {
		answer, endless string
		want            error
	}{
		"not http":              {"220 mail ready\r\n", "", ErrProtocol},
		"endless header":        {"HTTP/1.1 200 OK\r\n", "X: " + strings.Repeat("a", 1000) + "\r\n", ErrProtocol},
		"endless answer":        {answered(`{"locks":"`), strings.Repeat("a", 1<<16), ErrProtocol},
		"endless error":         {"HTTP/1.1 500 No\r\n\r\n", strings.Repeat("a", 1<<16), ErrProtocol},
		"no json":               {answered("hello"), "", ErrProtocol},
		"error without a code":  {"HTTP/1.1 400 No\r\n\r\n{}", "", ErrProtocol},
		"error that is none":    {"HTTP/1.1 404 Not Found\r\n\r\nnope", "", ErrProtocol},
		"nothing":               {"", "", ErrUnreachable},
		"half a header":         {"HTTP/1.1 200 O", "", ErrUnreachable},
		"less than it promised": {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "", ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := serveRaw(t, func(c net.Conn) {
				_, err := io.WriteString(c, test.answer)
				for err == nil && test.endless != "" {
					_, err = io.WriteString(c, test.endless)
				}
			})
			if _, err := New(socket).Locks(t.Context()); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	ended := make(chan struct{})
	socket := serveRaw(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096)) // until the client hangs up
		close(ended)
	})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, io.ErrNoProgress)
	defer cancel()
	if err := New(socket).Remove(ctx, "x", RemoveOptions{}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("error %v, want the cause", err)
	}
	wait(t, ended, "the server to see that")
	socket = serveRaw(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) })
	if err := New(socket).callWithin(t.Context(), 50*time.Millisecond, "GET", "/", nil, nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("error %v, want ErrUnreachable", err)
	}
}

// TestCall_PathWithALineBreak_IsNoSecondRequest and reaches no server.
func TestCall_PathWithALineBreak_IsNoSecondRequest(t *testing.T) {
	err := New("/nonesuch").Call(t.Context(), "GET", "/v1/value?name=x HTTP/1.1\r\n\r\nPOST /v1/remove", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "write the request: ") || errors.Is(err, ErrUnreachable) {
		t.Errorf("error %v", err)
	}
}

// TestCallLimit_OwnDeadline_HasNone: a call that waits for another host may take a minute.
func TestCallLimit_OwnDeadline_HasNone(t *testing.T) {
	if got := callLimit(t.Context()); got != callTimeout {
		t.Errorf("%v without a deadline, want %v", got, callTimeout)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if got := callLimit(ctx); got != 0 {
		t.Errorf("%v with a deadline, want none", got)
	}
}
