package daemon

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/process"
)

// What is asked of a client's connection beyond reading and writing.

// listening tells whether the client reads what it is sent. When only a
// command holds the connection nobody does, and a write would block.
func listening(conn *net.UnixConn) bool {
	queued := 0
	_ = control(conn, func(fd int) { queued, _ = unix.IoctlGetInt(fd, unix.SIOCOUTQ) })
	return queued < 4096
}

// hungUp tells whether the last descriptor of the client's end is closed.
func hungUp(conn *net.UnixConn) bool {
	hup := false
	err := control(conn, func(fd int) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(p, 0); err == nil && n > 0 {
			hup = p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLRDHUP) != 0
		}
	})
	return hup || err != nil // this end is closed
}

// peerOf is who has connected, and as which user; -1 if the connection is
// closed already.
func peerOf(conn *net.UnixConn) (id process.ID, uid int) {
	uid = -1
	_ = control(conn, func(fd int) {
		if c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(c.Uid)
			id, _ = process.Of(int(c.Pid))
		}
	})
	return id, uid
}

// userOf returns the user that has connected, -1 if that is not known.
func userOf(conn *net.UnixConn) (uid int) {
	uid = -1
	_ = control(conn, func(fd int) {
		if c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(c.Uid)
		}
	})
	return uid
}

func control(conn *net.UnixConn, f func(fd int)) error {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
	return err
}
