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
	s := &Server{Socket: filepath.Join(t.TempDir(), "s"), Asked: make(chan string, 10)}
	ln, err := net.Listen("unix", s.Socket)
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Asked <- r.Method + " " + r.URL.String()
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})}
	done := make(chan struct{})
	go func() {
		_ = server.Serve(ln)
		close(done)
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return s
}
