package lease

import (
	"flag"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

var moreStalls = flag.Int("lease.stalls", 0, "explore with this number of additional stalls")

// The hosts of the explorer: a and b of two machines, and a copy of a's.
var (
	hostA    = Config{ID: 1, Self: layout.HostRecord{Name: "a", MachineID: machineID(1), BootID: machineID(1)}}
	hostB    = Config{ID: 1, Self: layout.HostRecord{Name: "b", MachineID: machineID(2), BootID: machineID(2)}}
	hostCopy = Config{ID: 1, Self: layout.HostRecord{Name: "c", MachineID: machineID(1), BootID: machineID(3)}}
)

// past returns a record of an earlier host.
func past(state layout.HostState, machine byte) layout.HostRecord {
	return layout.HostRecord{ID: 1, Incarnation: 900, State: state, Sequence: 7, Name: "z", MachineID: machineID(machine), BootID: machineID(9)}
}

type scenario struct {
	hosts  []Config
	disk   layout.HostRecord
	ghost  []layout.HostRecord
	known  bool // this machine knows that the record's host ended cleanly
	stalls int
	medium bool // not explored by every run
}

func (s scenario) world() *world {
	cfgs := append([]Config(nil), s.hosts...)
	if s.known {
		for i := range cfgs {
			cfgs[i].Left = []uint64{s.disk.Incarnation}
		}
	}
	w := newWorld(1, cfgs...)
	w.disk[0] = s.disk
	w.disk[0].ID = 1
	w.ghost, w.stalls = s.ghost, s.stalls
	return w
}

// claimHorizon is more than four leases: a record that says joining takes the longest.
const claimHorizon = 250 * unit

// Those that are not medium have fewer than 80,000 states.
var scenarios = map[string]scenario{
	"blank":           {hosts: []Config{hostA, hostB}, stalls: 1},
	"left, known":     {hosts: []Config{hostA, hostB}, disk: past(layout.StateLeft, 1), known: true, stalls: 1},
	"left":            {hosts: []Config{hostA, hostB}, disk: past(layout.StateLeft, 1), stalls: 1},
	"copied":          {hosts: []Config{hostA, hostCopy}, stalls: 1, medium: true},
	"copied, dead":    {hosts: []Config{hostA, hostCopy}, disk: past(layout.StateLive, 1), stalls: 1, medium: true},
	"copied, joining": {hosts: []Config{hostA, hostCopy}, disk: past(layout.StateJoining, 1), stalls: 1, medium: true},

	// The write of a dead host lands at any time. A left record lands a second time if the path
	// to the device failed before the acknowledgement and the write was sent again.
	"left, lands twice":   {hosts: []Config{hostA, hostB}, disk: past(layout.StateLeft, 3), ghost: []layout.HostRecord{past(layout.StateLeft, 3)}, stalls: 1, medium: true},
	"joining, lands late": {hosts: []Config{hostA, hostB}, ghost: []layout.HostRecord{past(layout.StateJoining, 2)}},
	"live, lands late":    {hosts: []Config{hostA, hostB}, ghost: []layout.HostRecord{past(layout.StateLive, 2)}},
}

// deepScenarios take long: they are explored with -lease.deep.
var deepScenarios = map[string]scenario{
	"joining, lands late, stalls": {hosts: []Config{hostA, hostB}, ghost: []layout.HostRecord{past(layout.StateJoining, 2)}, stalls: 1},
}

// TestClaim explores two joiners of one id: SINGLE, ONE-WRITE, T0-FIRST and FINAL.
func TestClaim(t *testing.T) {
	all := maps.Clone(scenarios)
	if *deep {
		maps.Copy(all, deepScenarios)
	}
	for name, s := range all {
		if s.medium && !*quick && !*deep {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.stalls += *moreStalls
			begin := time.Now()
			e := explore(s.world(), claimHorizon)
			if e.found != "" {
				t.Fatalf("%s is broken:\n%s", e.found, e.at.story())
			}
			require.True(t, e.wentLive)
			t.Logf("%d states with %d stalls in %v", len(e.seen), s.stalls, time.Since(begin).Round(time.Millisecond))
		})
	}
}

// TestClaimMutations shows that the explorer catches each rule that is left out.
func TestClaimMutations(t *testing.T) {
	if !mutating(t) {
		return
	}
	for _, c := range []struct {
		name     string
		mutation mutation
		scenario string
		stalls   int
		broken   string
	}{
		{"budgets not measured", noBudget, "blank", 1, "SINGLE"},
		{"no wait before the look", noWait, "blank", 0, "SINGLE"},
		{"t0 taken after the write", lateT0, "blank", 1, "T0-FIRST"},
		{"expiry revived", revive, "blank", 2, "FINAL"},
		{"short claim of any that left", shortLeft, "left, lands twice", 0, "SINGLE"},
		{"a reboot is proof of death", rebooted, "joining, lands late", 0, "SINGLE"},
		{"a reboot is proof of death, of a copy", rebooted, "copied", 1, "SINGLE"},
		{"short claim of a joining that stood still", shortStill, "copied", 1, "SINGLE"},
	} {
		if c.stalls > 1 && !*deep {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := scenarios[c.scenario]
			s.stalls = c.stalls
			w := s.world()
			w.mutate(c.mutation)
			e := explore(w, claimHorizon)
			require.Equal(t, c.broken, e.found)
			t.Logf("found after %d states", len(e.seen))
		})
	}
}

// TestClaimHides shows why VOID needs more than another incarnation in the record: a slow claim,
// which will give way or wait, hides a live host's record.
func TestClaimHides(t *testing.T) {
	s := scenarios["blank"]
	s.stalls = 1
	require.True(t, explore(s.world(), claimHorizon).hidden)
}

// TestClaimSucceeds: without delays one of two joiners goes live, by the short or the long claim.
func TestClaimSucceeds(t *testing.T) {
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			s.stalls, s.ghost = 0, nil
			w := s.world()
			w.calm = true
			e := explore(w, claimHorizon)
			require.Empty(t, e.found)
			for _, w := range e.ends {
				held := 0
				for i := range w.nodes {
					if w.nodes[i].m.Live(w.now) {
						held++
					}
				}
				require.Equal(t, 1, held, "\n%s", w.story())
			}
			require.NotEmpty(t, e.ends)
		})
	}
}
