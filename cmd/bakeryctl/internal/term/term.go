// Package term knows terminals: whether a file is one, how wide it is, and whether a write to it
// would block or stop this process. It imports nothing of the project.
package term

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Writable reports whether a write to out neither blocks on a stopped terminal (Ctrl-S) nor stops
// this process.
func Writable(out io.Writer) bool {
	if StopsWriter(out) {
		return false
	}
	free := true
	ofTerminal(out, func(fd int) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(p, 0)
		free = err == nil && n == 1 && p[0].Revents&unix.POLLOUT != 0
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
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		if _, err := unix.IoctlGetTermios(int(fd), unix.TCGETS); err == nil {
			is = true
			f(int(fd))
		}
	})
	return err == nil && is
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
