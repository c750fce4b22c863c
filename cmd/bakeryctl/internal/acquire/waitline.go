package acquire

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// waitLine shows what this process waits for, after WaitSilent: once, or on a terminal until the wait
// ends. It also writes warnings. It writes from its own goroutine: a stopped terminal, or a bakeryd
// that does not answer, must not delay the reading of the grant, because the lease counts from there.
type waitLine struct {
	out      io.Writer
	name     string
	quiet    bool          // show only warnings
	blocker  Blocker       // nil: not known; set before the first update
	ahead    atomic.Int64  // number of waiters ahead; unknown if not known
	moved    chan struct{} // receives when ahead was set; capacity 1
	warnings chan string   // capacity 1
	done     chan struct{} // closed when the wait has ended
	removed  chan struct{} // closed when the line is removed
}

// WaitSilent is the time before a wait is shown.
const WaitSilent = time.Second

const (
	askTimeout = time.Second // for the blocker

	// The blocker of a line on a terminal is asked for again after askEvery, or after askMoved if the
	// number of waiters ahead has changed.
	askEvery = 5 * time.Second
	askMoved = 2 * time.Second
)

// unknown is a number of waiters that bakeryd has not sent.
const unknown = -1

// startWaitLine returns a running waitLine.
func startWaitLine(out io.Writer, name string, quiet bool) *waitLine {
	l := &waitLine{out: out, name: name, quiet: quiet, moved: make(chan struct{}, 1), warnings: make(chan string, 1),
		done: make(chan struct{}), removed: make(chan struct{})}
	l.ahead.Store(unknown)
	go l.write()
	return l
}

// update sets the number of waiters ahead.
func (l *waitLine) update(ahead int) {
	l.ahead.Store(int64(ahead))
	select {
	case l.moved <- struct{}{}:
	default: // not read yet
	}
}

// place returns the number of waiters ahead in words, "" if it is not known.
func (l *waitLine) place() string {
	ahead := l.ahead.Load()
	if ahead < 0 {
		return ""
	}
	return fmt.Sprintf("%d ahead", ahead)
}

// ask returns the blocker in words, "" if it is not known within askTimeout.
func (l *waitLine) ask(ctx context.Context) string {
	if l.blocker == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	words, _ := l.blocker(ctx, l.name) // without an answer the line says less
	return text.PrintableLine(words)
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
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := shownLine{waitLine: l, terminal: term.Is(l.out)}
	moved, answers := l.moved, make(chan string)
	if l.quiet {
		moved = nil
	}
	var asked time.Time        // zero before the first place
	var again <-chan time.Time // when to ask again; nil: not yet known
	ask := func() {
		asked, again = time.Now(), nil
		go func() {
			select {
			case answers <- l.ask(ctx):
			case <-ctx.Done():
			}
		}()
	}
	for {
		select {
		case <-l.done:
			s.remove()
			return
		case <-moved:
			s.blocker = "" // it may be the one that has gone
			if asked.IsZero() {
				ask()
			} else if s.terminal {
				again = time.After(askMoved - time.Since(asked))
				s.show()
			}
		case <-again:
			ask()
		case s.blocker = <-answers:
			if s.show() && !s.terminal {
				moved = nil // one line
			} else if again == nil {
				again = time.After(askEvery)
			}
		case warning := <-l.warnings:
			if !s.warn(warning) {
				return // the line cannot be removed and stays
			}
		}
	}
}

// shownLine is what the goroutine of a waitLine has written.
type shownLine struct {
	*waitLine
	terminal bool
	blocker  string // in words; empty if it is not known
	shown    string // on the terminal now
}

// clear returns what removes the line from a terminal.
func (s *shownLine) clear() string {
	if !s.terminal {
		return ""
	}
	return "\r\x1b[K"
}

// show writes the line. It returns false if that is not possible now.
func (s *shownLine) show() bool {
	if closed(s.done) || !term.Writable(s.out) {
		return false
	}
	if !s.terminal {
		fmt.Fprintf(s.out, "bakeryctl: %s\n", sentence(fmt.Sprintf("waiting for %q", s.name), s.blocker, s.place()))
		return true
	}
	// The line must fit into one row to be overwritten.
	line := fit(fmt.Sprintf("bakeryctl: waiting for %.40q", s.name), s.blocker, s.place(), term.Columns(s.out, 80)-1)
	if line != s.shown {
		s.shown = line
		fmt.Fprint(s.out, s.clear()+line)
	}
	return true
}

// remove removes the line from a terminal.
func (s *shownLine) remove() {
	if s.shown != "" && term.Writable(s.out) {
		fmt.Fprint(s.out, s.clear())
	}
}

// warn writes a warning above the line. It returns false if the wait ends before that is possible.
func (s *shownLine) warn(message string) bool {
	for !term.Writable(s.out) {
		if closes(s.done, WaitSilent) {
			return false
		}
	}
	fmt.Fprintf(s.out, "%sbakeryctl: warning: %s\n%s", s.clear(), text.PrintableLine(message), s.shown)
	return true
}

// sentence adds the blocker and the place, each of which may be empty, to what is printed.
func sentence(what, blocker, place string) string {
	switch {
	case blocker != "" && place != "":
		return what + ": " + blocker + "; " + place
	case blocker+place != "":
		return what + ": " + blocker + place
	}
	return what
}

// fit returns the sentence in at most the given number of columns. It cuts the blocker first.
func fit(what, blocker, place string, columns int) string {
	const cut = "..."
	if over := width(sentence(what, blocker, place)) - columns; over > 0 && blocker != "" {
		if blocker = strings.TrimRight(first(blocker, width(blocker)-over-len(cut)), ` "`); blocker != "" {
			blocker += cut
		}
	}
	return first(sentence(what, blocker, place), columns)
}

// first returns the beginning of a text that has at most the given number of columns.
func first(s string, columns int) string {
	for i, r := range s {
		if columns -= width(string(r)); columns < 0 {
			return s[:i]
		}
	}
	return s
}

// width returns the number of columns of a text, or more: a character that is not ASCII may take two.
func width(s string) (columns int) {
	for _, r := range s {
		if columns++; r >= 0x80 {
			columns++
		}
	}
	return columns
}

// closed reports whether c is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
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
