// Package peer asks the kernel about the process at the other end of a Unix socket.
package peer

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/process"
)

// Listening reports whether the client reads. If only a command holds the connection, nothing reads, and a write would
// block.
func Listening(conn *net.UnixConn) bool {
	queued := 0
	_ = Control(conn, func(fd int) { queued, _ = unix.IoctlGetInt(fd, unix.SIOCOUTQ) })
	return queued < 4096
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

// Of returns the process that has connected, and its user; -1 if the connection is closed.
func Of(conn *net.UnixConn) (id process.ID, uid int) {
	pid, uid := credentials(conn)
	if uid >= 0 {
		id, _ = process.Of(pid)
	}
	return id, uid
}

// UserOf returns the user that has connected; -1 if the connection is closed.
func UserOf(conn *net.UnixConn) int {
	_, uid := credentials(conn)
	return uid
}

func credentials(conn *net.UnixConn) (pid, uid int) {
	uid = -1
	_ = Control(conn, func(fd int) {
		if c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid, uid = int(c.Pid), int(c.Uid)
		}
	})
	return pid, uid
}

// Control calls f with the descriptor of a connection.
func Control(conn *net.UnixConn, f func(fd int)) error {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
	return err
}
