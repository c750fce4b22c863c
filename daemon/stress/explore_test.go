//go:build !race

// One goroutine explores: a race detector would find nothing.

package stress

import (
	"flag"
	"fmt"
	"math/bits"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

var full = flag.Bool("full", false, "also explore what takes minutes")

const most = 3 // workers

// plan is a run that is taken through every order of reads and writes of single registers. The
// workers are the visitors that [Memory] drives.
type plan struct {
	name    string
	workers int
	visits  int    // of each
	bound   uint64 // of numbers; 0: none
	limit   uint64 // tests of the reserve; 0: as Memory derives it from the bound
	sorted  bool   // registers are read in their order, as in Memory; else in any order
	rude    bool   // tests: a worker that has finished leaves without regard to the gate
	distort func(v *visitor, w word) word
	want    string // the kind of fault to look for; empty: any
}

// closing returns the number that closes an era.
func (p plan) closing() uint64 {
	if p.limit == 0 && p.bound > 0 {
		return p.bound - reserve(p.workers)
	}
	return p.limit
}

// state is one state of the run. Registers are packed. A worker's knowledge is the index of a
// local state of its automaton.
type state struct {
	registers [most]small
	locals    [most]int32
	read      [most]uint8 // registers that the look under way has read
	got       [most][most]small
	doored    uint8       // workers whose doorway is done, and that wait
	before    [most]uint8 // of those, the ones that were first and are not inside yet
	closed    uint8       // number of closed eras
	looked    [most]uint8 // the same when a worker began to look at the gate
}

// small is a word with a number below 2^8.
type small uint16

func pack(w word) small { return small(w&0xff) | small(w.number())<<8 }

func (s small) word(host int) word {
	if n := uint64(s >> 8); n > 0 {
		return word(layout.MakeTicket(n, host)) | word(s&0xff)
	}
	return word(s & 0xff)
}

// explorer holds the states found so far, and the graph of moves.
type explorer struct {
	plan    plan
	workers [most]*automaton
	ids     map[state]uint32
	states  []state
	first   []int // by state: index of its first edge
	edges   []uint32
	highest uint64
	fault   string
}

func explore(p plan) *explorer {
	x := &explorer{plan: p, ids: map[state]uint32{}}
	for i := range p.workers {
		x.workers[i] = newAutomaton(p, i)
	}
	x.add(state{})
	for i := 0; i < len(x.states) && x.fault == ""; i++ {
		x.first = append(x.first, len(x.edges))
		x.moves(x.states[i])
	}
	x.first = append(x.first, len(x.edges))
	if x.fault == "" {
		x.checkProgress()
	}
	return x
}

func (x *explorer) add(s state) {
	id, known := x.ids[s]
	if !known {
		id = uint32(len(x.states))
		x.ids[s] = id
		x.states = append(x.states, s)
	}
	x.edges = append(x.edges, id)
}

func (x *explorer) failf(format string, args ...any) {
	if x.fault == "" && strings.HasPrefix(format, x.plan.want) {
		x.fault = fmt.Sprintf(format, args...)
	}
}

// moves adds the next states: one access of one worker to one register.
func (x *explorer) moves(s state) {
	for i := range x.plan.workers {
		switch a := x.act(s, i); a.kind {
		case write:
			c := s
			c.registers[i] = pack(a.word)
			x.wrote(&c, i, a.word)
			x.step(c, i, event{kind: write})
		case look:
			if s.read[i] == 0 && x.local(s, i).atGate {
				s.looked[i] = s.closed
			}
			x.look(s, i)
		case poll:
			if now := s.registers[a.of]; now != pack(a.was) {
				x.step(s, i, event{kind: poll, words: [most]small{now}})
			}
		case enter:
			x.step(s, i, event{kind: enter})
		}
	}
}

func (x *explorer) local(s state, i int) local { return x.workers[i].locals[s.locals[i]] }

func (x *explorer) act(s state, i int) action { return x.local(s, i).act }

func (x *explorer) look(s state, i int) {
	all := uint8(1)<<x.plan.workers - 1
	seen := s.read[i] | 1<<i
	for left := all &^ seen; left != 0; left &= left - 1 {
		j := bits.TrailingZeros8(left)
		c := s
		c.got[i][j] = s.registers[j]
		c.read[i] = seen | 1<<j
		if c.read[i] == all {
			words := c.got[i]
			words[i] = s.registers[i]
			c.read[i], c.got[i] = 0, [most]small{}
			x.step(c, i, event{kind: look, words: words})
		} else {
			x.add(c)
		}
		if x.plan.sorted {
			return
		}
	}
}

// step gives worker i an event, and checks the result.
func (x *explorer) step(c state, i int, e event) {
	c.locals[i] = x.workers[i].after(c.locals[i], e)
	if e.kind != enter && x.act(c, i).kind == enter {
		for j := range x.plan.workers {
			if j != i && x.act(c, j).kind == enter {
				x.failf("EXCLUSION: workers %d and %d are inside", i+1, j+1)
			}
			c.before[j] &^= 1 << i
		}
		if c.before[i] != 0 {
			x.failf("ORDER: worker %d passes one that was there first", i+1)
		}
		c.doored &^= 1 << i
	}
	x.add(c)
}

// wrote records the effect of a word in a register on the order, and its number.
func (x *explorer) wrote(c *state, i int, w word) {
	x.highest = max(x.highest, w.number())
	if b := x.plan.bound; b > 0 && w.number() >= b {
		x.failf("BOUND: worker %d draws %d", i+1, w.number())
	}
	era := uint8(x.local(*c, i).era)
	if x.plan.bound > 0 && w.number() >= x.plan.closing() {
		c.closed = max(c.closed, era+1)
	}
	switch w.phase() {
	case layout.Choosing:
		c.before[i] = c.doored
		if c.looked[i] > era {
			x.failf("DRAIN: worker %d enters the doorway of an era that it could know is closed", i+1)
		}
		c.looked[i] = 0
	case layout.Waiting:
		c.doored |= 1 << i
	}
}

// checkProgress finds states from which not every worker can finish.
func (x *explorer) checkProgress() {
	finishes := make([]bool, len(x.states))
	for id, s := range x.states {
		finishes[id] = true
		for i := range x.plan.workers {
			finishes[id] = finishes[id] && x.act(s, i).kind == done
		}
	}
	for changed := true; changed; {
		changed = false
		for id := len(x.states) - 1; id >= 0; id-- {
			for _, to := range x.edges[x.first[id]:x.first[id+1]] {
				if !finishes[id] && finishes[to] {
					finishes[id], changed = true, true
				}
			}
		}
	}
	for id := range x.states {
		if !finishes[id] {
			x.failf("DEADLOCK: not everybody can finish")
			return
		}
	}
}

// TestExplore takes the visitors through every order of accesses. "Each" drains after every
// number; "some" lets an era have several.
func TestExplore(t *testing.T) {
	plans := []plan{
		{name: "unbounded", workers: 2, visits: 3},
		{name: "each", workers: 2, visits: 3, bound: LeastMaxTicket(2)},
		{name: "some", workers: 2, visits: 4, bound: LeastMaxTicket(2) + 2},
		{name: "each", workers: 3, visits: 1, bound: LeastMaxTicket(3), sorted: true},
	}
	if *full {
		// The kept states hold no pointers.
		defer debug.SetGCPercent(debug.SetGCPercent(25))
		plans = append(plans,
			plan{name: "unbounded", workers: 3, visits: 1},
			plan{name: "each", workers: 3, visits: 1, bound: LeastMaxTicket(3)},
			plan{name: "each", workers: 3, visits: 2, bound: LeastMaxTicket(3), sorted: true},
			plan{name: "some", workers: 3, visits: 2, bound: LeastMaxTicket(3) + 1, sorted: true},
			plan{name: "some", workers: 2, visits: 8, bound: LeastMaxTicket(2) + 3},
		)
	}
	for _, p := range plans {
		order := "any order"
		if p.sorted {
			order = "in order"
		}
		t.Run(fmt.Sprintf("%s, %d workers, %d visits, %s", p.name, p.workers, p.visits, order), func(t *testing.T) {
			begun := time.Now()
			x := explore(p)
			require.Empty(t, x.fault)
			t.Logf("%d states in %.1f s; the highest number is %d", len(x.states), time.Since(begun).Seconds(), x.highest)
		})
	}
}

// TestMutations leaves out or reverses one rule at a time.
func TestMutations(t *testing.T) {
	same := func(v *visitor) word { return word(v.gate.era % eras << eraShift) }
	tests := []plan{
		{name: "choosing taken for idle", distort: deaf, want: "EXCLUSION"},
		{name: "one number less in reserve", limit: 2, want: "BOUND"},
		{name: "the own number does not close the era", distort: func(v *visitor, w word) word {
			if v.gate.at && w == v.shown {
				return same(v)
			}
			return w
		}, want: "BOUND"},
		{name: "no worker waits for one that is behind", distort: func(v *visitor, w word) word {
			if v.gate.at && v.behind(w) {
				return goneWord
			}
			return w
		}, want: "BOUND"},
		{name: "a worker ahead is taken for one behind", distort: func(v *visitor, w word) word {
			if v.gate.at && v.ahead(w) {
				return word((v.gate.era + eras - 1) % eras << eraShift)
			}
			return w
		}, want: "DEADLOCK"},
		{name: "a worker ahead does not close the era", distort: func(v *visitor, w word) word {
			if v.gate.at && v.ahead(w) {
				return same(v)
			}
			return w
		}, want: "DRAIN"},
		{name: "a number of another does not close the era", distort: func(v *visitor, w word) word {
			if v.gate.at && w != v.shown && w.number() >= v.gate.limit {
				return same(v)
			}
			return w
		}, want: "DRAIN"},
		{name: "a finished worker keeps its number", rude: true, want: "DRAIN"},
	}
	for _, p := range tests {
		t.Run(p.name, func(t *testing.T) {
			p.workers, p.visits, p.bound = 2, 3, LeastMaxTicket(2)
			x := explore(p)
			require.NotEmpty(t, x.fault)
			t.Logf("%s, after %d states", x.fault, len(x.states))
		})
	}
}

// deaf ignores workers that are choosing, which the bakery's safety rests on.
func deaf(v *visitor, w word) word {
	if !v.gate.at && w.phase() == layout.Choosing {
		return w - word(layout.Choosing)
	}
	return w
}

func (v *visitor) ahead(w word) bool { return !w.gone() && w.era() == (v.gate.era+1)%eras }
