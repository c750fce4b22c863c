// Package rawio reads and writes Unix sockets with few wake-ups, which take longer than the work
// between them.
package rawio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Read reads a non-blocking descriptor; it returns EAGAIN if nothing is there. It is a raw system
// call, because it never blocks: for any other the scheduler wakes its monitor thread, which then
// runs every 20 us.
func Read(fd uintptr, p []byte) (int, error) { return read(fd, p) }

// Write writes to a non-blocking descriptor in the same way. It writes less than p if the buffer is
// full.
func Write(fd uintptr, p []byte) (int, error) { return write(fd, p) }

// Yield lets another thread have the processor.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) } // cannot fail

// Reader reads a connection that the runtime's poller knows, by [Read].
type Reader struct {
	conn syscall.RawConn
	read func(fd uintptr) (done bool) // reads into p, and sets n and err
	p    []byte
	n    int
	err  error
}

// NewReader returns a reader of a connection.
func NewReader(conn syscall.Conn) *Reader {
	raw, _ := conn.SyscallConn() // fails only for a connection that was never made
	r := &Reader{conn: raw}
	r.read = func(fd uintptr) bool {
		r.n, r.err = Read(fd, r.p)
		return r.err != unix.EAGAIN
	}
	return r
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	r.p = p
	err := r.conn.Read(r.read)
	switch {
	case err != nil:
		return 0, err
	case r.err == nil && r.n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return r.n, os.NewSyscallError("read", r.err)
}

// Arrivals returns a file that is readable while fd is. The runtime's poller waits for it in place
// of fd: a socket itself, which the poller also watches for room to write, wakes it at every read
// of the other end.
func Arrivals(fd uintptr) (*os.File, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll instance: %w", err)
	}
	err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	err = errors.Join(err, unix.SetNonblock(epoll, true)) // for os.NewFile: the poller is to know it
	f := os.NewFile(uintptr(epoll), "epoll")
	if err != nil {
		_ = f.Close() // the first error is the one to report
		return nil, fmt.Errorf("watch a connection: %w", err)
	}
	return f, nil
}
