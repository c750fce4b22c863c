package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a connection to bakeryd. One goroutine at a time reads it, and one writes.
//
// The runtime's poller does not know the descriptor at first. A wake-up by the poller takes a good
// part of a disk's latency, and comes in addition to the wake-up of a thread that waits in the
// kernel. For long waits, of which there may be many, the poller gets a duplicate.
type socket struct {
	file        *os.File // of a non-blocking descriptor
	kernelReads int      // consecutive reads that could wait in the kernel; owned by the reader

	mu           sync.Mutex // guards the fields below
	polled       *os.File   // the duplicate; nil if none
	closed       bool
	readsExpired bool // reads end immediately
}

const (
	// shortWait is how long a read waits in the kernel, in milliseconds: longer than most disks
	// take.
	shortWait = 2

	// After maxKernelReads consecutive reads that waited in the kernel the duplicate is closed.
	maxKernelReads = 4

	// connectRetry is how long a connection is retried, every connectPause, while bakeryd's backlog
	// is full.
	connectRetry = 5 * time.Second
	connectPause = 5 * time.Millisecond
)

// waiting counts the goroutines of this process that wait for an answer. A single one may wait in
// the kernel, which occupies a thread and may keep a processor from other goroutines for shortWait.
var waiting atomic.Int32

func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	// EAGAIN: bakeryd's backlog is full.
	for give := time.Now().Add(connectRetry); errors.Is(err, unix.EAGAIN) && ctx.Err() == nil && time.Now().Before(give); {
		time.Sleep(connectPause)
		conn, err = d.DialContext(ctx, "unix", path)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return conn.(*net.UnixConn), nil
}

func dialSocket(ctx context.Context, path string) (*socket, error) {
	conn, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // the duplicate stays open
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	var s socket
	var dupErr error
	err = raw.Control(func(fd uintptr) { s.file, dupErr = unpolled(fd) })
	if err = errors.Join(err, dupErr); err != nil {
		return nil, fmt.Errorf("duplicate the connection: %w", err)
	}
	return &s, nil
}

// unpolled duplicates fd as a file that the poller does not know: os.NewFile does not register a
// blocking descriptor.
func unpolled(fd uintptr) (*os.File, error) {
	dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.SetNonblock(dup, false)
	f := os.NewFile(uintptr(dup), "bakeryd")
	if err = errors.Join(err, unix.SetNonblock(dup, true)); err != nil {
		_ = f.Close() // the first error is the one to report
		return nil, err
	}
	return f, nil
}

// Read waits without limit.
func (s *socket) Read(p []byte) (int, error) {
	s.kernelReads = 0
	f, err := s.poll()
	if err != nil {
		return 0, err
	}
	return f.Read(p)
}

// readSoon reads an answer that is expected soon.
func (s *socket) readSoon(p []byte) (int, error) {
	defer waiting.Add(-1)
	if waiting.Add(1) > 1 || runtime.GOMAXPROCS(0) == 1 || !s.wait() {
		return s.Read(p)
	}
	if s.kernelReads++; s.kernelReads == maxKernelReads {
		s.unpoll()
	}
	return s.file.Read(p)
}

// wait waits in the kernel for at most shortWait. It returns false if nothing came.
func (s *socket) wait() (ready bool) {
	_ = s.Control(func(fd uintptr) {
		polled := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(polled[:], shortWait)
		ready = err == nil && n > 0
	})
	return ready
}

// poll returns the file that the poller knows.
func (s *socket) poll() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if s.polled == nil {
		dup, dupErr := -1, error(nil)
		err := s.Control(func(fd uintptr) { dup, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
		if err = errors.Join(err, dupErr); err != nil {
			return nil, err
		}
		s.polled = os.NewFile(uintptr(dup), "bakeryd")
		if s.readsExpired {
			_ = s.polled.SetReadDeadline(time.Unix(1, 0)) // cannot fail: the file was just opened
		}
	}
	return s.polled, nil
}

func (s *socket) unpoll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polled != nil {
		_ = s.polled.Close() // the original stays open
		s.polled = nil
	}
}

func (s *socket) Write(p []byte) (int, error) { return s.file.Write(p) }

// ExpireReads ends the current and all later reads, within shortWait.
func (s *socket) ExpireReads() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readsExpired = true
	if s.polled != nil {
		_ = s.polled.SetReadDeadline(time.Unix(1, 0)) // fails only if closed
	}
}

// Limit sets a deadline for reads.
func (s *socket) Limit(d time.Duration) {
	if f, err := s.poll(); err == nil {
		_ = f.SetReadDeadline(time.Now().Add(d)) // fails only if closed
	}
}

// Close closes the connection, which ends every read within shortWait.
func (s *socket) Close() error {
	s.mu.Lock()
	s.closed = true
	polled := s.polled
	s.polled = nil
	s.mu.Unlock()
	if polled != nil {
		_ = polled.Close()
	}
	return s.file.Close()
}

// Control calls f with the descriptor.
func (s *socket) Control(f func(fd uintptr)) error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(f)
}
