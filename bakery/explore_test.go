package bakery

import (
	"flag"
	"slices"
	"testing"

	"github.com/bakeryd/bakeryd/layout"
)

var (
	quick = flag.Bool("quick", false, "explore all quick scenarios, not only the small ones")
	full  = flag.Bool("full", false, "explore all quick and all large scenarios, for many minutes")
)

var (
	exclusive = []layout.Mode{layout.Exclusive}
	mixed     = []layout.Mode{layout.Exclusive, layout.Shared}
	noClock   = []uint64{0}
	anyClock  = []uint64{0, 7} // behind and ahead of every number seen
)

// usualGap leaves room for two numbers that a host draws without seeing a greater one: the number
// of a claim, and the number of its next claim if it gave the first one up. Its look shows it the
// others.
const usualGap = 3

// renumbered returns the scenario with a gap, unless its clocks offer numbers.
func (sc scenario) renumbered(gap uint64) scenario {
	if len(sc.clocks) == 1 {
		sc.gap = gap
	}
	return sc
}

// smallScenarios run in every test run. Each has fewer than 80,000 states.
var smallScenarios = []scenario{
	{name: "exclusive", hosts: 2, rounds: 3, modes: exclusive, settles: 1},
	{name: "try", hosts: 2, rounds: 2, modes: exclusive, settles: 1, try: true},
	{name: "changes of mode", hosts: 2, rounds: 1, modes: mixed, changes: 1, settles: 1},
	{name: "changes of mode, permits", hosts: 2, rounds: 1, permits: 2, modes: mixed, changes: 1, settles: 1},
	{name: "death", hosts: 2, rounds: 2, modes: exclusive, crashes: 1},
	{name: "failing reads", hosts: 2, rounds: 1, modes: exclusive, crashes: 1, rejoin: true, fails: 1},
	{name: "bad record", hosts: 2, rounds: 1, modes: exclusive, settles: 1, crashes: 1, blind: 1, whole: true},
	{name: "bad record, abandoned", hosts: 2, rounds: 1, modes: exclusive, crashes: 1, blind: 1, abandon: true},
	{name: "claim, never settled", hosts: 2, rounds: 1, modes: exclusive, settles: 1, crashes: 1, joins: 2, restive: true, whole: true},
	{name: "bad slot", hosts: 2, rounds: 1, modes: exclusive, settles: 1, corrupt: 1, rewrites: 1},
	{name: "removal", hosts: 2, rounds: 1, modes: exclusive, removes: 2},
	{name: "removal of permits", hosts: 2, rounds: 1, permits: 2, modes: mixed, removes: 2},
	{name: "local grants", hosts: 2, rounds: 1, modes: exclusive, locals: 2, bound: 1},
	{name: "driver, local grants", hosts: 2, rounds: 1, modes: exclusive, locals: 1, bound: 1, resumes: 1},
	{name: "driver, clocks", hosts: 2, rounds: 1, modes: exclusive, clocks: anyClock, try: true, resumes: 2},
	{name: "driver, changes of mode", hosts: 2, rounds: 1, modes: mixed, changes: 1, resumes: 2},
	{name: "driver, restart", hosts: 2, rounds: 1, modes: exclusive, crashes: 1, rejoin: true, resumes: 1},
	{name: "driver, bad slot", hosts: 2, rounds: 1, modes: exclusive, settles: 1, corrupt: 1, resumes: 1},
	{name: "driver, removal", hosts: 2, rounds: 1, modes: exclusive, removes: 1, resumes: 1},
}

