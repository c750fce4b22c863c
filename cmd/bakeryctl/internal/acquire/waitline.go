package acquire

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// waitLine shows at a terminal what a wait is for, after WaitSilent, and writes warnings wherever
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

// WaitSilent is how long a wait is before it is shown.
const WaitSilent = time.Second

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
	if l.isOver(WaitSilent) {
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
			// The name is cut so that the line fits where it can be overwritten.
			shown = fmt.Sprintf("bakeryctl: waiting for %.40q: %d ahead", l.name, ahead)
			fmt.Fprint(l.out, clear+shown)
		case warning := <-l.warnings:
			for !term.Writable(l.out) {
				if l.isOver(WaitSilent) {
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
