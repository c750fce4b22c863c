package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// waitLine tells somebody at a terminal what a wait is for, once it has lasted a while. It writes from a
// goroutine of its own: a terminal that stands still must not hold up the reading of the grant, from which
// the lease counts.
type waitLine struct {
	out    io.Writer
	name   string
	places chan int // the latest number of those ahead; takes one
	done   chan struct{}
	writer sync.WaitGroup
}

// startWaitLine returns a line that stays silent unless out is a terminal.
func startWaitLine(out io.Writer, name string) *waitLine {
	l := &waitLine{out: out, name: name, places: make(chan int, 1), done: make(chan struct{})}
	if isTerminal(out) {
		l.writer.Go(l.write)
	}
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

// stop removes the line.
func (l *waitLine) stop() {
	close(l.done)
	l.writer.Wait()
}

func (l *waitLine) write() {
	select {
	case <-l.done:
		return
	case <-time.After(time.Second):
	}
	const clear = "\r\x1b[K"
	shown := false
	for {
		select {
		case <-l.done:
			if shown {
				fmt.Fprint(l.out, clear)
			}
			return
		case ahead := <-l.places:
			// The name is cut so that the line fits where it can be overwritten.
			fmt.Fprintf(l.out, clear+"bakeryctl: waiting for %.40q: %d ahead", l.name, ahead)
			shown = true
		}
	}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	terminal := false
	err = raw.Control(func(fd uintptr) {
		_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		terminal = err == nil
	})
	return err == nil && terminal
}