// mediumScenarios are the other quick scenarios.
var mediumScenarios = []scenario{
	{name: "exclusive", hosts: 3, rounds: 1, modes: exclusive},
	{name: "mixed", hosts: 2, rounds: 2, modes: mixed, settles: 1},
	{name: "permits", hosts: 2, rounds: 2, permits: 2, modes: mixed, settles: 1},
	{name: "cancel", hosts: 2, rounds: 2, modes: exclusive, settles: 1, cancels: 1},
	{name: "clocks", hosts: 2, rounds: 2, modes: exclusive, clocks: anyClock, settles: 1},
	{name: "death of permits", hosts: 2, rounds: 2, permits: 2, modes: exclusive, crashes: 1},
	{name: "restart", hosts: 2, rounds: 1, modes: exclusive, settles: 1, crashes: 1, rejoin: true, unsure: true},
	{name: "claim", hosts: 2, rounds: 1, modes: exclusive, settles: 1, crashes: 1, joins: 1},
	{name: "bad slot and death", hosts: 2, rounds: 1, modes: exclusive, corrupt: 1, crashes: 1, rejoin: true},
	{name: "removal and death", hosts: 2, rounds: 1, modes: exclusive, removes: 1, crashes: 1},
	{name: "local grants, settled, cancel", hosts: 2, rounds: 1, modes: exclusive, locals: 3, bound: 2, settles: 1, cancels: 1},
	{name: "local grants", hosts: 2, rounds: 2, modes: exclusive, locals: 2, bound: 1},
	{name: "driver, local grants, settled", hosts: 2, rounds: 2, modes: exclusive, locals: 1, bound: 1, settles: 1, resumes: 1},
	{name: "driver", hosts: 2, rounds: 2, modes: exclusive, settles: 1, resumes: 2},
	{name: "driver, mixed, cancel", hosts: 2, rounds: 1, modes: mixed, settles: 1, cancels: 1, resumes: 2},
	{name: "driver, permits", hosts: 2, rounds: 1, permits: 2, modes: mixed, settles: 1, cancels: 1, resumes: 2},
}

