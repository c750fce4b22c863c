package stress

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/bakeryd/bakeryd/layout"
)

// trace prints the steps of the workers, line by line.
type trace struct {
	mu     sync.Mutex // guards the fields below
	out    io.Writer
	inside string // the worker that is inside and its ticket; empty if none
}

func (t *trace) say(worker int, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "worker %d %s\n", worker, fmt.Sprintf(format, args...))
}

func (t *trace) enters(worker int, g grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inside = fmt.Sprintf("worker %d (ticket %d)", worker, g.ticket.Number())
	fmt.Fprintln(t.out, t.inside, "enters")
}

func (t *trace) leaves() {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(t.out, t.inside, "leaves")
	t.inside = ""
}

// onWaiting returns a callback that prints the wait of a worker in a daemon, which reports only the
// number of clients ahead.
func (r *run) onWaiting(worker int) func(ahead, queued int) {
	t, told := r.trace, 0
	if t == nil {
		return nil
	}
	return func(ahead, _ int) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if me := fmt.Sprintf("worker %d ", worker); ahead != told && ahead > 0 {
			inside := ""
			if t.inside != "" && !strings.HasPrefix(t.inside, me) {
				inside = ", " + t.inside + " is inside"
			}
			fmt.Fprintf(t.out, "%swaits: %d ahead%s\n", me, ahead, inside)
		}
		told = ahead
	}
}

// tell prints the next step of a worker in memory.
func (c *customer) tell(a action) {
	v, self := c.v, c.v.self+1
	switch a.kind {
	case write:
		switch w := a.word; {
		case w.gone():
			c.trace.say(self, "goes home")
		case v.gate.at:
			c.trace.say(self, "finds the gate closed and puts its number back to zero")
		case w.phase() == layout.Choosing:
			c.trace.say(self, "is choosing, with %d reserved", w.number())
		case w.phase() == layout.Waiting:
			c.trace.say(self, "takes ticket %d", w.number())
		}
	case poll:
		if v.gate.at {
			c.trace.say(self, "waits at the gate for worker %d (ticket %d, %v)", a.of+1, a.was.number(), a.was.phase())
			return
		}
		c.trace.say(self, "(ticket %d) waits for worker %d (ticket %d, %v)",
			v.shown.number(), a.of+1, a.was.number(), a.was.phase())
	}
}
