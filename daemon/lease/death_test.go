package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease/evict"
	"github.com/bakeryd/bakeryd/layout"
)

// liveUnder returns a rig whose machine is live as host 1 under a policy, with host 3 live as
// incarnation 7. It also returns when that was first seen.
func liveUnder(t *testing.T, policy layout.Policy) (*rig, *Record, time.Duration) {
	t.Helper()
	return liveWith(t, Config{ID: 1, Policy: policy})
}

func liveWith(t *testing.T, cfg Config) (*rig, *Record, time.Duration) {
	t.Helper()
	r := newRig(t, cfg)
	r.start()
	r.read(0)
	r.join()
	rec := r.set(3, layout.StateLive, 3, 7, 1)
	r.look(time.Second)
	return r, rec, r.now
}

// until runs the machine without delays up to and including a time, and returns its
// notifications.
func (r *rig) until(end time.Duration) (told []Action) {
	r.t.Helper()
	for {
		var wake time.Duration = -1
		for _, a := range r.out {
			switch a := a.(type) {
			case ReadTable, Write:
			case Wait:
				wake = a.Until
			default:
				told = append(told, a)
			}
		}
		_, reads := got[ReadTable](r)
		_, writes := got[Write](r)
		switch {
		case reads:
			r.read(0)
		case writes:
			r.write(0)
		case wake >= 0 && wake <= end:
			r.now = max(r.now, wake)
			r.out = r.m.Tick(r.now)
		default:
			r.now = max(r.now, end)
			r.out = []Action{Wait{wake}}
			return told
		}
	}
}

func declared(told []Action) (all []Declared) {
	for _, a := range told {
		if d, ok := a.(Declared); ok {
			all = append(all, d)
		}
	}
	return all
}

// TestDeath: a host that stands still is declared dead exactly when its lease, margin and
// watchdog are over, and treated as dead when the verdict is durable.
func TestDeath(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Record)
		after  time.Duration
	}{
		{"no watchdog", func(*Record) {}, times.Dead()},
		{"watchdog", func(r *Record) { r.WatchdogArmed, r.WatchdogSeconds = true, 60 }, times.Dead() + time.Minute},
		{"watchdog not armed", func(r *Record) { r.WatchdogSeconds = 60 }, times.Dead()},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, rec, _ := liveUnder(t, layout.PolicyLease)
			rec.Sequence++
			c.change(rec)
			r.look(time.Second)
			since := r.now
			require.Equal(t, since, r.m.Host(3).Since)
			require.Equal(t, since+c.after, r.m.Host(3).DeadAt(times))
			require.Empty(t, declared(r.until(since+c.after-1)))
			require.True(t, r.m.Host(3).Overdue(times))
			require.False(t, r.m.Host(1).Overdue(times))

			r.now = since + c.after
			r.out = r.m.Tick(r.now)
			r.read(0)
			require.Equal(t, []layout.Verdict{{Host: 3, Incarnation: 7}}, r.land().Verdicts)
			require.False(t, r.m.Host(3).Gone, "not durable yet")
			r.ack(0)
			require.Equal(t, Declared{Host: 3, Incarnation: 7, Name: "other", By: 1}, want[Declared](r))
			want[Renewed](r)
			require.True(t, r.m.Host(3).Void(7))
			r.tick()
			require.Empty(t, declared(r.until(r.now+times.Dead())), "told once")
			require.Len(t, r.table[0].Verdicts, 1, "it stays published")
		})
	}
}

