package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/rawio"
)

// socket is a connection to bakeryd. One goroutine at a time reads it, and one writes.
//
// The runtime's poller does not know the descriptor. A wake-up by the poller takes a good part of a
// disk's latency, and comes in addition to the wake-up of a thread that waits in the kernel. For
// long waits, of which there may be many, the poller gets to know arrivals.
type socket struct {
	file        *os.File // of a non-blocking descriptor
	kernelReads int      // consecutive reads that could wait in the kernel; owned by the reader
	quick       bool     // the last answer came within spin; owned by the reader

	mu           sync.Mutex // guards the fields below
	arrivals     *os.File   // is readable while the connection is; nil if not needed
	closed       bool
	readsExpired bool // reads end immediately
}

const (
	// shortWait is how long a read waits in the kernel, in milliseconds: longer than most disks
	// take.
	shortWait = 2

	// spin is how long a read first tries again and again, if the answer before came within that time:
	// to sleep and to be woken would take as long. It yields the processor to any other thread.
	spin = 50 * time.Microsecond

	// After maxKernelReads consecutive reads that waited in the kernel, arrivals is closed.
	maxKernelReads = 4

	// connectRetry is how long a connection is retried, every connectPause, while bakeryd's backlog
	// is full.
	connectRetry = 5 * time.Second
	connectPause = 5 * time.Millisecond
)

// waiting counts the goroutines of this process that wait for an answer. A single one may spin, or wait
// in the kernel, which occupies a thread and may keep a processor from other goroutines for shortWait.
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
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var failed error
	err = raw.Read(func(uintptr) bool {
		n, failed = s.read(p)
		return !errors.Is(failed, unix.EAGAIN)
	})
	switch {
	case err == nil:
		return n, failed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, err
	}
	return 0, net.ErrClosed
}

// read reads what is there. It returns EAGAIN if nothing is, and io.EOF at the end.
func (s *socket) read(p []byte) (n int, err error) {
	closed := s.Control(func(fd uintptr) { n, err = rawio.Read(fd, p) })
	switch {
	case closed != nil:
		return 0, net.ErrClosed
	case err == unix.EAGAIN:
		return 0, err
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// readSoon reads an answer that is expected soon.
func (s *socket) readSoon(p []byte) (n int, err error) {
	begun := time.Now()
	defer waiting.Add(-1)
	if waiting.Add(1) > 1 || runtime.GOMAXPROCS(0) == 1 {
		return s.Read(p)
	}
	err = unix.EAGAIN
	for s.quick && errors.Is(err, unix.EAGAIN) && time.Since(begun) < spin {
		rawio.Yield()
		n, err = s.read(p)
	}
	if errors.Is(err, unix.EAGAIN) {
		if s.quick = false; !s.wait() {
			return s.Read(p)
		}
		n, err = s.read(p)
	}
	s.quick = time.Since(begun) < spin
	if s.kernelReads++; s.kernelReads == maxKernelReads {
		s.unpoll()
	}
	return n, err
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

// poll returns the file by which the poller knows of arrivals.
func (s *socket) poll() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if s.arrivals == nil {
		var arrivals *os.File
		var failed error
		err := s.Control(func(fd uintptr) { arrivals, failed = rawio.Arrivals(fd) })
		if err = cmp.Or(err, failed); err != nil {
			return nil, err
		}
		s.arrivals = arrivals
		if s.readsExpired {
			_ = arrivals.SetReadDeadline(time.Unix(1, 0)) // cannot fail: the file was just opened
		}
	}
	return s.arrivals, nil
}

func (s *socket) unpoll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arrivals != nil {
		_ = s.arrivals.Close() // the connection stays open
		s.arrivals = nil
	}
}

// Write writes without blocking: bakeryd reads what its clients send.
func (s *socket) Write(p []byte) (n int, err error) {
	closed := s.Control(func(fd uintptr) { n, err = rawio.Write(fd, p) })
	switch {
	case closed != nil:
		return 0, net.ErrClosed
	case err == nil && n < len(p):
		err = unix.EAGAIN
	}
	return n, os.NewSyscallError("write", err)
}

// ExpireReads ends the current and all later reads, within shortWait.
func (s *socket) ExpireReads() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readsExpired = true
	if s.arrivals != nil {
		_ = s.arrivals.SetReadDeadline(time.Unix(1, 0)) // fails only if closed
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
	s.mu.Unlock()
	s.unpoll()
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

// hungUp reports whether the other side has closed the connection and everything it sent was read.
func (s *socket) hungUp() (is bool) {
	err := s.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		is = n == 0 && err == nil || hungUp(err)
	})
	return is || err != nil
}
