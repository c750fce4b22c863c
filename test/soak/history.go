package main

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/bakeryd/bakeryd/layout"
)

// op is what porcupine sees of a section: a request that was granted at some moment between two others.
type op struct {
	kind     opKind
	host     int
	mode     layout.Mode // acquired or released, or had before a downgrade
	token    layout.Ticket
	from, to time.Duration
	quiet    bool // nobody is inside after it
}

type opKind int

const (
	opAcquire opKind = iota
	opRelease        // at one moment, when the section has done its last: the lock itself is free a little later
	opUpgrade
	opDowngrade
)

// occupied is the state of a lock, of up to maxHosts hosts.
type occupied struct {
	permits int
	writers [maxHosts + 1]int8
	readers int
	last    layout.Ticket // the greatest of an exclusive grant; with several permits it is not looked at
}

const maxHosts = 16

func (s occupied) writing() (hosts int) {
	for _, n := range s.writers {
		hosts += int(n)
	}
	return hosts
}

// step is what a lock does. It returns whether it may.
func (s occupied) step(o op) (bool, occupied) {
	switch {
	case o.kind == opRelease && o.mode == layout.Exclusive:
		s.writers[o.host]--
		return s.writers[o.host] >= 0, s
	case o.kind == opRelease:
		s.readers--
		return s.readers >= 0, s
	case o.kind == opDowngrade:
		s.writers[o.host]--
		s.readers++
		return s.writers[o.host] >= 0, s
	case o.kind == opUpgrade:
		ok := s.readers == 1 && s.writing() == 0 && o.token >= s.last
		s.readers--
		s.writers[o.host]++
		s.last = max(s.last, o.token)
		return ok, s
	case o.mode == layout.Shared:
		s.readers++
		return s.writing() == 0, s
	}
	ok := s.readers == 0 && s.writing() < s.permits && s.writers[o.host] == 0 && (s.permits > 1 || o.token > s.last)
	s.writers[o.host]++
	s.last = max(s.last, o.token)
	return ok, s
}

// historyOf is a lock's history since a moment when nobody was inside.
type historyOf struct {
	ops   []porcupine.Operation
	begin time.Duration
	first occupied
}

// window is how many operations porcupine is given at once, at least.
const window = 200

// add takes the next one, and returns a history that can be checked, if there is enough of it. What is cut off is
// whole: nobody is inside, and who asked before the cut but entered after it may be taken to have asked after it.
func (h *historyOf) add(o op) (whole *historyOf) {
	h.ops = append(h.ops, porcupine.Operation{ClientId: len(h.ops), Input: o, Call: int64(max(o.from, h.begin)), Return: int64(max(o.to, h.begin))})
	if !o.quiet || len(h.ops) < window {
		return nil
	}
	return h.cut()
}

func (h *historyOf) cut() (whole *historyOf) {
	whole = &historyOf{ops: h.ops, begin: h.begin, first: h.first}
	for _, o := range h.ops {
		h.begin = max(h.begin, time.Duration(o.Return))
		if in := o.Input.(op); in.kind != opRelease && in.mode == layout.Exclusive {
			h.first.last = max(h.first.last, in.token)
		}
	}
	h.begin++
	h.ops = nil
	return whole
}

// check has porcupine look for an order in which a lock could have granted all of it.
func (h *historyOf) check(patience time.Duration) (porcupine.CheckResult, error) {
	result := porcupine.CheckOperationsTimeout(h.model(), h.ops, patience)
	if result == porcupine.Illegal {
		return result, fmt.Errorf("no order of %d operations from %v on is one of a lock", len(h.ops), time.Duration(h.ops[0].Call))
	}
	return result, nil
}

// draw makes a page of it.
func (h *historyOf) draw(path string) error {
	_, info := porcupine.CheckOperationsVerbose(h.model(), h.ops, time.Minute)
	return porcupine.VisualizePath(h.model(), info, path)
}

func (h *historyOf) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return h.first },
		Step: func(state, input, _ any) (bool, any) {
			ok, next := state.(occupied).step(input.(op))
			return ok, next
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}
