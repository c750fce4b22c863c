package client

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/test/clienttest"
)

// soon bounds every wait; a passing test is much faster.
const soon = 2 * time.Minute

var token = clienttest.Token

type exchange = clienttest.Exchange

// serve runs a fake bakeryd that answers every request with script, and returns its socket.
func serve(t *testing.T, script clienttest.Script) string {
	t.Helper()
	return clienttest.Serve(t, script).Socket
}

// serveRaw answers every connection with raw bytes.
func serveRaw(t *testing.T, answer func(c net.Conn)) string {
	t.Helper()
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
			if _, err := c.Read(make([]byte, 4096)); err == nil {
				answer(c)
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); wait(t, done, "the fake server to end") })
	return socket
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(soon):
		t.Fatalf("waited %v for %s", soon, what)
	}
}

// open reports whether the channel is not closed yet.
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
