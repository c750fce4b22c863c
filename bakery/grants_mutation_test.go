package bakery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

var lending = with(twoByTwo, func(sc *scenario) { sc.settles, sc.locals, sc.bound = 0, 2, 1 })

var localMutations = []mutated{
	{"local grants do not wait for a look", "BOUND", lending, &mutation{sightless: true}},
	{"a look that finds another host counts as one that finds none", "BOUND", lending, &mutation{deaf: true}},
	{"the bound counts from the end of a look", "BOUND",
		with(lending, func(sc *scenario) { sc.locals = 4 }), &mutation{lateMark: true}},
	{"a look of an earlier hold counts", "BOUND",
		with(lending, func(sc *scenario) { sc.locals = 4 }), &mutation{oldLook: true}},
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

// TestMachine_SharedOrSeveralPermits_DoesNotLinger: the explored local grants are exclusive, by one permit.
func TestMachine_SharedOrSeveralPermits_DoesNotLinger(t *testing.T) {
	for _, of := range []struct {
		mode    layout.Mode
		permits int
		may     bool
	}{{layout.Exclusive, 1, true}, {layout.Exclusive, 2, false}, {layout.Shared, 1, false}, {layout.Shared, 2, false}} {
		r := newRig(1, 2, func(cfg *Config) { cfg.Permits = of.permits })
		require.Equal(t, Granted, r.run(r.m.Acquire(Request{Mode: of.mode})).Kind)
		g := NewGrants(8, false)
		require.False(t, r.m.MayLinger(&g), "no client has had the lock")
		g.Next(r.m.Token())
		require.Equal(t, of.may, r.m.MayLinger(&g), "%v, %d permits", of.mode, of.permits)
	}
}
