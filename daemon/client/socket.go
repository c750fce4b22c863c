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
// The runtime's poller does not know of it at first: being woken by that takes as long as a good part of a disk's answer,
// and it is woken beside whoever waits in the kernel, and once more when the other side reads. For long waits, of which
// there may be many, it gets to know of a duplicate.
type socket struct {
	file *os.File // of a descriptor that does not block
	wins int      // reads in a row that could wait in the kernel; the reader's alone

	mu     sync.Mutex // guards the rest
	polled *os.File   // the duplicate; nil: there is none
	closed bool
	hurry  bool // reads end at once
}

const (
	// shortWait is for how long a read waits in the kernel, in milliseconds: more than most disks take.
	shortWait = 2

	// enough reads in a row that wait in the kernel, and the duplicate is given back.
	enough = 4

	// crowded is for how long is tried to connect to a bakeryd that many others connect to, every crowdPause.
	crowded    = 5 * time.Second
	crowdPause = 5 * time.Millisecond
)

// waiting is how many goroutines of this process wait for an answer. One that is alone may wait in the kernel: that takes
// a thread, and keeps a processor from all others for a while.
var waiting atomic.Int32

func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	// So many want to connect at once that bakeryd is behind with accepting them.
	for give := time.Now().Add(crowded); errors.Is(err, unix.EAGAIN) && ctx.Err() == nil && time.Now().Before(give); {
		time.Sleep(crowdPause)
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
	defer func() { _ = conn.Close() }() // its duplicate goes on
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

// unpolled returns a file, of a duplicate, that the poller does not know of: when a file is made of a descriptor that
// blocks it is left alone.
func unpolled(fd uintptr) (*os.File, error) {
	dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.SetNonblock(dup, false)
	f := os.NewFile(uintptr(dup), "bakeryd")
	if err = errors.Join(err, unix.SetNonblock(dup, true)); err != nil {
		_ = f.Close() // the first error is the one to tell
		return nil, err
	}
	return f, nil
}

// Read reads what comes, however long it takes.
func (s *socket) Read(p []byte) (int, error) {
	s.wins = 0
	f, err := s.poll()
	if err != nil {
		return 0, err
	}
	return f.Read(p)
}

// readSoon reads what is to come soon.
func (s *socket) readSoon(p []byte) (int, error) {
	defer waiting.Add(-1)
	if waiting.Add(1) > 1 || runtime.GOMAXPROCS(0) == 1 || !s.wait() {
		return s.Read(p)
	}
	if s.wins++; s.wins == enough {
		s.unpoll()
	}
	return s.file.Read(p)
}

// wait waits in the kernel; false if that is to be done elsewhere.
func (s *socket) wait() (ready bool) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		polled := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(polled[:], shortWait)
		ready = err == nil && n > 0
	})
	return ready
}

// poll has the poller know.
func (s *socket) poll() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if s.polled == nil {
		raw, err := s.file.SyscallConn()
		if err != nil {
			return nil, err
		}
		dup, dupErr := -1, error(nil)
		err = raw.Control(func(fd uintptr) { dup, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
		if err = errors.Join(err, dupErr); err != nil {
			return nil, err
		}
		s.polled = os.NewFile(uintptr(dup), "bakeryd")
		if s.hurry {
			_ = s.polled.SetReadDeadline(time.Unix(1, 0)) // what has just been made is not closed
		}
	}
	return s.polled, nil
}

func (s *socket) unpoll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polled != nil {
		_ = s.polled.Close() // nothing is lost by that
		s.polled = nil
	}
}

func (s *socket) Write(p []byte) (int, error) { return s.file.Write(p) }

// Hurry ends every read, and all that follow, within a short wait.
func (s *socket) Hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurry = true
	if s.polled != nil {
		_ = s.polled.SetReadDeadline(time.Unix(1, 0)) // only a closed one refuses
	}
}

// Limit bounds what is read from now on.
func (s *socket) Limit(d time.Duration) {
	if f, err := s.poll(); err == nil {
		_ = f.SetReadDeadline(time.Now().Add(d)) // only a closed one refuses
	}
}

// Close ends every read within a short wait.
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
