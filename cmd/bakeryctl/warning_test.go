package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRun_OlderBakerydWarns_PrintsItOnce: whatever the number of calls, and whatever is in it.
func TestRun_OlderBakerydWarns_PrintsItOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	require.NoError(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warning", `299 - "ignores \"colour\" \x1b[2J"`)
		fmt.Fprint(w, `{"hosts": [{"id": 3, "name": "db3", "health": "silent", "incarnation": "0000000000000003"}], "outcome": "dead"}`)
	})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	defer func() { s.Close(); <-done }()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"evict", "3", "--yes", "--socket", socket}, &app{stdout: &stdout, stderr: &stderr})
	require.Equal(t, 0, code, stderr.String())
	require.Equal(t, "host 3 (db3) declared dead\n", stdout.String())
	require.Equal(t, 1, bytes.Count(stderr.Bytes(), []byte("bakeryctl: warning: ")), stderr.String())
	require.Contains(t, stderr.String(), `bakeryctl: warning: "ignores \"colour\" \x1b[2J"`+"\n")
}