// TestDeath_NoProof_NoVerdict: these facts do not prove a death.
func TestDeath_NoProof_NoVerdict(t *testing.T) {
	later := 3 * times.Dead()
	t.Run("renewed meanwhile", func(t *testing.T) {
		r, rec, since := liveUnder(t, layout.PolicyLease)
		r.until(since + times.Dead() - time.Second)
		rec.Sequence++
		require.Empty(t, declared(r.until(since+2*times.Dead()-2*time.Second-times.Renew())))
	})
	t.Run("joining", func(t *testing.T) {
		r, rec, since := liveUnder(t, layout.PolicyLease)
		rec.Incarnation, rec.State = 8, layout.StateJoining
		require.Empty(t, declared(r.until(since+later)))
	})
	t.Run("unreadable", func(t *testing.T) {
		r, rec, _ := liveUnder(t, layout.PolicyLease)
		rec.Err = errSim
		damaged := r.now
		require.Empty(t, declared(r.until(damaged+times.Blind()-1)), "it may have renewed just before the damage")
		require.Len(t, declared(r.until(damaged+times.Blind()+2*times.Renew())), 1)
	})
	t.Run("manual", func(t *testing.T) {
		r, _, since := liveUnder(t, layout.PolicyManual)
		require.Empty(t, declared(r.until(since+later)))
		require.Empty(t, r.table[0].Verdicts)
	})
	t.Run("a read asked for too early", func(t *testing.T) {
		r, _, since := liveUnder(t, layout.PolicyLease)
		r.until(since + times.Dead() - 1)
		r.out = r.m.Refresh(r.now)
		r.read(time.Second)
		none[Write](r)
		r.read(0) // requested after it was due
		want[Write](r)
	})
	t.Run("before this host is live", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		r.set(2, layout.StateLive, 1, 9, 1)
		r.set(3, layout.StateLive, 3, 7, 1)
		r.start()
		begin := r.now
		for r.read(0); r.now < begin+times.Dead(); r.read(0) {
			none[Declared](r)
			r.tick()
		}
		r.join()
		r.tick()
		r.read(0)
		require.Len(t, r.write(0).Verdicts, 1, "but what it saw before counts")
	})
}

// TestDeathLost: the end of the lease, or a verdict on this host, comes before its verdicts on
// others.
func TestDeathLost(t *testing.T) {
	t.Run("acknowledged too late", func(t *testing.T) {
		r, _, since := liveUnder(t, layout.PolicyLease)
		r.until(since + times.Dead() - 1)
		r.tickAt(since + times.Dead())
		r.read(0)
		r.land()
		r.ack(times.Lease)
		want[Lost](r)
		none[Declared](r)
		require.False(t, r.m.Host(3).Gone)
	})
	t.Run("the write fails", func(t *testing.T) {
		r, _, since := liveUnder(t, layout.PolicyLease)
		r.until(since + times.Dead() - 1)
		r.tickAt(since + times.Dead())
		r.read(0)
		want[Write](r)
		r.out = r.m.WriteFailed(r.now)
		none[Declared](r)
		require.Equal(t, r.now+times.Retry(), want[Wait](r).Until)
		require.Len(t, declared(r.until(r.now+times.Retry())), 1)
	})
	t.Run("a write is under way", func(t *testing.T) {
		r, _, since := liveUnder(t, layout.PolicyLease)
		r.until(since + times.Dead() - times.Renew())
		r.tick()
		r.read(0)
		require.Less(t, r.now, since+times.Dead())
		r.land()
		r.ack(since + times.Dead() - r.now + 1)
		require.Len(t, declared(r.until(r.now)), 1)
	})
}

// TestDeathHeard: a verdict that is read counts, and is reported once with its author.
func TestDeathHeard(t *testing.T) {
	r, _, _ := liveUnder(t, layout.PolicyManual)
	r.set(4, layout.StateLive, 4, 9, 1).Verdicts = []layout.Verdict{{Host: 3, Incarnation: 7}, {Host: 3, Incarnation: 6}}
	told := declared(r.until(r.now + times.Dead()))
	require.Equal(t, []Declared{{Host: 3, Incarnation: 7, Name: "other", By: 4}}, told)
	r.table[3].Verdicts[0].Kind = layout.VerdictForgotten
	told = declared(r.until(r.now + times.Renew()))
	require.Equal(t, []Declared{{Host: 3, Incarnation: 7, Name: "other", Verdict: layout.VerdictForgotten, Again: true, By: 4}}, told)
	require.True(t, r.m.Host(3).Forgotten)
	require.Empty(t, r.table[0].Verdicts, "it is not repeated")
}

// TestVerdictDropped: a verdict is published until its host shows another incarnation or left.
func TestVerdictDropped(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Record)
		kept   bool
	}{
		{"still there", func(*Record) {}, true},
		{"unreadable", func(r *Record) { r.Err = errSim }, true},
		{"renewed late", func(r *Record) { r.Sequence++ }, true},
		{"another incarnation", func(r *Record) { r.Incarnation, r.State = 8, layout.StateJoining }, false},
		{"left", func(r *Record) { r.State = layout.StateLeft }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, rec, since := liveUnder(t, layout.PolicyLease)
			r.until(since + times.Dead())
			require.Len(t, r.table[0].Verdicts, 1)
			c.change(rec)
			r.until(since + times.Dead() + times.Renew())
			require.Equal(t, c.kept, len(r.table[0].Verdicts) == 1)
		})
	}
}

