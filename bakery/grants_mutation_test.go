package bakery

import (
	"testing"

	"github.com/bakeryd/bakeryd/layout"
)

var lending = with(twoByTwo, func(sc *scenario) { sc.settles, sc.locals, sc.bound = 0, 2, 1 })

var localMutations = []mutated{
	{"local grants do not wait for a look", "BOUND", lending, &mutation{sightless: true}},
	{"a look that finds another host counts as one that finds none", "BOUND", lending, &mutation{deaf: true}},
	{"the bound counts from the end of a look", "BOUND",
		with(lending, func(sc *scenario) { sc.locals = 4 }), &mutation{lateMark: true}},
	{"TOKENS: a local grant has the token of the one before", "TOKENS", lending, &mutation{sameToken: true}},
	{"TOKENS: a waiting slot lingers", "TOKENS",
		with(lending, func(sc *scenario) { sc.resumes = 1 }),
		&mutation{lingers: func(m *Machine, g *Grants) bool { return m.ownSlot.Mode == layout.Exclusive && g.Open() }}},
	{"TOKENS: a claim that was granted is continued after a restart", "TOKENS",
		with(lending, func(sc *scenario) { sc.resumes = 1 }),
		resuming(func(m *Machine, slot Slot, entered bool) Action {
			a := m.Resume(slot, entered)
			if slot.Phase != layout.Choosing || m.step != stepWithdraw {
				return a
			}
			m.ownSlot.Phase = layout.Choosing
			return m.read(stepLook)
		})},
	{"TOKENS: a resumed hold serves local grants", "TOKENS",
		with(lending, func(sc *scenario) { sc.resumes = 1 }), &mutation{unused: true}},
}

// TestGrantsMutations leaves out each rule of local grants, in turn.
func TestGrantsMutations(t *testing.T) { findAll(t, localMutations) }
