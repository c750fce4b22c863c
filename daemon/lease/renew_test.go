package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestRenew(t *testing.T) {
	r := live1(t)
	t0 := r.m.Deadline() - times.Lease
	r.tick()
	require.Equal(t, t0+times.Renew(), r.now)
	r.read(time.Second)
	asked := r.now
	require.EqualValues(t, 3, r.write(2*time.Second).Sequence)
	require.Equal(t, asked+times.Lease, want[Renewed](r).Deadline, "from before the write (T0-FIRST)")
	require.Equal(t, asked+times.Renew(), want[Wait](r).Until)
	require.Equal(t, asked+times.Lease-times.Grace(), r.m.WarnAt())
}

// TestRenewDisowned: a foreign own record or a verdict ends the lease immediately (OWN).
func TestRenewDisowned(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*rig)
		want   error
	}{
		{"foreign", func(r *rig) { r.set(1, layout.StateJoining, 2, 7, 9) }, ErrForeign},
		{"blank", func(r *rig) { r.table[0] = Record{} }, ErrForeign},
		{"rolled back", func(r *rig) { r.table[0].Sequence-- }, ErrForeign},
		{"ahead", func(r *rig) { r.table[0].Sequence++ }, ErrForeign},
		{"verdict", func(r *rig) {
			r.set(3, layout.StateLive, 3, 8, 1).Verdicts = []layout.Verdict{{Host: 1, Incarnation: 101}}
		}, ErrVerdict},
		{"verdict of one that left", func(r *rig) {
			r.set(3, layout.StateLeft, 3, 8, 1).Verdicts = []layout.Verdict{{Host: 1, Incarnation: 101}}
		}, ErrVerdict},
		{"verdict, own record unreadable", func(r *rig) {
			r.table[0].Err = errSim
			r.set(3, layout.StateLive, 3, 8, 1).Verdicts = []layout.Verdict{{Host: 1, Incarnation: 101}}
		}, ErrVerdict},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := live1(t)
			r.tick()
			r.read(0)
			r.write(0)
			r.tick()
			c.change(r)
			r.read(0)
			require.ErrorIs(t, want[Lost](r).Reason, c.want)
			none[Write](r)
			require.False(t, r.m.Live(r.now))
			require.False(t, r.m.MayWrite(r.now))
		})
	}
	t.Run("verdict on an earlier incarnation", func(t *testing.T) {
		r := live1(t)
		r.tick()
		r.set(3, layout.StateLive, 3, 8, 1).Verdicts = []layout.Verdict{{Host: 1, Incarnation: 100}}
		r.read(0)
		want[Write](r)
	})
}

// TestRenewRepairs: the renewal rewrites an unreadable own record.
func TestRenewRepairs(t *testing.T) {
	r := live1(t)
	r.tick()
	r.table[0].Err = errSim
	r.read(0)
	r.write(0)
	none[Renewed](r)
	r.tick()
	r.read(0)
	want[Renewed](r)
}

func TestRenewErrors(t *testing.T) {
	r := live1(t)
	deadline := r.m.Deadline()
	r.tick()
	r.out = r.m.ReadFailed(r.now)
	require.Equal(t, r.now+times.Retry(), want[Wait](r).Until)
	r.tick()
	r.read(0)
	want[Write](r)
	r.out = r.m.WriteFailed(r.now) // it did not land
	require.Equal(t, r.now+times.Retry(), want[Wait](r).Until)
	r.tick()
	r.read(0)
	require.EqualValues(t, 4, r.land().Sequence)
	r.out = r.m.WriteFailed(r.now) // it did land
	r.tick()
	r.read(0)
	require.EqualValues(t, 5, r.write(0).Sequence)
	require.Greater(t, want[Renewed](r).Deadline, deadline)
}

// TestExpiry: FINAL and LAST-CALL.
func TestExpiry(t *testing.T) {
	d := times.Budget()
	t.Run("by the clock alone", func(t *testing.T) {
		r := live1(t)
		deadline := r.m.Deadline()
		r.tick() // the read hangs
		require.Equal(t, deadline, want[Wait](r).Until)
		require.True(t, r.m.MayWrite(deadline-d-1))
		require.False(t, r.m.MayWrite(deadline-d))
		require.True(t, r.m.Live(deadline-1))
		require.False(t, r.m.Live(deadline))
		r.tick()
		require.ErrorIs(t, want[Lost](r).Reason, ErrExpired)
		r.deliver(r.m.extent)
		require.Empty(t, r.out)
	})
	t.Run("acknowledged within the lease", func(t *testing.T) {
		r := live1(t)
		deadline := r.m.Deadline()
		r.tickAt(deadline - d - 1)
		r.read(0)
		r.write(d)
		require.Equal(t, deadline-d-1+times.Lease, want[Renewed](r).Deadline)
	})
	t.Run("acknowledged late", func(t *testing.T) {
		r := live1(t)
		r.tick()
		r.read(0)
		r.write(r.m.Deadline() - r.now)
		require.ErrorIs(t, want[Lost](r).Reason, ErrExpired)
		none[Renewed](r)
		require.False(t, r.m.Writing())
	})
	t.Run("lost with a write under way", func(t *testing.T) {
		r := live1(t)
		r.tick()
		r.read(0)
		want[Write](r)
		r.tickAt(r.m.Deadline())
		want[Lost](r)
		require.True(t, r.m.Writing())
		r.out = r.m.Written(r.now)
		require.False(t, r.m.Writing())
	})
	t.Run("nothing is written in the last d", func(t *testing.T) {
		r := live1(t)
		r.tick()
		r.read(r.m.Deadline() - d - r.now)
		none[Write](r)
		require.Equal(t, r.m.Deadline(), want[Wait](r).Until)
	})
	t.Run("the superblock is another", func(t *testing.T) {
		r := live1(t)
		r.out = r.m.Lose(r.now, errSim)
		require.ErrorIs(t, want[Lost](r).Reason, errSim)
	})
}

