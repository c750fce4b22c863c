// Package term knows terminals: whether a file is one, how wide it is, and whether a write to a file
// would block or stop this process. It imports nothing of the project.
package term

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Writable reports whether a write of less than PIPE_BUF bytes to out neither blocks, as on a stopped
// terminal (Ctrl-S) or a full pipe, nor stops or ends this process.
func Writable(out io.Writer) bool {
	if StopsWriter(out) {
		return false
	}
	free := true
	ofFile(out, func(fd int) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(p, 0)
		free = err == nil && n == 1 && p[0].Revents == unix.POLLOUT // not POLLERR, which a write answers by SIGPIPE
	})
	return free
}

// StopsWriter reports whether a write to out would stop this process: out is a terminal with tostop
// set (stty), and this process is in the background.
func StopsWriter(out io.Writer) (stops bool) {
	ofTerminal(out, func(fd int) {
		settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil || settings.Lflag&unix.TOSTOP == 0 {
			return
		}
		group, err := unix.IoctlGetUint32(fd, unix.TIOCGPGRP)
		stops = err == nil && int(group) != unix.Getpgrp()
	})
	return stops
}

// Is reports whether out is a terminal.
func Is(out io.Writer) bool { return ofTerminal(out, func(int) {}) }

// ofTerminal calls f with the descriptor of out if that is a terminal, and reports whether it is.
func ofTerminal(out io.Writer, f func(fd int)) (is bool) {
	ofFile(out, func(fd int) {
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			is = true
			f(fd)
		}
	})
	return is
}

// ofFile calls f with the descriptor of out if that is an open file.
func ofFile(out io.Writer, f func(fd int)) {
	file, ok := out.(*os.File)
	if !ok {
		return
	}
	if raw, err := file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) }) // fails if it is closed
	}
}

// Columns returns the width of the terminal out. It returns otherwise if out is no terminal or its
// width is unknown.
func Columns(out io.Writer, otherwise int) int {
	ofTerminal(out, func(fd int) {
		if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			otherwise = int(size.Col)
		}
	})
	return otherwise
}
