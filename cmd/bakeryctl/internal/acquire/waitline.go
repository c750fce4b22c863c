package acquire

import (
	"fmt"
	"io"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// waitLine shows on a terminal what this process waits for, after WaitSilent, and writes warnings
// to any out. It writes from its own goroutine: a stopped terminal must not delay the reading of
// the grant, because the lease counts from there.
type waitLine struct {
	out      io.Writer
	name     string
	places   chan int      // the latest number of waiters ahead; capacity 1
	warnings chan string   // capacity 1
	done     chan struct{} // closed when the wait has ended
	removed  chan struct{} // closed when the line is removed
}

// WaitSilent is the time before a wait is shown.
const WaitSilent = time.Second

// startWaitLine returns a running waitLine. It shows only warnings unless out is a terminal.
func startWaitLine(out io.Writer, name string) *waitLine {
	l := &waitLine{out: out, name: name, places: make(chan int, 1), warnings: make(chan string, 1),
		done: make(chan struct{}), removed: make(chan struct{})}
	go l.write()
	return l
}

// update sets the number of waiters ahead. It must be called from one goroutine.
func (l *waitLine) update(ahead int) {
	select {
	case <-l.places: // not read yet
	default:
	}
	l.places <- ahead
}

// warn writes a warning. It drops the warning if another one is pending, and does not block.
func (l *waitLine) warn(message string) {
	select {
	case l.warnings <- message:
	default:
	}
}

// stop removes the line. It waits at most clearWithin for a stopped terminal.
func (l *waitLine) stop() {
	close(l.done)
	closes(l.removed, clearWithin)
}

// clearWithin bounds the wait for a terminal, because other clients wait for the granted lock.
const clearWithin = 20 * time.Millisecond

func (l *waitLine) write() {
	defer close(l.removed)
	if closes(l.done, WaitSilent) {
		return
	}
	places, clear := l.places, "\r\x1b[K"
	if !term.Is(l.out) {
		places, clear = nil, ""
	}
	shown := ""
	for {
		select {
		case <-l.done:
			if shown != "" && term.Writable(l.out) {
				fmt.Fprint(l.out, clear)
			}
			return
		case ahead := <-places:
			if !term.Writable(l.out) {
				continue
			}
			// The line must fit into one row to be overwritten, so the name is cut.
			shown = fmt.Sprintf("bakeryctl: waiting for %.40q: %d ahead", l.name, ahead)
			fmt.Fprint(l.out, clear+shown)
		case warning := <-l.warnings:
			for !term.Writable(l.out) {
				if closes(l.done, WaitSilent) {
					return // the line cannot be cleared and stays
				}
			}
			fmt.Fprintf(l.out, "%sbakeryctl: warning: %s\n%s", clear, text.PrintableLine(warning), shown)
		}
	}
}

// closes blocks until c is closed or limit has passed, and reports whether c is closed.
func closes(c <-chan struct{}, limit time.Duration) bool {
	select {
	case <-c:
		return true
	case <-time.After(limit):
		return false
	}
}
