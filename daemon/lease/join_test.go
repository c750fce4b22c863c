package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestNew_ImpossibleConfig_Panics(t *testing.T) {
	require.Panics(t, func() { New(Config{Hosts: 4, ID: 5, Times: times}) })
	require.Panics(t, func() { New(Config{Hosts: 4, ID: 1}) })
	require.Panics(t, func() { New(Config{Hosts: 4, ID: 1, Times: times, Policy: layout.PolicyManual + 1}) })
}

// TestJoinFree: which free records are claimed the short way; sequences continue.
func TestJoinFree(t *testing.T) {
	for _, c := range []struct {
		name  string
		state layout.HostState
		left  uint64 // known to have left
		wait  time.Duration
	}{
		{"blank", layout.StateBlank, 0, times.ShortWait()},
		{"left", layout.StateLeft, 0, times.LongWait()},
		{"left, known", layout.StateLeft, 7, times.ShortWait()},
		{"left, another is known", layout.StateLeft, 8, times.LongWait()},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{ID: 2, Left: []uint64{5, c.left, 6}})
			if c.state != layout.StateBlank {
				r.set(2, c.state, 1, 7, 40)
			}
			before := r.table[1].Sequence
			r.start()
			r.read(time.Millisecond)
			first := want[Write](r).Record
			require.Equal(t, before+1, first.Sequence)
			require.EqualValues(t, 101, first.Incarnation)
			require.Equal(t, "self", first.Name)
			require.Equal(t, c.wait, r.join())
			require.Equal(t, before+2, r.table[1].Sequence)
			want[Ready](r)
			require.Equal(t, r.now-time.Millisecond+times.Lease, r.m.Deadline(), "from before the write")
			require.Equal(t, 2, r.m.ID())
			require.EqualValues(t, 101, r.m.Incarnation())
		})
	}
}

// TestJoinTaken: which ids are refused, and after what time.
func TestJoinTaken(t *testing.T) {
	t.Run("changing", func(t *testing.T) {
		for _, machine := range []byte{1, 2} { // also a copy of this machine's id
			r := newRig(t, Config{ID: 2})
			rec := r.set(2, layout.StateLive, machine, 7, 40)
			r.start()
			r.read(0)
			r.tick()
			rec.Sequence++
			r.read(0)
			reason := want[Refused](r).Reason
			require.ErrorIs(t, reason, ErrInUse)
			require.EqualError(t, reason, `host id 2, host "other": the host id is in use: wait for that host to leave, or choose another id`)
			require.True(t, r.m.Over())
		}
	})
	t.Run("still, another machine", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		r.set(2, layout.StateLive, 2, 7, 40)
		begin := r.now
		for r.start(); !r.m.Over(); r.tick() {
			if r.read(0); r.m.Over() {
				break
			}
		}
		reason := want[Refused](r).Reason
		require.ErrorIs(t, reason, ErrNotLeft)
		require.ErrorContains(t, reason, `host id 2, host "other": `)
		require.GreaterOrEqual(t, r.now-begin, times.Alive())
		require.Less(t, r.now-begin, times.Alive()+2*times.Retry())
	})
	t.Run("left while watched", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		rec := r.set(2, layout.StateLive, 2, 7, 40)
		r.start()
		r.read(0)
		r.tick()
		rec.State, rec.Sequence = layout.StateLeft, 41
		r.read(0)
		require.Equal(t, times.LongWait(), r.join())
	})
}

// TestJoinDead: the id of a dead host is taken by its own machine (KEEP-OUT).
func TestJoinDead(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Record)
		dead   time.Duration // time for which it must have stood still
		wait   time.Duration
	}{
		{"live", func(*Record) {}, times.Dead(), times.ShortWait()},
		{"another boot", func(r *Record) { r.BootID = machineID(9) }, times.Dead(), times.ShortWait()},
		{"watchdog", func(r *Record) { r.WatchdogArmed, r.WatchdogSeconds = true, 60 }, times.Dead() + time.Minute, times.ShortWait()},
		{"watchdog not armed", func(r *Record) { r.WatchdogSeconds = 60 }, times.Dead(), times.ShortWait()},
		{"joining", func(r *Record) { r.State = layout.StateJoining }, times.Dead() + 2*times.Alive(), times.LongWait()},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{ID: 2})
			c.change(r.set(2, layout.StateLive, 1, 7, 40))
			begin, told := r.now, false
			for r.start(); ; r.tick() {
				r.read(0)
				if d, ok := got[Delayed](r); ok && !told {
					told = true
					require.ErrorIs(t, d.Reason, ErrNotLeft)
					require.Equal(t, begin+c.dead, d.Until)
				}
				if _, ok := got[Write](r); ok {
					break
				}
			}
			require.True(t, told)
			require.GreaterOrEqual(t, r.now-begin, c.dead)
			require.Less(t, r.now-begin, c.dead+2*times.Retry())
			require.Equal(t, c.wait, r.join())
		})
	}
	t.Run("verdict", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		r.set(2, layout.StateLive, 1, 7, 40)
		r.set(3, layout.StateLive, 3, 8, 1).Verdicts = []layout.Verdict{{Host: 2, Incarnation: 7}}
		r.start()
		r.read(0)
		require.Equal(t, times.LongWait(), r.join())
	})
	t.Run("verdict, another machine", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		r.set(2, layout.StateLive, 2, 7, 40)
		r.set(3, layout.StateLive, 3, 8, 1).Verdicts = []layout.Verdict{{Host: 2, Incarnation: 7}}
		r.start()
		r.read(0)
		none[Write](r)
	})
}

