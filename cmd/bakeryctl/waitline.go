package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/text"
)

// waitLine shows at a terminal what a wait is for, after waitSilent, and writes warnings wherever
// out leads. It writes from a goroutine of its own: a terminal that stands still must not delay the
// reading of the grant, from which the lease counts.
type waitLine struct {
	out      io.Writer
	name     string
	places   chan int    // the latest number of those ahead; takes one
	warnings chan string // takes one
	done     chan struct{}
	writer   sync.WaitGroup
}

// waitSilent is how long a wait is before it is shown.
const waitSilent = time.Second

// startWaitLine returns a line that shows nothing but warnings unless out is a terminal.
func startWaitLine(out io.Writer, name string) *waitLine {
	l := &waitLine{out: out, name: name, places: make(chan int, 1), warnings: make(chan string, 1), done: make(chan struct{})}
	l.writer.Go(l.write)
	return l
}

// update may be called from one goroutine.
func (l *waitLine) update(ahead, _ int) {
	select {
	case <-l.places: // nobody has read it yet
	default:
	}
	l.places <- ahead
}

// warn writes a warning, unless the one before is not written yet. It does not block.
func (l *waitLine) warn(message string) {
	select {
	case l.warnings <- message:
	default:
	}
}

// stop removes the line. It does not wait for a terminal that stands still.
func (l *waitLine) stop() {
	close(l.done)
	removed := make(chan struct{})
	go func() {
		l.writer.Wait()
		close(removed)
	}()
	select {
	case <-removed:
	case <-time.After(clearWithin):
	}
}

// clearWithin bounds the wait for a terminal: others wait for the lock that was granted.
const clearWithin = 20 * time.Millisecond

func (l *waitLine) write() {
	if l.isOver(waitSilent) {
		return
	}
	places, clear := l.places, "\r\x1b[K"
	if !isTerminal(l.out) {
		places, clear = nil, ""
	}
	shown := ""
	for {
		select {
		case <-l.done:
			if shown != "" && writable(l.out) {
				fmt.Fprint(l.out, clear)
			}
			return
		case ahead := <-places:
			if !writable(l.out) {
				continue
			}
			// The name is cut so that the line fits where it can be overwritten.
			shown = fmt.Sprintf("bakeryctl: waiting for %.40q: %d ahead", l.name, ahead)
			fmt.Fprint(l.out, clear+shown)
		case warning := <-l.warnings:
			for !writable(l.out) {
				if l.isOver(waitSilent) {
					return // the line stays, as it does where it cannot be cleared
				}
			}
			fmt.Fprintf(l.out, "%sbakeryctl: warning: %s\n%s", clear, text.PrintableLine(warning), shown)
		}
	}
}

// isOver blocks until the wait is over or a time has passed, and reports whether the wait is over.
func (l *waitLine) isOver(limit time.Duration) bool {
	select {
	case <-l.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// writable reports whether a write to out neither waits for a terminal that stands still (Ctrl-S)
// nor stops this process.
func writable(out io.Writer) bool {
	if stopsWriter(out) {
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

// stopsWriter reports whether out is a terminal that stops a process of the background which writes
// to it (stty tostop), and this is one.
func stopsWriter(out io.Writer) (stops bool) {
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

func isTerminal(out io.Writer) bool { return ofTerminal(out, func(int) {}) }

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