// TestVerdictInherited: a host that takes an id continues to publish the verdicts in its record
// that still apply.
func TestVerdictInherited(t *testing.T) {
	r := newRig(t, Config{ID: 1})
	r.set(3, layout.StateLive, 3, 7, 1)
	r.set(4, layout.StateLeft, 4, 8, 1)
	r.set(1, layout.StateLeft, 1, 5, 1).Verdicts = []layout.Verdict{
		{Host: 3, Incarnation: 7}, {Host: 4, Incarnation: 8}, {Host: 3, Incarnation: 6}, {Host: 2, Incarnation: 9, Kind: layout.VerdictWish}}
	r.start()
	r.read(0)
	require.Equal(t, []layout.Verdict{{Host: 3, Incarnation: 7}}, want[Write](r).Record.Verdicts)
	require.True(t, r.m.Host(3).Gone)
}

// TestVerdictsFull: one verdict too many waits until all hosts have read the oldest.
func TestVerdictsFull(t *testing.T) {
	full := func(t *testing.T, policy layout.Policy, kind layout.VerdictKind) (*rig, time.Duration) {
		r, _, _ := liveUnder(t, policy)
		r.m.cfg.Hosts = 40
		r.table = append(r.table, make([]Record, 36)...)
		r.m.hosts = append(r.m.hosts, make([]Host, 36)...)
		var all []verdict
		for i := range layout.MaxVerdicts {
			id := 10 + i
			r.set(id, layout.StateLive, byte(id), uint64(id), 1)
			all = append(all, verdict{layout.Verdict{Host: id, Incarnation: uint64(id), Kind: kind}, -1})
		}
		r.until(r.now + times.Renew())
		r.m.verdicts, r.m.unpublished = all, true
		r.out = r.m.Tick(r.now)
		r.until(r.now)
		require.Len(t, r.table[0].Verdicts, layout.MaxVerdicts)
		return r, r.now
	}
	named := func(r *rig, host int) bool {
		for _, v := range r.table[0].Verdicts {
			if v.Host == host {
				return true
			}
		}
		return false
	}
	t.Run("the oldest makes room", func(t *testing.T) {
		r, published := full(t, layout.PolicyLease, layout.VerdictDead)
		reads := 0
		for r.now < published+times.Dead()-1 {
			r.until(min(r.now+time.Second, published+times.Dead()-1))
			reads++
		}
		require.False(t, named(r, 3))
		require.Less(t, r.m.Host(3).DeadAt(times), r.now)
		r.until(published + times.Dead())
		require.True(t, named(r, 3))
		require.False(t, named(r, 10))
		require.True(t, r.m.Host(10).Gone, "it is remembered")
		require.Len(t, r.table[0].Verdicts, layout.MaxVerdicts)
	})
	t.Run("one that was obeyed makes room", func(t *testing.T) {
		r, published := full(t, layout.PolicyLease, layout.VerdictForgotten)
		r.until(published + 3*times.Dead())
		require.False(t, named(r, 3))
		r.table[11].State = layout.StateLeft
		r.until(r.now + times.Renew())
		require.True(t, named(r, 3))
		require.False(t, named(r, 12))
	})
	t.Run("an operator gets an error", func(t *testing.T) {
		r, published := full(t, layout.PolicyManual, layout.VerdictDead)
		r.until(published + 3*times.Dead())
		var err error
		r.out, err = r.m.Evict(r.now, 3, 7, false)
		require.ErrorIs(t, err, evict.ErrNoRoom)
	})
}

// TestVerdictsShared: if one record has too little room for all deaths, the live hosts publish a
// part each.
func TestVerdictsShared(t *testing.T) {
	const dead = 2*layout.MaxVerdicts - 4
	told := make(map[int]bool)
	for id := 1; id <= 2; id++ {
		r := newRig(t, Config{ID: id})
		r.m.cfg.Hosts, r.m.hosts, r.m.tried = 40, make([]Host, 40), make([]bool, 40)
		r.table = make([]Record, 40)
		for i := range r.table {
			r.table[i].ID = i + 1
		}
		r.set(3-id, layout.StateLive, 9, 9, 1).ReadHorizon = 40
		for i := range dead {
			r.set(5+i, layout.StateLive, 7, 7, 1).ReadHorizon = 40
		}
		r.start()
		r.read(0)
		r.join()
		r.renewing(3-id, r.now+times.Dead())
		require.Len(t, r.table[id-1].Verdicts, layout.MaxVerdicts)
		for _, v := range r.table[id-1].Verdicts {
			told[v.Host] = true
		}
	}
	require.Len(t, told, dead)
}
