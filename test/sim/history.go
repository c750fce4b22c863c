package sim

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/bakeryd/bakeryd/layout"
)

// histories are the calls and answers of each lock of one permit, for a checker
// that knows nothing of how locks are made.
type histories map[string][]porcupine.Operation

// call is what a client asked for: the lock in a mode, another mode of it, or to let it go.
type call struct {
	kind callKind
	mode layout.Mode
	from layout.Mode // before a change
}

type callKind int

const (
	acquired callKind = iota
	changed
	released
)

// inside is the state of a lock.
type inside struct {
	writer  bool
	readers int
	last    layout.Ticket
}

func (s inside) with(mode layout.Mode) (inside, bool) {
	if mode == layout.Shared {
		s.readers++
		return s, !s.writer
	}
	ok := !s.writer && s.readers == 0
	s.writer = true
	return s, ok
}

func (s inside) without(mode layout.Mode) (inside, bool) {
	if mode == layout.Shared {
		s.readers--
		return s, s.readers >= 0
	}
	was := s.writer
	s.writer = false
	return s, was
}

var lockModel = porcupine.Model{
	Init: func() any { return inside{} },
	Step: func(state, input, output any) (bool, any) {
		s, c := state.(inside), input.(call)
		switch c.kind {
		case released:
			s, ok := s.without(c.mode)
			return ok, s
		case changed:
			s, was := s.without(c.from)
			s, ok := s.with(c.mode)
			return was && ok, s
		}
		token := output.(layout.Ticket)
		ok := c.mode == layout.Shared || token > s.last
		s.last = max(s.last, token)
		s, free := s.with(c.mode)
		return ok && free, s
	},
}

func (r *rules) add(h *hold, c call, asked int64, output any) {
	if h.subject.permits == 1 {
		name := h.subject.name
		r.histories[name] = append(r.histories[name], porcupine.Operation{ClientId: h.c.id, Input: c, Output: output, Call: asked, Return: r.w.now()})
	}
}

func (r *rules) granted(h *hold, asked int64) {
	h.said = h.mode
	r.add(h, call{kind: acquired, mode: h.mode}, asked, h.token)
}

// changed is told of a change to shared before it is asked for, of one to exclusive when that is had.
func (r *rules) changed(h *hold, mode layout.Mode) {
	if h.open && mode != h.said {
		r.add(h, call{kind: changed, mode: mode, from: h.said}, r.w.now(), nil)
		h.said = mode
	}
}

// released is told when the holder stops. What it held beyond its lease was not its own.
func (r *rules) released(h *hold) {
	end := min(r.w.now(), int64(h.runsOut().Sub(r.w.trace.began)))
	r.add(h, call{kind: released, mode: h.said}, end, nil)
	if h.subject.permits == 1 {
		ops := r.histories[h.subject.name]
		ops[len(ops)-1].Return = end
	}
}

// tell adds the first calls that cannot be to the trace.
func (r *rules) tell(ops []porcupine.Operation) {
	if r.w.trace.out == nil {
		return
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	n := sort.Search(len(ops), func(n int) bool { return !porcupine.CheckOperations(lockModel, ops[:n+1]) })
	for i, op := range ops[:min(n+1, len(ops))] {
		if c := op.Input.(call); i > n-10 {
			fmt.Fprintf(r.w.trace.out, "    call  %.6f to %.6f by client %d: %s %v %v\n", float64(op.Call)/1e9, float64(op.Return)/1e9, op.ClientId,
				[]string{"acquired", "changed to", "released"}[c.kind], c.mode, op.Output)
		}
	}
}

// history has every lock's calls checked.
func (r *rules) history() {
	if r.wronged {
		r.w.count("an operator was wrong")
		return
	}
	for _, s := range subjects {
		if r.wentBack[s.name] {
			continue // it knows tokens that grow
		}
		switch ops := r.histories[s.name]; porcupine.CheckOperationsTimeout(lockModel, ops, time.Minute) {
		case porcupine.Ok:
		default:
			r.tell(ops)
			r.violate("HISTORY", "of %d calls of %s: it is not one of a lock", len(ops), s.name)
		}
	}
}
