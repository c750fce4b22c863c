// Package replace explores the replacement of a disk of a lockspace on several: its writer, a reader and
// the replacer in every interleaving. bakery/PROTOCOL.md, section "Replacing a disk", has the rules by name.
// world_test.go has the hosts, replacer_test.go the replacer. The next process of a host is also one that
// joins again without a restart: what it had in flight before counts as that of an earlier process.
package replace

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/explore/states"
)

var full = flag.Bool("full", false, "explore the large scenarios, too")

// The faults.
const (
	stale = "STALE: a read returned less than what was done when it began"
	split = "SPLIT: two hosts use different disks at one position"
	stuck = "STUCK: from here the disk cannot be replaced"
)

// rule is a rule that can be left out.
type rule int

const (
	none           rule = iota
	noVacate            // VACATE: the new disk takes the place of the old one at once
	vacatesOne          // VACATE: one member has the list
	keepsVacant         // VACATE: a list with a vacant position is not written again
	anyList             // VACATE: the newest list found, without a majority of its members
	countsUp            // EPOCH: the newest one found + 1
	oldAcksCount        // FOLLOW: acknowledgements of a disk that is no member count
	acksReturn          // FOLLOW: they count when it is a member again
	showsFirst          // FOLLOW: shows the list before it uses it
	noWait              // WAIT
	readsOneTable       // WAIT: the host records on one disk
	ignoresJoining      // WAIT: for live hosts only
	noBeforeLive        // BEFORE-LIVE, of a claim
	resumesLive         // BEFORE-LIVE, of a process that continues an incarnation
	copiesFirst         // COPY before WAIT
	readsOneCopy        // COPY: the copy of one disk
	copiesZeroes        // COPY: an unreadable record as zeroes
	copiesNewest        // COPY: an unreadable record as its newest readable copy
	fillsEarly          // COPIED
	leavesEarly         // LEFT: with a copy in flight to a disk that was vacated
	lateCopy            // assumption: no copy of a dead replacer lands later
	noEnding            // FILL: no wait at the end
	sharesMember        // FIFO: a process uses a disk to which an earlier one has a copy in flight
	sharesNew           // FIFO: the same, for a new disk
	leavesEarlier       // LEFT: with a copy of an earlier process in flight
	vacantForgets       // VACANT: the same, to a disk that was vacated
	reusesBusy          // a new disk to which an earlier process has a copy in flight
)

// result is what a search found.
type result struct {
	states int
	fault  string
	trace  []string
}

// begin returns the world that a scenario begins with.
func begin(sc *scenario) *world {
	w := &world{sc: sc}
	l := list{epoch: 1, at: [2]uint8{1, 2}}
	w.epoch, w.left = 1, sc.left
	for i := range w.hosts {
		if !sc.joins[i] {
			w.hosts[i] = host{phase: live, using: l, shown: 1}
		}
	}
	if sc.hung {
		w.disks[0].earlier = 1
	}
	for d := range sc.n {
		w.disks[d].sb, w.disks[d].rec = l, 1
		for i, h := range w.hosts {
			if h.phase == live {
				w.disks[d].hosts |= 1 << i
			}
		}
	}
	return w
}

// explore takes a scenario through every interleaving, the shortest first, until it finds a fault.
func explore(sc scenario) (r result) {
	g, queue := states.New(), states.Pile[state]{}
	w := begin(&sc)
	g.Begin(w.key())
	queue.Add(w.state)
	for id := uint32(0); int(id) < g.Len() && r.fault == ""; id++ {
		w := world{state: queue.Take(int(id)), sc: &sc}
		if w.final() {
			g.Final(id)
		}
		w.to = func(c world) {
			to, fresh := g.Reach(c.key(), id)
			if fresh {
				queue.Add(c.state)
			}
			if c.fault != "" && r.fault == "" && (sc.want == "" || sc.want == c.fault) {
				r.fault, r.trace = c.fault, path(g, sc, to)
			}
		}
		w.moves()
		g.Expanded()
	}
	r.states = g.Len()
	if id, found := g.Stuck(); r.fault == "" && found {
		r.fault, r.trace = stuck, path(g, sc, id)
	}
	return r
}

