package call

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/process"
)

// Wait calls f, which makes a call of the bakeryd at socket, with the [cli.Patience] of ctx. If bakeryd
// answers nothing at all until the limit, it ends the context of f, with [client.ErrNoAnswer] as the cause. A bakeryd
// that works on the call has no limit here. A stream that f opens may outlive Wait, but not ctx.
func Wait(ctx context.Context, socket string, f func(context.Context) error) error {
	asking, give := context.WithCancelCause(ctx)
	over := Watch(ctx, socket, Busy(socket), give)
	defer over()
	return f(asking)
}

// Busy returns the line about a bakeryd that answers other requests.
func Busy(socket string) string {
	return "bakeryd answers on " + socket + ", but has not finished this request, waiting"
}

// Watch begins to watch a call of the bakeryd at socket, until over is called or ctx ends. If the call
// takes longer than the notice of ctx, it prints a line: busy if bakeryd answers another request, unless that is
// empty, and otherwise that bakeryd does not answer. After the limit without an answer it calls give, unless that
// is nil.
func Watch(ctx context.Context, socket, busy string, give func(error)) (over func()) {
	p := cli.PatienceOf(ctx)
	ctx, over = context.WithCancel(ctx)
	if p.Notice > 0 {
		go watch(ctx, func() (net.Conn, error) { return net.Dial("unix", socket) }, socket, busy, p, give)
	}
	return over
}

func watch(ctx context.Context, dial func() (net.Conn, error), socket, busy string, p cli.Patience, give func(error)) {
	late := time.Now().Add(p.Notice)
	if !sleep(ctx, p.Notice*2/3) {
		return
	}
	conn, err := dial() // most calls are over: only a late one costs a connection
	if err != nil {
		return // the call returns its own error
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: bakeryd\r\nConnection: close\r\n\r\n") // reading returns the error
	if answers(conn, late) {
		if busy != "" && sleep(ctx, time.Until(late)) {
			p.Say(busy)
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	p.Say("bakeryd does not answer on " + socket + ", waiting")
	if give != nil && p.Limit > 0 && !answers(conn, late.Add(p.Limit-p.Notice)) && ctx.Err() == nil {
		give(silent(conn, socket, p.Limit))
	}
}

// sleep blocks for d, or returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// answers reports whether the server sends something, or closes the connection, until then.
func answers(conn net.Conn, until time.Time) bool {
	_ = conn.SetReadDeadline(until) // fails if it is closed
	_, err := conn.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed)
}

// silent returns the error of a server that has accepted a connection, or its kernel for it, and has
// answered nothing for the time.
func silent(conn net.Conn, socket string, limit time.Duration) error {
	server := ""
	if c, ok := conn.(*net.UnixConn); ok {
		if pid, _, _ := peer.Credentials(c); pid > 1 { // of another namespace it is 0; 1 may listen for others
			server = fmt.Sprintf(": its process %d %s", pid, condition(pid))
		}
	}
	return fmt.Errorf("%w on %s within %v%s", client.ErrNoAnswer, socket, limit, server)
}

// condition returns why a process does not answer.
func condition(pid int) string {
	if s, err := process.Read(pid); err == nil && s.State == 'T' {
		return "is stopped (kill -CONT continues it)"
	}
	if process.Killed(pid) {
		return "was killed, and waits for its IO to end"
	}
	return "hangs"
}