// largeScenarios run only with -full, in addition to the quick ones.
var largeScenarios = []scenario{
	// The longest begin first.
	{name: "removal and restart", hosts: 2, rounds: 2, modes: exclusive, removes: 1, crashes: 1, rejoin: true},
	{name: "driver, cancel", hosts: 3, rounds: 1, modes: exclusive, cancels: 1, resumes: 1},

	{name: "mixed", hosts: 2, rounds: 3, modes: mixed, settles: 1},
	{name: "permits", hosts: 2, rounds: 3, permits: 2, modes: mixed, settles: 1},
	{name: "cancel", hosts: 2, rounds: 3, modes: exclusive, settles: 1, cancels: 1},
	{name: "exclusive", hosts: 3, rounds: 1, modes: exclusive, settles: 1},
	{name: "mixed", hosts: 3, rounds: 1, modes: mixed, settles: 1},
	{name: "permits", hosts: 3, rounds: 1, permits: 2, modes: mixed, settles: 1},
	{name: "cancel", hosts: 3, rounds: 1, modes: exclusive, settles: 1, cancels: 1},
	{name: "changes of mode", hosts: 3, rounds: 1, modes: mixed, changes: 1},
	{name: "clocks", hosts: 3, rounds: 1, modes: exclusive, clocks: anyClock},
	{name: "try", hosts: 3, rounds: 1, modes: exclusive, try: true},
	{name: "changes of mode", hosts: 2, rounds: 2, modes: mixed, changes: 1, settles: 1},
	{name: "changes of mode, permits", hosts: 2, rounds: 2, permits: 2, modes: mixed, changes: 1},
	{name: "cancel, mixed", hosts: 2, rounds: 2, modes: mixed, settles: 1, cancels: 1, try: true},
	{name: "death", hosts: 2, rounds: 3, modes: exclusive, settles: 1, crashes: 1},
	{name: "death", hosts: 3, rounds: 1, modes: exclusive, crashes: 1},
	{name: "restart", hosts: 2, rounds: 2, modes: exclusive, settles: 1, crashes: 1, rejoin: true},
	{name: "restart, unsure", hosts: 2, rounds: 2, modes: exclusive, crashes: 1, rejoin: true, unsure: true},
	{name: "failing reads", hosts: 2, rounds: 2, modes: exclusive, crashes: 1, rejoin: true, fails: 1},
	{name: "bad record", hosts: 2, rounds: 2, modes: exclusive, crashes: 1, blind: 1, whole: true},
	{name: "bad record, abandoned, restart", hosts: 2, rounds: 1, modes: exclusive, crashes: 1, rejoin: true, blind: 1, abandon: true},
	{name: "claim", hosts: 2, rounds: 2, modes: exclusive, crashes: 1, joins: 1},
	{name: "claim, restart", hosts: 2, rounds: 1, modes: exclusive, crashes: 1, joins: 1, rejoin: true},
	{name: "claim of a bad record", hosts: 2, rounds: 1, modes: exclusive, crashes: 1, joins: 1, blind: 1, abandon: true},
	{name: "claim, removal", hosts: 2, rounds: 1, modes: exclusive, crashes: 1, joins: 1, removes: 1},
	{name: "two restarts", hosts: 2, rounds: 2, modes: exclusive, crashes: 2, rejoin: true},
	{name: "restart and rewriting", hosts: 2, rounds: 2, modes: exclusive, crashes: 1, rejoin: true, rewrites: 1},
	{name: "bad slot", hosts: 2, rounds: 2, modes: exclusive, settles: 1, corrupt: 1, rewrites: 1},
	{name: "bad slot", hosts: 3, rounds: 1, modes: exclusive, corrupt: 1},
	{name: "bad slot and death", hosts: 2, rounds: 2, modes: exclusive, corrupt: 1, crashes: 1, rejoin: true},
	{name: "removal", hosts: 2, rounds: 2, modes: exclusive, removes: 2},
	{name: "removal and cancel", hosts: 2, rounds: 2, modes: exclusive, removes: 1, cancels: 1},
	{name: "removal of permits", hosts: 2, rounds: 2, permits: 2, modes: exclusive, removes: 2},
	{name: "removal and death", hosts: 2, rounds: 2, modes: exclusive, removes: 1, crashes: 1},
	{name: "removal, death, bad slot", hosts: 2, rounds: 2, modes: exclusive, removes: 1, crashes: 1, corrupt: 1},
	{name: "local grants", hosts: 3, rounds: 1, modes: exclusive, locals: 1, bound: 1},
	{name: "local grants, settled", hosts: 2, rounds: 2, modes: exclusive, locals: 3, bound: 2, settles: 1},
	{name: "local grants, mixed, changes of mode", hosts: 2, rounds: 1, modes: mixed, locals: 2, bound: 1, changes: 1},
	{name: "local grants, death, restart", hosts: 2, rounds: 1, modes: exclusive, locals: 2, bound: 1, crashes: 1, rejoin: true},
	{name: "local grants, removal, death", hosts: 2, rounds: 1, modes: exclusive, locals: 1, bound: 1, removes: 1, crashes: 1},
	{name: "local grants, bad slot", hosts: 2, rounds: 1, modes: exclusive, locals: 1, bound: 1, settles: 1, corrupt: 1, rewrites: 1},
	{name: "driver, local grants", hosts: 2, rounds: 2, modes: exclusive, locals: 2, bound: 1, resumes: 2},
	{name: "driver, local grants, restart", hosts: 2, rounds: 1, modes: exclusive, locals: 1, bound: 1, settles: 1, crashes: 1, rejoin: true, resumes: 1},
	{name: "driver, local grants, removal", hosts: 2, rounds: 1, modes: exclusive, locals: 1, bound: 1, removes: 1, resumes: 1},
	{name: "driver", hosts: 2, rounds: 3, modes: exclusive, settles: 1, resumes: 2},
	{name: "driver", hosts: 3, rounds: 1, modes: exclusive, resumes: 1},
	{name: "driver, mixed", hosts: 3, rounds: 1, modes: mixed, resumes: 1},
	{name: "driver, permits", hosts: 3, rounds: 1, permits: 2, modes: exclusive, resumes: 1},
	{name: "driver, mixed, cancel", hosts: 2, rounds: 2, modes: mixed, cancels: 1, resumes: 1},
	{name: "driver, permits", hosts: 2, rounds: 2, permits: 2, modes: mixed, settles: 1, resumes: 2},
	{name: "driver, changes of mode", hosts: 2, rounds: 2, modes: mixed, changes: 1, resumes: 1},
	{name: "driver, restart", hosts: 2, rounds: 2, modes: exclusive, crashes: 1, rejoin: true, resumes: 1},
	{name: "driver, bad slot, restart", hosts: 2, rounds: 1, modes: exclusive, corrupt: 1, crashes: 1, rejoin: true, resumes: 1},
	{name: "driver, removal, cancel", hosts: 2, rounds: 1, modes: exclusive, removes: 1, cancels: 1, resumes: 2},
	{name: "driver, removal of permits", hosts: 2, rounds: 1, permits: 2, modes: mixed, removes: 2, resumes: 1},
	{name: "driver, removal, restart", hosts: 2, rounds: 1, modes: exclusive, removes: 1, crashes: 1, rejoin: true, resumes: 1},
	{name: "driver, removal, bad slot", hosts: 2, rounds: 1, modes: exclusive, removes: 1, corrupt: 1, resumes: 1},
	{name: "driver, removal, bad slot, again", hosts: 2, rounds: 2, modes: exclusive, removes: 1, corrupt: 1, resumes: 1},
}

