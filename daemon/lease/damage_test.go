package lease

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestDamage_RuleLeftOut_IsNoticed tests each rule about records that stay unreadable, with and
// without the rule.
func TestDamage_RuleLeftOut_IsNoticed(t *testing.T) {
	mutating := mutating(t)
	blind := times.Blind() + times.MaxWatchdog()
	// with returns host 1, live together with host 2, whose record has been seen.
	with := func(t *testing.T, mutation mutation) (*rig, *Record) {
		r := live1(t)
		r.m.mutate(mutation)
		other := r.set(2, layout.StateLive, 2, 20, 1)
		r.m.readHorizon = 2
		r.run(r.now + times.Alive())
		require.Equal(t, uint64(20), r.m.Host(2).Incarnation)
		return r, other
	}
	verdicts := func(r *rig) []layout.Verdict { return r.table[0].Verdicts }
	for _, c := range []struct {
		name     string
		mutation mutation
		holds    func(t *testing.T, mutation mutation) bool
	}{
		{"OWN-READABLE: a host that cannot read its own record loses its lease", ownBlind, func(t *testing.T, mutation mutation) bool {
			r := live1(t)
			r.m.mutate(mutation)
			r.damage(1)
			r.run(r.now + times.Blind())
			return r.m.Over()
		}},
		{"OWN-READABLE: a term begins within a budget of the read before it", lateRead, func(t *testing.T, mutation mutation) bool {
			r := live1(t)
			r.m.mutate(mutation)
			r.tick()
			asked := r.now
			r.read(3 * times.Budget())
			r.write(0)
			return want[Renewed](r).Deadline <= asked+times.Budget()+times.Lease
		}},
		{"ABANDONED: not before the longest watchdog has run out", abandonedEarly, func(t *testing.T, mutation mutation) bool {
			r, _ := with(t, mutation)
			r.damage(2)
			begin := r.now
			r.run(begin + blind - times.Watch())
			early := r.m.Host(2).Abandoned
			r.run(begin + blind + times.Alive() + times.Watch())
			require.True(t, r.m.Host(2).Abandoned)
			return !early
		}},
		{"ABANDONED: reads that lie far apart are no span", sparse, func(t *testing.T, mutation mutation) bool {
			r := newRig(t, Config{ID: 2, Had: []int{2}})
			r.m.mutate(mutation)
			r.damage(2)
			r.start()
			r.read(0)
			r.tickAt(r.now + 2*blind)
			r.read(0)
			_, claims := got[Write](r)
			return !claims
		}},
		{"a joiner that was overwritten is not known to be over", endedJoiner, func(t *testing.T, mutation mutation) bool {
			r, other := with(t, mutation)
			other.State, other.Incarnation = layout.StateJoining, 21
			r.run(r.now + times.Alive())
			other.State, other.Incarnation = layout.StateLive, 22
			for range 4 {
				other.Sequence++
				r.run(r.now + times.Alive())
			}
			require.True(t, r.m.Host(2).Settled)
			return !r.m.Host(2).Over(21)
		}},
		{"COVERED: a joiner waits until a host hidden by a record is over", coverDamaged, func(t *testing.T, mutation mutation) bool {
			r := newRig(t, Config{ID: 1})
			r.m.mutate(mutation)
			r.damage(3)
			r.start()
			r.read(0)
			r.join()
			early := r.m.Ready()
			r.run(r.now + times.Blind() + times.Alive())
			require.True(t, r.m.Ready())
			return !early
		}},
		{"COVERED: a joiner waits for the look of one behind the record", foundAlways, func(t *testing.T, mutation mutation) bool {
			r := newRig(t, Config{ID: 1})
			r.m.mutate(mutation)
			r.set(1, layout.StateLive, 1, 10, 1)
			r.table[0].MachineID = r.m.cfg.Self.MachineID
			r.damage(3)
			r.start()
			var stood time.Duration
			for ; !r.m.Ready() && !r.m.Over(); r.run(r.now + times.Poll()) {
				if r.m.stands >= 0 && stood == 0 {
					stood = r.m.stands
				}
			}
			return r.now-stood >= times.Unseen()
		}},
		{"DEAD: the span of an unreadable record counts from its damage", judgeDamaged, func(t *testing.T, mutation mutation) bool {
			r, _ := with(t, mutation)
			r.run(r.m.Host(2).Since + times.Dead() - times.Alive())
			r.damage(2)
			begin := r.now
			r.run(begin + 2*times.Alive())
			early := len(verdicts(r)) > 0
			r.run(begin + times.Blind() + 2*times.Alive())
			require.NotEmpty(t, verdicts(r))
			return !early
		}},
		{"an operator's word waits for a record that may be torn", evictTorn, func(t *testing.T, mutation mutation) bool {
			r, other := with(t, mutation)
			r.run(r.now + times.Alive()) // it is late
			actions, err := r.m.Evict(r.now, 2, 20, false)
			require.NoError(t, err)
			r.out = actions
			other.Err = errSim
			r.read(0)
			_, published := got[Write](r)
			if published {
				r.write(0)
			}
			return !slices.ContainsFunc(verdicts(r), func(v layout.Verdict) bool { return v.Kind == layout.VerdictDead })
		}},
		{"SINGLE: an abandoned id is claimed the long way", shortDamaged, func(t *testing.T, mutation mutation) bool {
			r := newRig(t, Config{ID: 2, Had: []int{2}})
			r.m.mutate(mutation)
			r.table[1].Err = errSim
			r.start()
			for _, claims := got[Write](r); !claims; _, claims = got[Write](r) {
				if _, ok := got[ReadTable](r); ok {
					r.read(0)
				} else {
					r.tick()
				}
			}
			require.GreaterOrEqual(t, r.now-time.Hour, blind)
			return r.join() >= times.LongWait()
		}},
		{"KEEP-OUT: under policy manual an abandoned id is not taken", hadSuffices, func(t *testing.T, mutation mutation) bool {
			r := newRig(t, Config{ID: 2, Had: []int{2}, Policy: layout.PolicyManual})
			r.m.mutate(mutation)
			r.damage(2)
			r.start()
			r.run(r.now + 2*times.Alive())
			return r.m.Over()
		}},
		{"QUIET: a long claim that failed is not repeated immediately", noBackoff, func(t *testing.T, mutation mutation) bool {
			r := newRig(t, Config{ID: 2})
			r.m.mutate(mutation)
			r.start()
			for range 2 { // a short claim, and a long one
				r.read(0)
				r.write(times.Budget() + 1)
			}
			w, waits := got[Wait](r)
			return waits && w.Until >= r.now+times.Dead()+2*times.Alive()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.True(t, c.holds(t, sound))
			require.False(t, mutating && c.holds(t, c.mutation), "left out, and not noticed")
		})
	}
}

// TestJoin_OperatorAllows_AbandonedIDIsTaken: under any policy, and whichever machine had it.
func TestJoin_OperatorAllows_AbandonedIDIsTaken(t *testing.T) {
	r := newRig(t, Config{ID: 2, Reclaim: true, Policy: layout.PolicyManual})
	r.table[1].Err = errSim
	r.start()
	r.run(r.now + times.Blind() + times.MaxWatchdog() + times.LongWait() + 2*times.Alive())
	require.True(t, r.m.Live(r.now))
}
