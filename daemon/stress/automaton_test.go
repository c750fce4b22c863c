//go:build !race

package stress

import (
	"fmt"
	"reflect"
	"strings"
)

// automaton is one worker in the explorer: its local states, each found by running the visitor
// once, and the transitions by events. The explorer therefore need not copy a machine, whose
// fields are private to another package.
type automaton struct {
	plan   plan
	self   int
	locals []local
	ids    map[string]int32
	next   map[transition]int32
}

// local is a state of a worker, and the way to it.
type local struct {
	act    action
	era    uint64
	atGate bool
	parent int32
	event  event
}

// event is an input of a worker: its write has landed, the result of a read, or the end of its
// hold.
type event struct {
	kind  kind
	words [most]small
}

type transition struct {
	from  int32
	event event
}

// agent is a visitor and the visits that it has left.
type agent struct {
	v       *visitor
	act     action
	visits  int
	retired bool
	rude    bool
}

func newAutomaton(p plan, self int) *automaton {
	a := &automaton{plan: p, self: self, ids: map[string]int32{}, next: map[transition]int32{}}
	root := a.begin()
	a.locals = []local{root.local(-1, event{})}
	a.ids[root.key()] = 0
	return a
}

func (a *automaton) begin() *agent {
	g := &agent{v: newVisitor(a.self, a.plan.workers, a.plan.closing()), visits: a.plan.visits, rude: a.plan.rude}
	g.v.distort = a.plan.distort
	g.went(g.v.begin())
	return g
}

// after returns the state that an event leads to.
func (a *automaton) after(from int32, e event) int32 {
	at := transition{from, e}
	if id, known := a.next[at]; known {
		return id
	}
	g := a.replay(from)
	g.learn(e, a.plan.workers)
	key := g.key()
	id, known := a.ids[key]
	if !known {
		id = int32(len(a.locals))
		a.ids[key] = id
		a.locals = append(a.locals, g.local(from, e))
	}
	a.next[at] = id
	return id
}

// replay returns an agent in the given state.
func (a *automaton) replay(id int32) *agent {
	var events []event
	for ; a.locals[id].parent >= 0; id = a.locals[id].parent {
		events = append(events, a.locals[id].event)
	}
	g := a.begin()
	for i := len(events) - 1; i >= 0; i-- {
		g.learn(events[i], a.plan.workers)
	}
	return g
}

func (g *agent) learn(e event, workers int) {
	switch e.kind {
	case write:
		g.went(g.v.wrote())
	case look:
		words := make([]word, workers)
		for i := range words {
			words[i] = e.words[i].word(i + 1)
		}
		g.went(g.v.saw(words))
	case poll:
		g.went(g.v.changed(g.act.of, e.words[0].word(g.act.of+1)))
	case enter:
		g.went(g.v.leave())
	}
}

func (g *agent) local(parent int32, e event) local {
	return local{act: g.act, era: g.v.gate.era, atGate: g.v.gate.at, parent: parent, event: e}
}

// went takes the next action. After a visit the next one begins immediately.
func (g *agent) went(act action) {
	g.act = act
	if act.kind != done || g.retired {
		return
	}
	if g.visits--; g.visits > 0 {
		g.went(g.v.begin())
		return
	}
	g.retired = true
	if g.rude {
		g.act = g.v.show(goneWord)
		return
	}
	g.went(g.v.retire())
}

// key returns everything of an agent that can still matter. The words that the machine read
// matter while it polls. The action names the polled register.
func (g *agent) key() string {
	var b strings.Builder
	fmt.Fprint(&b, g.act, g.visits, g.retired, g.v.gate, uint64(g.v.shown))
	m := reflect.ValueOf(g.v.m).Elem()
	for i := range m.NumField() {
		switch m.Type().Field(i).Name {
		case "views", "polling", "hosts":
		default:
			fmt.Fprint(&b, " ", m.Field(i))
		}
	}
	return b.String()
}