// onMembers returns the scenarios in which a write may reach fewer than a majority, with a lockspace of
// three members. It leaves out those that would take as long as all others together.
func onMembers(list []scenario) (several []scenario) {
	for _, sc := range list {
		long := sc.hosts > 2 && sc.crashes+sc.cancels > 0 || sc.removes > 0 && sc.rejoin && sc.rounds > 1
		if sc.crashes+sc.resumes > 0 && !long {
			sc.name, sc.minority = "3 members, "+sc.name, 1
			several = append(several, sc)
		}
	}
	return several
}

// fiveMembers are scenarios with two writes of a slot that reach fewer than a majority.
var fiveMembers = []scenario{
	{name: "5 members, deaths", hosts: 2, rounds: 1, modes: exclusive, settles: 1, crashes: 2, rejoin: true, minority: 2},
	{name: "5 members, deaths, cancel", hosts: 2, rounds: 1, modes: exclusive, cancels: 1, crashes: 2, rejoin: true, minority: 2},
	{name: "5 members, driver", hosts: 2, rounds: 2, modes: exclusive, settles: 1, resumes: 2, minority: 2},
	{name: "5 members, driver, deaths", hosts: 2, rounds: 1, modes: exclusive, crashes: 2, rejoin: true, resumes: 1, minority: 2},
}

// ofRun returns the items that the flags select: the small ones, all quick ones, or all.
func ofRun[T any](small, medium, large []T) []T {
	switch {
	case *full:
		return slices.Concat(small, medium, large)
	case *quick:
		return slices.Concat(small, medium)
	}
	return small
}

func TestExplore(t *testing.T) {
	list := ofRun(smallScenarios, mediumScenarios, largeScenarios)
	list = append(ofRun(onMembers(smallScenarios), onMembers(mediumScenarios), append(onMembers(largeScenarios), fiveMembers...)), list...)
	t.Run("all", func(t *testing.T) {
		for _, sc := range list {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				check(t, sc.complete().renumbered(usualGap))
			})
		}
	})
}

// Renumbering changes no verdict: the unchanged numbers lead to the same one. Where a lock is
// removed, unchanged numbers would grow without end; there a wide gap replaces "no gap".
func TestExplore_NumbersAsTheyAre_SameVerdicts(t *testing.T) {
	for _, sc := range ofRun(smallScenarios, mediumScenarios, nil) {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			sc = sc.complete()
			if sc.removes > 0 {
				sc = sc.renumbered(8)
			}
			check(t, sc)
		})
	}
}

func (sc scenario) complete() scenario {
	if sc.clocks == nil {
		sc.clocks = noClock
	}
	sc.permits = max(sc.permits, 1)
	return sc
}
