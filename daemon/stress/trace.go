package stress

import (
	"fmt"
	"io"
	"sync"

	"github.com/bakeryd/bakeryd/layout"
)

// trace prints the steps of the workers, line by line.
type trace struct {
	out io.Writer

	mu     sync.Mutex // guards the fields below, and out
	inside int        // the worker that is inside, or 0
	holds  grant      // its grant
}

func (t *trace) say(worker int, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line(worker, format, args...)
}

func (t *trace) line(worker int, format string, args ...any) {
	fmt.Fprintf(t.out, "worker %d %s\n", worker, fmt.Sprintf(format, args...))
}

func (t *trace) enters(worker int, g grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inside, t.holds = worker, g
	t.line(worker, "(ticket %d) enters", g.ticket.Number())
}

func (t *trace) leaves(worker int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line(worker, "(ticket %d) leaves", t.holds.ticket.Number())
	t.inside = 0
}

// onWaiting returns a callback that prints the wait of a worker, from 0, in a daemon.
func (r *run) onWaiting(worker int) func(ahead, queued int) {
	if r.trace == nil {
		return nil
	}
	told := 0
	return func(ahead, _ int) {
		if ahead != told && ahead > 0 {
			r.trace.waits(worker+1, ahead)
		}
		told = ahead
	}
}

// waits prints a wait in a daemon, which reports only the number of clients ahead.
func (t *trace) waits(worker, ahead int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside == 0 || t.inside == worker {
		t.line(worker, "waits: %d ahead", ahead)
		return
	}
	t.line(worker, "waits: %d ahead, worker %d (ticket %d) is inside", ahead, t.inside, t.holds.ticket.Number())
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
