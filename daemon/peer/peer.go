// Package peer asks the kernel about the process at the other end of a Unix socket.
package peer

import (
	"errors"
	"io"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Listening reports whether the client reads. If only a command holds the connection, nothing reads, and a write would
// block.
func Listening(conn *net.UnixConn) bool {
	queued := 0
	_ = Control(conn, func(fd int) { queued, _ = unix.IoctlGetInt(fd, unix.SIOCOUTQ) })
	return queued < 4096
}

// Queued returns how many bytes of the client can be read.
func Queued(conn *net.UnixConn) (n int) {
	_ = Control(conn, func(fd int) { n, _ = unix.IoctlGetInt(fd, unix.TIOCINQ) })
	return n
}

// HungUp reports whether the last descriptor of the client's end is closed.
func HungUp(conn *net.UnixConn) bool {
	hup := false
	err := Control(conn, func(fd int) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(p, 0); err == nil && n > 0 {
			hup = p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLRDHUP) != 0
		}
	})
	return hup || err != nil // this end is closed
}

// Credentials returns the process that has connected, 0 if it has no number here, and its user and
// group, -1 if the connection is closed.
func Credentials(conn *net.UnixConn) (pid, uid, gid int) {
	uid, gid = -1, -1
	_ = Control(conn, func(fd int) {
		if c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid, uid, gid = int(c.Pid), int(c.Uid), int(c.Gid)
		}
	})
	return pid, uid, gid
}

// Control calls f with the descriptor of a connection.
func Control(conn *net.UnixConn, f func(fd int)) error {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
	return err
}

// Groups returns the supplementary groups of the peer. Kernels before 4.13 do not report them.
func Groups(conn *net.UnixConn) (groups []int) {
	_ = Control(conn, func(fd int) {
		ids := make([]uint32, 64)
		for range 2 {
			size := uint32(len(ids) * 4)
			_, _, no := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
				uintptr(unsafe.Pointer(&ids[0])), uintptr(unsafe.Pointer(&size)), 0)
			if no == unix.ERANGE {
				ids = make([]uint32, size/4)
				continue
			}
			if no == 0 {
				for _, id := range ids[:size/4] {
					groups = append(groups, int(id))
				}
			}
			return
		}
	})
	return groups
}

// Conn returns the connection of a descriptor, which it closes; nil if it has none.
func Conn(f *os.File) *net.UnixConn {
	if f == nil {
		return nil
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
	}
	return conn
}

// Peek returns a whole message, which stays in the socket; all that is there if the client sends no more, or if it is longer
// than most. length returns the length of the message that begins with some bytes. It returns io.EOF at the end.
func Peek(conn *net.UnixConn, most int, length func(start []byte) int) (text []byte, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, most)
	failed := raw.Read(func(fd uintptr) bool {
		var n int
		n, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return false
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		text = buf[:max(n, 0)]
		want := length(text)
		if err == nil && n < want && want <= most && !sendsNoMore(fd) {
			return false
		}
		text = text[:min(len(text), want)]
		return true
	})
	if failed != nil {
		err = failed
	}
	return text, err
}

func sendsNoMore(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0
}
