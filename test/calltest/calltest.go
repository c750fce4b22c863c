// Package calltest has a bakeryd for tests of what makes calls of one.
package calltest

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Server is a bakeryd that gives every request the same answer.
type Server struct {
	Socket string
	Asked  chan string // gets what was asked for
}

// Serve starts a server that answers with status and body until the test ends.
func Serve(t *testing.T, status int, body string) *Server {
	t.Helper()
	s := &Server{Asked: make(chan string, 10)}
	s.Socket = ServeBy(t, func(w http.ResponseWriter, r *http.Request) {
		s.Asked <- r.Method + " " + r.URL.String()
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
	return s
}

// ServeBy starts a server that answers by h until the test ends, and returns its socket.
func ServeBy(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		_ = server.Serve(ln)
		close(done)
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return socket
}
