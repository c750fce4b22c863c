// Package history checks that clients' calls of a lock have results that a correct lock can give.
// It knows what a lock promises; it never knows how the lock works, nor leases: a caller that knows
// of a lost lease ends the hold there. Begin with [Recorder], which records calls, and with
// [History.Check], for which porcupine searches an order of the calls that [state] allows.
package history

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/anishathalye/porcupine"

	"github.com/bakeryd/bakeryd/layout"
)

// Kind is what a client asks for.
type Kind int

// The kinds of calls.
const (
	Acquire Kind = iota
	Change       // of the mode of a hold
	Release      // when the client stops; the lock becomes free slightly later
)

// Call is one granted request, which took effect at some moment from Asked to Answered.
type Call struct {
	Kind            Kind
	Host            int
	Mode            layout.Mode // acquired, released or changed to
	From            layout.Mode // the mode before a change
	Token           layout.Ticket
	Asked, Answered time.Duration
}

// Unknown is the Answered time of a release that was not observed: its client was killed.
const Unknown = time.Duration(math.MaxInt64)

func (c Call) String() string {
	what := [...]string{"acquired", "changed to", "released"}[c.Kind]
	return fmt.Sprintf("%.6f to %.6f on host %d: %s %v, token %d", c.Asked.Seconds(), c.Answered.Seconds(), c.Host, what, c.Mode, c.Token)
}

// state is the state of a lock between two calls.
type state struct {
	permits int
	writers string // hosts of the exclusive holds, one rune each
	readers int
	wrote   layout.Ticket // greatest token of an exclusive hold
	last    layout.Ticket // greatest token of all holds
}

// step reports whether a lock may grant a call, and returns its state afterwards.
func (s state) step(c Call) (state, bool) {
	switch c.Kind {
	case Acquire:
		newer := c.Mode == layout.Shared || s.permits > 1 || c.Token > s.last
		next, free := s.enter(c.Host, c.Mode)
		next.note(c)
		return next, newer && free
	case Change:
		// A hold keeps its token: shared holds that were granted later may have greater ones.
		newer := c.Mode == layout.Shared || c.Token >= s.wrote
		next, was := s.leave(c.Host, c.From)
		next, free := next.enter(c.Host, c.Mode)
		next.note(c)
		return next, was && newer && free
	}
	return s.leave(c.Host, c.Mode)
}

func (s *state) note(c Call) {
	s.last = max(s.last, c.Token)
	if c.Mode == layout.Exclusive {
		s.wrote = max(s.wrote, c.Token)
	}
}

// enter adds a hold, and reports whether there was room for it: readers together, or one writer of
// each of as many hosts as there are permits.
func (s state) enter(host int, mode layout.Mode) (state, bool) {
	if mode == layout.Shared {
		s.readers++
		return s, s.writers == ""
	}
	free := s.readers == 0 && utf8.RuneCountInString(s.writers) < s.permits && !strings.ContainsRune(s.writers, rune(host))
	s.writers += string(rune(host))
	return s, free
}

// leave removes a hold, and reports whether there was one.
func (s state) leave(host int, mode layout.Mode) (state, bool) {
	if mode == layout.Shared {
		s.readers--
		return s, s.readers >= 0
	}
	before, after, was := strings.Cut(s.writers, string(rune(host)))
	s.writers = before + after
	return s, was
}

// Recorder records the calls of one lock. It is safe for concurrent use.
type Recorder struct {
	mu     sync.Mutex // guards the fields below
	calls  []Call     // since the last window
	inside int        // holds, after these calls
	begin  time.Duration
	first  state
}

// New returns a recorder of a free lock with a number of permits.
func New(permits int) *Recorder { return &Recorder{first: state{permits: permits}} }

// Add records a call.
func (r *Recorder) Add(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Asked, c.Answered = max(c.Asked, r.begin), max(c.Answered, r.begin)
	r.calls = append(r.calls, c)
	switch c.Kind {
	case Acquire:
		r.inside++
	case Release:
		r.inside--
	}
}

// Window cuts off the calls so far if they are at least least, and the lock is free after them;
// otherwise it returns nil. The caller must have added them in the order of their answers: a call
// asked before the cut and answered after it may count as asked after it.
func (r *Recorder) Window(least int) *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) < least || r.inside > 0 {
		return nil
	}
	return r.cut()
}

// Rest cuts off the remaining calls.
func (r *Recorder) Rest() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut()
}

// cut returns the calls so far. mu is held.
func (r *Recorder) cut() *History {
	h := &History{Calls: r.calls, first: r.first}
	for _, c := range r.calls {
		r.begin = max(r.begin, c.Answered+1)
		if c.Kind != Release {
			r.first.note(c)
		}
	}
	r.calls = nil
	return h
}

// History is the record of one lock from a moment when it was free.
type History struct {
	Calls []Call
	first state
}

// ErrUndecided is returned when a history could not be checked in the time given.
var ErrUndecided = errors.New("the history was not decided in time")

// Check returns an error if no correct lock can have granted the calls.
func (h *History) Check(timeout time.Duration) error {
	switch porcupine.CheckOperationsTimeout(h.model(), operations(h.Calls), timeout) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return ErrUndecided
	}
	return fmt.Errorf("no order of %d calls from %v on is one of a lock", len(h.Calls), h.Calls[0].Asked)
}

// Impossible returns, for a history that Check rejects, the calls up to the first impossible one,
// in the order of their answers.
func (h *History) Impossible() []Call {
	calls := slices.Clone(h.Calls)
	slices.SortStableFunc(calls, func(a, b Call) int { return cmp.Compare(a.Answered, b.Answered) })
	ops := operations(calls)
	n := sort.Search(len(ops), func(n int) bool { return !porcupine.CheckOperations(h.model(), ops[:n+1]) })
	return calls[:min(n+1, len(calls))]
}

// Draw writes a page that shows the calls, and how far an order of them was found.
func (h *History) Draw(path string) error {
	_, info := porcupine.CheckOperationsVerbose(h.model(), operations(h.Calls), time.Minute)
	return porcupine.VisualizePath(h.model(), info, path)
}

func operations(calls []Call) []porcupine.Operation {
	ops := make([]porcupine.Operation, len(calls))
	for i, c := range calls {
		ops[i] = porcupine.Operation{ClientId: i, Input: c, Call: int64(c.Asked), Return: int64(c.Answered)}
	}
	return ops
}

func (h *History) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return h.first },
		Step: func(s, input, _ any) (bool, any) {
			next, ok := s.(state).step(input.(Call))
			return ok, next
		},
		DescribeOperation: func(input, _ any) string { return input.(Call).String() },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
}