func TestJoinUnreadable(t *testing.T) {
	r := newRig(t, Config{ID: 2})
	r.table[1].Err = errSim
	r.start()
	begin := r.now
	for r.read(0); !r.m.Over(); r.read(0) {
		r.tick()
	}
	require.ErrorIs(t, want[Refused](r).Reason, ErrUnreadable)
	require.ErrorIs(t, want[Refused](r).Reason, errSim)
	require.GreaterOrEqual(t, r.now-begin, times.Alive())

	r = newRig(t, Config{ID: 2})
	r.table[1].Err = errSim
	r.start()
	r.read(0)
	r.tick()
	r.table[1].Err = nil
	r.read(0)
	r.join()
}

// TestJoinAuto: which id is chosen.
func TestJoinAuto(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*rig)
		want int
	}{
		{"lowest blank", func(r *rig) { r.set(1, layout.StateLive, 2, 7, 1) }, 2},
		{"left by this machine", func(r *rig) { r.set(3, layout.StateLeft, 1, 7, 1) }, 3},
		{"blank before left", func(r *rig) { r.set(1, layout.StateLeft, 2, 7, 1) }, 2},
		{"left by another", func(r *rig) {
			r.set(1, layout.StateLive, 2, 7, 1)
			r.set(2, layout.StateLive, 1, 7, 1) // dead or not: never
			r.set(3, layout.StateLeft, 3, 7, 1)
			r.table[3].Err = errSim
		}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{})
			c.set(r)
			r.start()
			r.read(0)
			require.Equal(t, c.want, want[Write](r).Record.ID)
		})
	}
	t.Run("known to have left", func(t *testing.T) {
		r := newRig(t, Config{Left: []uint64{9, 8}})
		r.set(1, layout.StateLeft, 1, 7, 1)
		r.set(2, layout.StateJoining, 1, 9, 1)
		r.set(3, layout.StateLeft, 1, 8, 1)
		r.start()
		r.read(0)
		require.Equal(t, 3, want[Write](r).Record.ID)
		require.Equal(t, times.ShortWait(), r.join())
	})
	t.Run("full", func(t *testing.T) {
		r := newRig(t, Config{})
		for id := 1; id <= 4; id++ {
			r.set(id, layout.StateJoining, 2, uint64(id), 1)
		}
		r.start()
		r.read(0)
		require.ErrorIs(t, want[Refused](r).Reason, ErrFull)
	})
	t.Run("the loser of a race takes another", func(t *testing.T) {
		r := newRig(t, Config{})
		r.start()
		r.read(0)
		r.write(0)
		r.tick()
		r.set(1, layout.StateJoining, 2, 7, 1)
		r.read(0)
		r.read(0)
		require.Equal(t, 2, want[Write](r).Record.ID)
		require.Equal(t, times.ShortWait(), r.join())
	})
}

// TestClaimBudget: a step over its budget starts the claim over, the long way, with another
// incarnation (BUDGET).
func TestClaimBudget(t *testing.T) {
	slow := times.ClaimBudget() + 1
	over := func(t *testing.T, r *rig) {
		t.Helper()
		r.read(0)
		require.Equal(t, layout.StateJoining, want[Write](r).Record.State)
		require.Equal(t, times.LongWait(), r.join())
	}
	t.Run("first read", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		r.start()
		r.read(slow)
		none[Write](r)
		over(t, r)
	})
	t.Run("read and first write together", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		r.start()
		r.read(slow / 2)
		r.write(slow/2 + 1)
		over(t, r)
		require.EqualValues(t, 102, r.m.Incarnation())
	})
	t.Run("second write", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		r.start()
		r.read(0)
		r.write(0)
		r.tick()
		r.read(0)
		r.write(slow)
		none[Joined](r)
		over(t, r)
		require.EqualValues(t, 102, r.m.Incarnation())
	})
	t.Run("just within", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		r.start()
		r.read(0)
		r.write(times.ClaimBudget())
		r.tick()
		r.read(0)
		r.write(times.ClaimBudget())
		want[Joined](r)
	})
	t.Run("long, over d", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		r.set(2, layout.StateLeft, 2, 7, 1)
		r.start()
		r.read(0)
		r.write(times.Budget() + 1)
		quiet := times.Dead() + 2*times.Alive()
		require.Equal(t, r.now+quiet, want[Wait](r).Until, "others see it settled (QUIET)")
		r.tick()
		over(t, r)
	})
	t.Run("first write fails", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		r.start()
		r.read(0)
		r.out = r.m.WriteFailed(r.now)
		require.Equal(t, r.now+times.Retry(), want[Wait](r).Until)
		r.tick()
		over(t, r)
	})
}

func TestClaimLost(t *testing.T) {
	r := newRig(t, Config{ID: 2})
	r.start()
	r.read(0)
	r.write(0)
	r.tick()
	rec := r.set(2, layout.StateJoining, 2, 7, 1)
	r.read(0)
	none[Write](r)
	r.read(0)
	r.tick()
	rec.State, rec.Sequence = layout.StateLive, 2
	r.read(0)
	require.ErrorIs(t, want[Refused](r).Reason, ErrInUse)
}

// TestClaimTorn: a record that cannot be read at the look neither stands nor is lost.
func TestClaimTorn(t *testing.T) {
	r := newRig(t, Config{ID: 2})
	r.start()
	r.read(0)
	r.write(0)
	r.tick()
	r.table[1].Err = errSim
	r.read(0)
	none[Write](r)
	r.tick()
	r.table[1].Err = nil
	r.read(0)
	r.write(0)
	want[Joined](r)
}

func TestLoseWhileJoining(t *testing.T) {
	r := newRig(t, Config{ID: 2})
	r.start()
	r.out = r.m.Lose(r.now, errSim)
	require.ErrorIs(t, want[Refused](r).Reason, errSim)
	r.deliver(r.m.extent)
	require.Empty(t, r.out)
}
