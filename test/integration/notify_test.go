//go:build integration

package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptNotify listens until the script ends, and writes what it is told, line by line, to a file.
func scriptNotify(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: notify VAR FILE")
	}
	out, err := os.Create(ts.MkAbs(args[1]))
	ts.Check(err)
	dir, err := os.MkdirTemp("", "n") // a socket's path must be short
	ts.Check(err)
	socket := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	ts.Check(err)
	ts.Setenv(args[0], socket)
	written := make(chan error, 1)
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := conn.Read(buf)
			if err == nil {
				_, err = fmt.Fprintf(out, "%s\n", buf[:n])
			}
			if err != nil {
				written <- err
				return
			}
		}
	}()
	ts.Defer(func() {
		_ = conn.Close() // which ends the goroutine
		<-written
		_ = out.Close()
		_ = os.RemoveAll(dir)
	})
}
