package lease

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// severalScenario is a world on three members. The invariants are those of one disk.
type severalScenario struct {
	world func(mutation) (*world, time.Duration)
	large bool // explored with -lease.deep only
	quick bool // explored by every run
}

// set puts a copy of a host record on a member.
func (w *world) set(member int, generation uint32, r layout.HostRecord) {
	r.Generation = generation
	w.copies[member][r.ID-1] = Copy{HostRecord: r, Read: true}
	if !slices.Contains(w.ids, r.ID) {
		w.ids = append(w.ids, r.ID)
	}
}

// onMembers returns a scenario of lives on three members.
func onMembers(l lives) func(mutation) (*world, time.Duration) {
	l.members = max(l.members, 3)
	return func(mu mutation) (*world, time.Duration) {
		w := l.world(mu)
		return w, l.horizon(w)
	}
}

// claims returns a scenario of two hosts that claim a blank id.
func claims(s several, stalls int) func(mutation) (*world, time.Duration) {
	return func(mu mutation) (*world, time.Duration) {
		w := newWorld(1, hostA, hostB)
		w.spread(3)
		w.mutate(mu)
		copies := w.copies
		w.several, w.stalls = s, stalls
		w.copies = copies
		return w, claimHorizon
	}
}

// The members that hosts reach if each has lost another one.
var apart = []uint8{0b011, 0b110}

var severalScenarios = map[string]severalScenario{
	"claims":                  {world: claims(several{strays: 1, misses: 1}, 0)},
	"claims, one late":        {world: claims(several{delays: 1}, 0), large: true},
	"claims, apart, one late": {world: claims(several{reach: []uint8{0b101, 0b111}, delays: 1}, 0)},

	// A host is live on two members, and one of a copied machine, which has lost another member, is
	// paused while it waits for its death. A write of an earlier host lands late.
	"late foreign copy": {large: true, world: func(mu mutation) (*world, time.Duration) {
		w := newWorld(1, hostA, hostCopy)
		w.spread(3)
		w.mutate(mu)
		w.stalled = 1 << itemOf(1, doStart)
		w.calmly(1)
		w.whole, w.reach, w.stalls, w.spared, w.trace = true, apart, 1, ^uint32(1<<itemOf(1, doTick)), nil
		w.late = []lateCopy{{member: 1, node: -1, Copy: Copy{HostRecord: past(layout.StateJoining, 2), Read: true}}}
		return w, w.now + 82*unit
	}},

	// Host 3 has evicted host 1 and has died half-way.
	"half-written verdict": {quick: true, world: onMembers(lives{hosts: 2, ids: 3, mortal: mortal{whole: true}, span: 40 * unit, prepare: func(w *world) {
		w.reach = []uint8{0b110, 0b011}
		r := layout.HostRecord{ID: 3, Incarnation: 900, State: layout.StateLive, Sequence: 7, ReadHorizon: 3, MachineID: machineID(3)}
		w.set(1, 1, r)
		w.set(2, 1, r)
		r.Sequence++
		r.Verdicts = []layout.Verdict{{Host: 1, Incarnation: w.nodes[0].m.Incarnation()}}
		w.set(0, 1, r)
		w.evicted = []uint64{w.nodes[0].m.Incarnation()}
	}})},

	"half-written left": {world: onMembers(lives{hosts: 2, span: 30 * unit,
		mortal: mortal{crashes: 1, leaves: 1, mayDie: 1, whole: true}, several: several{strays: 1}})},

	// Host 1 has found a host 4 that was on member 4 alone, and has died with its raised read horizon on
	// member 0. With three members a read that misses the one finds the other.
	"half-written horizon": {world: onMembers(lives{hosts: 2, late: 1, apart: 4, span: 15 * unit, members: 5,
		mortal: mortal{whole: true}, several: several{strays: 1}, prepare: func(w *world) {
			w.set(4, 1, layout.HostRecord{ID: 4, Incarnation: 900, State: layout.StateJoining, Sequence: 1, MachineID: machineID(4)})
			w.nodes[0].m.readHorizon, w.nodes[0].m.proven = 6, 6
			r := w.nodes[0].m.own
			r.Sequence, r.ReadHorizon = r.Sequence+1, 6
			w.set(0, w.nodes[0].m.own.Generation, r)
			w.do(0, doCrash)
			w.nodes[0].terms[1].ReadHorizon = 6
		}})},

	// An earlier process of host 2 has renewed its lease on one member only, and joins again on the
	// others.
	"minority writer": {quick: true, world: onMembers(lives{hosts: 2, late: 1, policy: layout.PolicyManual, span: 120 * unit, mortal: mortal{whole: true}, prepare: func(w *world) {
		w.reach = apart
		r := layout.HostRecord{ID: 2, Incarnation: 900, State: layout.StateLive, Sequence: 7, ReadHorizon: 2, MachineID: machineID(2)}
		w.set(1, 1, r)
		w.set(2, 1, r)
		r.Sequence = 20
		w.set(0, 1, r)
	}})},

	"crashed":        {world: onMembers(lives{hosts: 2, mortal: mortal{crashes: 1, mayDie: 1, whole: true}, several: several{strays: 1}}), large: true},
	"crashed, apart": {world: onMembers(lives{hosts: 2, mortal: mortal{crashes: 1, mayDie: 1, whole: true}, several: several{reach: apart}})},
	"paused, apart":  {world: onMembers(lives{hosts: 2, stalls: 1, stalled: holder, mortal: mortal{whole: true}, several: several{reach: apart}}), large: true},
	"evicted, apart": {world: onMembers(lives{hosts: 3, mortal: mortal{evicts: 1, whole: true}, several: several{reach: []uint8{0b011, 0b110, 0b101}}})},
}

// TestSeveral explores hosts whose table lies on three members.
func TestSeveral(t *testing.T) {
	for name, s := range severalScenarios {
		if s.large && !*deep || !s.quick && !*quick && !*deep {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			w, horizon := s.world(sound)
			e := explore(w, horizon)
			if e.found != "" {
				t.Fatalf("%s is broken:\n%s", e.found, e.at.story())
			}
			t.Logf("%d states in %v", len(e.seen), time.Since(begin).Round(time.Millisecond))
		})
	}
}

// TestSeveralMutations shows the hole that each rule for several members closes.
func TestSeveralMutations(t *testing.T) {
	if !mutating(t) {
		return
	}
	for _, c := range []struct {
		name     string
		mutation mutation
		scenario string
		broken   string
	}{
		{"late members count", countAll, "claims, apart, one late", "SINGLE"},
		{"acted on with a minority", minorityVerdict, "half-written verdict", "PUBLISHED"},
		{"stillness of the newest version alone", anyStill, "late foreign copy", "SINGLE"},
		{"term kept", keptTerm, "half-written left", "VOID"},
		{"horizon not noted", unnoted, "half-written horizon", "COVERED"},
		{"claims of one generation", sameGeneration, "minority writer", "VOID"},
	} {
		s := severalScenarios[c.scenario]
		if s.large && !*deep {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, horizon := s.world(c.mutation)
			e := explore(w, horizon)
			require.Equal(t, c.broken, e.found)
			if *shortest {
				t.Logf("\n%s", e.at.story())
			}
			t.Logf("found after %d states", len(e.seen))
		})
	}
}
