package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/layout"
)

// ToyCommand is the hidden command of the child process that is the toy.
const ToyCommand = "bench-toy"

// toyTimes are the times of the toy: a plain socket server and a plain client, in two processes,
// that pass on a lock in memory. Lock and unlock are two round trips, which cost the four wake-ups of
// the machine that a lock through any socket costs.
type toyTimes struct {
	*dist                  // of lock and unlock by one client; nil: not measured
	HandOffPerSecond int64 `json:"handoff_per_second,omitzero"` // between handOffClients; 0: not measured
}

// toyServer is the server of the toy: a goroutine per connection, and a queue per lock.
type toyServer struct {
	mu     sync.Mutex
	queues map[string][]chan struct{} // the first one is that of the holder
}

// ServeToy serves the toy at socket until stdin ends. It writes to stdout when it serves.
func ServeToy(socket string, stdin io.Reader, stdout io.Writer) error {
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return &cli.Failure{Code: cli.ExitUnavailable, Err: err}
	}
	s := &toyServer{queues: map[string][]chan struct{}{}}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	_, _ = io.WriteString(stdout, "serving\n")
	_, _ = io.Copy(io.Discard, stdin)
	return ln.Close()
}

func (s *toyServer) serve(conn net.Conn) {
	defer conn.Close()
	for requests := bufio.NewScanner(conn); requests.Scan(); {
		answer := "granted\n"
		switch verb, name, _ := strings.Cut(requests.Text(), " "); verb {
		case "lock":
			s.lock(name)
		case "unlock":
			s.unlock(name)
			answer = "released\n"
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

func (s *toyServer) lock(name string) {
	turn := make(chan struct{})
	s.mu.Lock()
	s.queues[name] = append(s.queues[name], turn)
	free := len(s.queues[name]) == 1
	s.mu.Unlock()
	if !free {
		<-turn
	}
}

func (s *toyServer) unlock(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues[name] = s.queues[name][1:]
	if waiting := s.queues[name]; len(waiting) > 0 {
		close(waiting[0])
	}
}

// toyClient is the client of the toy. It reuses connections.
type toyClient struct {
	socket string
	mu     sync.Mutex
	idle   []*toyConn
}

type toyConn struct {
	net.Conn
	answers *bufio.Reader
}

// lock acquires the toy's lock. The end of the server ends the wait; that of ctx does not.
func (c *toyClient) lock(ctx context.Context) (layout.Ticket, func() error, error) {
	conn, err := c.connection()
	if err == nil {
		err = conn.ask("lock bench\n", "granted\n")
	}
	switch {
	case ctx.Err() != nil: // it also ends the server
		return 0, nil, context.Cause(ctx)
	case err != nil:
		return 0, nil, err
	}
	return 0, func() error {
		if err := conn.ask("unlock bench\n", "released\n"); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle = append(c.idle, conn)
		return nil
	}, nil
}

func (c *toyClient) connection() (*toyConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.idle); n > 0 {
		conn := c.idle[n-1]
		c.idle = c.idle[:n-1]
		return conn, nil
	}
	conn, err := net.DialTimeout("unix", c.socket, time.Second)
	if err != nil {
		return nil, err
	}
	return &toyConn{conn, bufio.NewReader(conn)}, nil
}

func (c *toyConn) ask(request, want string) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	answer, err := c.answers.ReadString('\n')
	if err == nil && answer != want {
		err = fmt.Errorf("the toy answered %q, want %q", answer, want)
	}
	return err
}