// final reports whether all disks are replaced and all hosts are live or dead.
func (w *world) final() bool {
	return w.r.phase == idle && w.left.changes == 0 && w.hosts[0].phase >= live && w.hosts[1].phase >= live
}

// path returns the steps to a state, one a line.
func path(g *states.Graph, sc scenario, id uint32) (lines []string) {
	sc.telling = true
	w := *begin(&sc)
	for _, id := range g.Path(id) {
		var next world
		w.to = func(c world) {
			if at, ok := g.Find(c.key()); ok && at == id && next.sc == nil {
				next = c
			}
		}
		w.moves()
		lines = append(lines, fmt.Sprintf("%-4s %s", next.who, next.text))
		w = next
	}
	return lines
}

var (
	late  = [2]bool{reader: true}
	plain = scenario{n: 3, left: budget{writes: 1, changes: 1}}
	joins = scenario{n: 3, joins: late, left: budget{writes: 1, changes: 1}}
	crash = scenario{n: 3, left: budget{writes: 1, changes: 1, crashes: 1}}
	twice = scenario{n: 3, second: true, left: budget{writes: 1, changes: 2}}
)

var scenarios = []scenario{
	{name: "a replacement", n: 3, left: budget{writes: 1, changes: 1}},
	{name: "a writer that joins", n: 3, joins: [2]bool{writer: true}, left: budget{writes: 1, changes: 1}},
	{name: "a death", n: 3, left: budget{writes: 1, changes: 1, deaths: 1}},
	{name: "a sector gone bad", n: 3, left: budget{writes: 1, changes: 1, bad: 1}},
	{name: "a former member as new disk", n: 3, reuse: true, left: budget{writes: 1, changes: 1}},
	{name: "a restart with copies in flight", n: 3, left: budget{writes: 2, restarts: 1}},
	{name: "a restart with copies in flight, the owner leaves", n: 3, left: budget{writes: 2, restarts: 1, leaves: 1}},
	{name: "a copy of an earlier process in flight", n: 3, hung: true, left: budget{writes: 1, changes: 1}},
	{name: "a copy of an earlier process in flight, a crash", n: 3, hung: true, left: budget{writes: 1, changes: 1, crashes: 1}, large: true},
	{name: "a copy of an earlier process in flight, a former member", n: 3, hung: true, reuse: true, left: budget{writes: 1, changes: 2}, large: true},
	{name: "a copy of an earlier process in flight, the owner leaves", n: 3, hung: true, left: budget{writes: 1, changes: 1, leaves: 1}, large: true},
	{name: "a reader that joins", n: 3, joins: late, left: budget{writes: 1, changes: 1}, large: true},
	{name: "two writes", n: 3, left: budget{writes: 2, changes: 1}, large: true},
	{name: "a crash", n: 3, left: budget{writes: 1, changes: 1, crashes: 1}, large: true},
	{name: "a restart", n: 3, left: budget{writes: 1, changes: 1, restarts: 1}, large: true},
	{name: "a restart with copies in flight, two writes", n: 3, steady: true, left: budget{writes: 2, changes: 1, restarts: 1}, large: true},
	{name: "two restarts with copies in flight", n: 3, steady: true, left: budget{writes: 1, changes: 1, restarts: 2}, large: true},
	{name: "a restart with copies in flight, and the owner leaves", n: 3, steady: true, left: budget{writes: 2, changes: 1, restarts: 1, leaves: 1}, large: true},
	{name: "two replacements", n: 3, second: true, left: budget{writes: 1, changes: 2}, large: true},
	{name: "the same, no wait at the end", n: 3, second: true, rule: noEnding, left: budget{writes: 1, changes: 2}, large: true},
	{name: "the owner leaves", n: 3, left: budget{writes: 2, changes: 1, leaves: 1}, large: true},
	{name: "a crash, a former member", n: 3, reuse: true, left: budget{writes: 1, changes: 1, crashes: 1}, large: true},
	{name: "a crash, a reader that joins", n: 3, joins: late, left: budget{writes: 1, changes: 1, crashes: 1}, large: true},
	{name: "a crash, a writer that joins", n: 3, joins: [2]bool{writer: true}, left: budget{writes: 1, changes: 1, crashes: 1}, large: true},
	{name: "a crash, a sector gone bad", n: 3, left: budget{writes: 1, changes: 1, crashes: 1, bad: 1}, large: true},
	{name: "two crashes", n: 3, left: budget{writes: 1, changes: 1, crashes: 2}, large: true},
	{name: "a crash, either position", n: 3, second: true, left: budget{writes: 1, changes: 1, crashes: 1}, large: true},
	{name: "a replacement, 5 members", n: 5, left: budget{writes: 1, changes: 1}, large: true},
}

