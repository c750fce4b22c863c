package stress

import (
	"fmt"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/layout"
)

// visitor is one worker's way through the bakery: the gate (gate.go), if numbers are bounded, and
// then the machine that the daemon drives on a disk. It is pure like that machine: events in,
// actions out.
type visitor struct {
	self  int // its register, from 0; the machine's host id is one more
	m     *bakery.Machine
	words []word // as last read
	views []bakery.View
	hosts []bakery.Host
	gate  gate
	shown word // contents of the own register, once a write under way has landed

	distort func(v *visitor, w word) word // tests: replaces the word read from a register; nil: no change
}

// kind is the operation that an action requests.
type kind uint8

const (
	write kind = iota + 1 // write the word to the own register; then wrote
	look                  // read all registers, in any order; then saw
	poll                  // wait until register of differs from was; then changed
	enter                 // inside; then leave, or settle first
	done                  // the visit is over
)

// action is the worker's next operation.
type action struct {
	kind kind
	word word // write
	of   int  // poll: a register, from 0
	was  word // poll
}

// newVisitor returns the visitor of worker self. limit is the number that closes the gate; 0: no
// gate.
func newVisitor(self, workers int, limit uint64) *visitor {
	v := &visitor{self: self, views: make([]bakery.View, workers), hosts: make([]bakery.Host, workers), gate: gate{limit: limit}}
	for i := range v.hosts {
		v.hosts[i] = bakery.Host{Readable: true, Incarnation: uint64(i + 1)}
	}
	v.renew()
	return v
}

// renew replaces the machine by one that has seen no number. It has no clock, so it draws
// Lamport's numbers, the first being 1.
func (v *visitor) renew() {
	v.m = bakery.New(bakery.Config{Host: v.self + 1, Incarnation: uint64(v.self + 1), Permits: 1})
}

// begin begins a visit. The visit ends inside, or with done if it was cancelled.
func (v *visitor) begin() action {
	if v.gate.limit > 0 {
		return v.gate.arrive()
	}
	return v.acquire()
}

// retire ends the last visit, and leaves the words that the others rely on.
func (v *visitor) retire() action {
	if v.gate.limit == 0 {
		return action{kind: done}
	}
	v.gate.leaving = true
	return v.gate.arrive()
}

func (v *visitor) acquire() action {
	return v.do(v.m.Acquire(bakery.Request{Mode: layout.Exclusive}))
}

// leave ends the hold, settle publishes it.
func (v *visitor) leave() action  { return v.do(v.m.Release()) }
func (v *visitor) settle() action { return v.do(v.m.Settle()) }

// cancel ends a poll, and with it the visit.
func (v *visitor) cancel() action {
	if v.gate.at {
		return action{kind: done}
	}
	v.m.Cancel()
	return v.do(v.m.Recheck())
}

// wrote reports that the word of the last write is in the register.
func (v *visitor) wrote() action {
	switch {
	case v.shown.gone():
		return action{kind: done}
	case v.gate.at:
		return action{kind: look}
	}
	return v.do(v.m.Written())
}

// saw reports a read of all registers. The visitor keeps the words until the
// next one.
func (v *visitor) saw(words []word) action {
	v.words = words
	if v.gate.at {
		return v.judge(words)
	}
	for i, w := range words {
		v.views[i] = v.read(w).view(i + 1)
	}
	return v.do(v.m.SlotsRead(v.views))
}

// changed reports the new word of the polled register.
func (v *visitor) changed(of int, w word) action {
	v.words[of] = w
	if !v.gate.at {
		v.views[of] = v.read(w).view(of + 1)
		return v.do(v.m.Polled(v.views[of]))
	}
	if v.behind(v.read(w)) {
		return action{kind: poll, of: of, was: w}
	}
	return action{kind: look}
}

// read returns the word that a register is taken to show.
func (v *visitor) read(w word) word {
	if v.distort == nil {
		return w
	}
	return v.distort(v, w)
}

// do translates the machine's action into one on registers. The workers live as long as the run,
// so the host table is answered immediately.
func (v *visitor) do(a bakery.Action) action {
	switch a.Kind {
	case bakery.Write:
		return v.show(makeWord(a.Slot, v.gate.era))
	case bakery.Read:
		return action{kind: look}
	case bakery.Poll:
		return action{kind: poll, of: a.Host - 1, was: v.words[a.Host-1]}
	case bakery.ReadHosts:
		return v.do(v.m.HostsRead(v.hosts))
	case bakery.Granted:
		return action{kind: enter}
	case bakery.Done:
		if a.Outcome == bakery.Released || a.Outcome == bakery.Cancelled {
			return action{kind: done}
		}
	}
	panic(fmt.Sprintf("stress: action %+v of a machine in memory", a))
}

func (v *visitor) show(w word) action {
	v.shown = w
	return action{kind: write, word: w}
}