func TestRefresh(t *testing.T) {
	r := live1(t)
	r.out = r.m.Refresh(r.now)
	want[ReadTable](r)
	first := r.now
	r.now++
	r.out = r.m.Refresh(r.now) // one is under way, begun before
	none[ReadTable](r)
	second := r.now
	r.deliver(r.m.extent)
	require.Equal(t, first, r.m.Host(1).Read)
	r.read(0)
	require.Equal(t, second, r.m.Host(1).Read)
	none[ReadTable](r)
	none[Write](r)
}

// TestReady: no tickets before all are known to cover this host (COVERED).
func TestReady(t *testing.T) {
	t.Run("polls until covered, and renews", func(t *testing.T) {
		r := newRig(t, Config{ID: 4})
		other := r.set(1, layout.StateLive, 2, 7, 1)
		other.ReadHorizon = 3
		r.start()
		r.read(0)
		r.join()
		none[Ready](r)
		require.False(t, r.m.Ready())
		require.True(t, r.m.MayWrite(r.now))
		begin, renewed := r.now, false
		for r.now < begin+times.Lease/2 {
			require.LessOrEqual(t, want[Wait](r).Until, r.now+times.Poll())
			r.tick()
			r.read(0)
			none[Ready](r)
			if _, ok := got[Write](r); ok {
				r.write(0)
				renewed = true
			}
		}
		require.True(t, renewed)
		other.ReadHorizon = 4
		r.tick()
		r.read(0)
		want[Ready](r)
		require.Greater(t, want[Wait](r).Until, r.now+times.Poll())
	})
	for _, c := range []struct {
		name  string
		set   func(*rig)
		ready bool
	}{
		{"covered", func(r *rig) { r.set(1, layout.StateLive, 2, 7, 1) }, true},
		{"joining may hide another", func(r *rig) { r.set(1, layout.StateJoining, 2, 7, 1) }, false},
		{"unreadable", func(r *rig) { r.table[0].Err = errSim }, false},
		{"left and covering", func(r *rig) { r.set(1, layout.StateLeft, 2, 7, 1) }, true},
		{"left, may hide another", func(r *rig) { r.set(1, layout.StateLeft, 2, 7, 1).ReadHorizon = 2 }, false},
		{"id used before", func(r *rig) {
			r.set(1, layout.StateLive, 2, 7, 1).ReadHorizon = 2
			r.set(4, layout.StateLeft, 2, 6, 1)
		}, true},
		{"id used before, by none that was ready", func(r *rig) {
			r.set(1, layout.StateLive, 2, 7, 1).ReadHorizon = 2
			r.set(4, layout.StateLeft, 2, 6, 1).ReadHorizon = 0
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{ID: 4, Left: []uint64{6}})
			c.set(r)
			r.start()
			r.read(0)
			r.join()
			require.Equal(t, c.ready, r.m.Ready())
		})
	}
}

// TestReadHorizon: the read horizon is raised before it is published, and has headroom (RAISED).
func TestReadHorizon(t *testing.T) {
	r := newRig(t, Config{ID: 1})
	r.m.cfg.Hosts = 9
	r.table = append(r.table, make([]Record, 5)...)
	r.m.hosts = make([]Host, 9)
	r.start()
	r.read(0)
	require.Equal(t, 3, want[Write](r).Record.ReadHorizon)
	r.write(0)
	r.tick()
	r.set(4, layout.StateJoining, 2, 7, 1)
	r.read(0)
	require.Equal(t, 6, r.m.ReadHorizon())
	require.Equal(t, 6, want[Write](r).Record.ReadHorizon)
	r.write(0)
	r.tick()
	r.table[5].Err = errSim // perhaps blank, perhaps a host's (FOUND)
	r.read(0)
	require.Equal(t, 6, r.m.ReadHorizon())
	r.table[5].Err = nil
	r.set(6, layout.StateJoining, 2, 7, 1)
	r.out = r.m.Refresh(r.now)
	r.read(0)
	require.Equal(t, 8, r.m.ReadHorizon())
	require.Equal(t, 8, want[Write](r).Record.ReadHorizon, "at once: somebody may be waiting for it")
}