func TestExplore_Replacement_NoFault(t *testing.T) {
	for _, sc := range scenarios {
		if sc.large && !*full {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			r := explore(sc)
			t.Logf("%d states", r.states)
			require.Empty(t, r.fault, "%s", strings.Join(r.trace, "\n"))
		})
	}
}

func TestExplore_RuleLeftOut_Stale(t *testing.T) {
	for _, m := range []struct {
		name string
		rule rule
		scenario
	}{
		{"the new disk takes the place of the old one at once", noVacate, plain},
		{"the vacated list is on one member", vacatesOne, joins},
		{"a vacated list is not written again", keepsVacant, crash},
		{"the newest list, without a majority", anyList, twice},
		{"the epoch is the newest + 1", countsUp, crash},
		{"acknowledgements of the old disk count", oldAcksCount, plain},
		{"they count again", acksReturn, crash},
		{"shows the list before it uses it", showsFirst, plain},
		{"no wait", noWait, plain},
		{"the host records of one disk", readsOneTable, joins},
		{"no wait for hosts that join", ignoresJoining, joins},
		{"live without reading the superblocks again", noBeforeLive, joins},
		{"the same, after a restart", resumesLive, scenario{n: 3, left: budget{writes: 1, changes: 1, restarts: 1}}},
		{"copies before the wait", copiesFirst, plain},
		{"the copy of one disk", readsOneCopy, plain},
		{"an unreadable record as zeroes", copiesZeroes, scenario{n: 3, left: budget{writes: 1, changes: 1, bad: 1}}},
		{"an unreadable record as its newest copy", copiesNewest, scenario{n: 3, left: budget{writes: 1, changes: 1, bad: 1}}},
		{"fills while a copy is in flight", fillsEarly, plain},
		{"a copy of a dead replacer lands later", lateCopy, crash},
		{"the owner leaves with a copy in flight to the old disk", leavesEarly, scenario{n: 3, left: budget{writes: 2, changes: 1, leaves: 1}}},
		{"the same, later, and that is the new disk again", none, scenario{n: 3, reuse: true, left: budget{writes: 2, changes: 2, leaves: 1}, large: true}},
		{"a process uses a disk with a copy of an earlier one in flight", sharesMember, scenario{n: 3, left: budget{writes: 2, restarts: 1}}},
		{"the same, while a disk is replaced", sharesMember, scenario{n: 3, hung: true, left: budget{writes: 1, changes: 1}}},
		{"the same, of a new disk", sharesNew, scenario{n: 3, steady: true, left: budget{writes: 2, changes: 1, restarts: 1}, large: true}},
		{"the owner leaves with a copy of an earlier process in flight", leavesEarlier, scenario{n: 3, left: budget{writes: 2, restarts: 1, leaves: 1}}},
		{"the same, to the old disk", vacantForgets, scenario{n: 3, hung: true, left: budget{writes: 1, changes: 1, leaves: 1}}},
		{"the new disk is a former member with such a copy in flight", reusesBusy, scenario{n: 3, hung: true, reuse: true, left: budget{writes: 1, changes: 1}}},
	} {
		sc := m.scenario
		if sc.large && !*full {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			sc.rule, sc.want = m.rule, stale
			r := explore(sc)
			t.Logf("%d states\n%s", r.states, strings.Join(r.trace, "\n"))
			require.Equal(t, stale, r.fault)
		})
	}
}
