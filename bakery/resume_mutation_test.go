package bakery

import (
	"testing"

	"github.com/bakeryd/bakeryd/layout"
)

// resuming returns a mutation that changes the arguments or the effect of Resume.
func resuming(f func(m *Machine, slot Slot, entered bool) Action) *mutation {
	return &mutation{resume: f}
}

var restarting = with(twoByTwo, func(sc *scenario) { sc.settles, sc.resumes = 0, 1 })

var resumeMutations = []mutated{
	{"a claim is resumed as a hold", "EXCLUSION", restarting,
		resuming(func(m *Machine, slot Slot, entered bool) Action {
			return m.Resume(slot, entered || slot.Phase == layout.Choosing)
		})},
	{"a place in the queue is resumed as a hold", "EXCLUSION", restarting,
		resuming(func(m *Machine, slot Slot, entered bool) Action {
			return m.Resume(slot, entered || slot.Phase == layout.Waiting)
		})},
	{"the note of a hold outlives it", "EXCLUSION", restarting, &mutation{keepNote: true}},
	{"the note of a hold is lost", "TOKENS", restarting,
		resuming(func(m *Machine, slot Slot, _ bool) Action { return m.Resume(slot, false) })},
	{"the doorway is left by entering", "EXCLUSION", restarting,
		resuming(func(m *Machine, slot Slot, entered bool) Action {
			if a := m.Resume(slot, entered); slot.Phase != layout.Choosing || m.step != stepWithdraw {
				return a
			}
			return m.enter()
		})},
	{"a claim is made again, with a smaller ticket", "TOKENS", restarting,
		resuming(func(m *Machine, slot Slot, entered bool) Action {
			last := m.last
			a := m.Resume(slot, entered)
			if slot.Phase != layout.Choosing || m.step != stepWithdraw {
				return a
			}
			m.last = last
			return m.claim()
		})},
	{"the own ticket is not learned from an idle slot", "TOKENS", restarting,
		resuming(func(m *Machine, slot Slot, entered bool) Action {
			last := m.last
			a := m.Resume(slot, entered)
			if a.Kind == Done {
				m.last = last
			}
			return a
		})},
	{"a place in the queue is given a new ticket", "ORDER", restarting,
		resuming(func(m *Machine, slot Slot, entered bool) Action {
			a := m.Resume(slot, entered)
			if m.step != stepWait {
				return a
			}
			return m.claim()
		})},
	{"a write that was read never lands", "EXCLUSION",
		with(restarting, func(sc *scenario) { sc.cancels = 1 }), &mutation{flicker: true}},
	{"an upgrade under way is resumed as one that succeeded", "EXCLUSION",
		with(restarting, func(sc *scenario) { sc.modes, sc.changes = mixed, 1 }), &mutation{keepMode: true}},
	{"NEWEST: a mark is taken back without a look at the entry", "EXCLUSION",
		with(removing, func(sc *scenario) { sc.resumes = 1 }),
		&mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
			if m.step == stepReturn {
				return m.DirectoryRead(m.cfg.Creation)
			}
			return report(m)
		}}},
	{"NEWEST: a mark is resumed as a hold", "EXCLUSION",
		with(removing, func(sc *scenario) { sc.resumes = 1 }),
		resuming(func(m *Machine, slot Slot, entered bool) Action {
			if slot.Incarnation == m.cfg.Incarnation && slot.Creation > m.cfg.Creation {
				slot.Creation = m.cfg.Creation
			}
			return m.Resume(slot, entered)
		})},
}

// TestResumeMutations leaves out each rule of a driver's restart, in turn.
func TestResumeMutations(t *testing.T) { findAll(t, resumeMutations) }
