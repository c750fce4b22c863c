package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease/evict"
	"github.com/bakeryd/bakeryd/layout"
)

func (r *rig) evict(host int, incarnation uint64, forget bool) error {
	var err error
	r.out, err = r.m.Evict(r.now, host, incarnation, forget)
	return err
}

// TestEvictSilent: an operator's command suffices, under every policy, once the host is silent.
func TestEvictSilent(t *testing.T) {
	for _, policy := range []layout.Policy{layout.PolicyLease, layout.PolicyFence, layout.PolicyManual} {
		for forget, kind := range map[bool]layout.VerdictKind{false: layout.VerdictDead, true: layout.VerdictForgotten} {
			r, _, since := liveUnder(t, policy)
			r.until(since + times.Alive() + 1)
			require.NoError(t, r.evict(3, 7, forget))
			want[ReadTable](r)
			r.read(0)
			require.Equal(t, []layout.Verdict{{Host: 3, Incarnation: 7, Kind: kind}}, r.land().Verdicts)
			require.False(t, r.m.Host(3).Gone)
			r.ack(0)
			require.Equal(t, Declared{Host: 3, Incarnation: 7, Name: "other", Verdict: kind, By: 1}, want[Declared](r))
			require.True(t, r.m.Host(3).Void(7))
			require.Equal(t, forget, r.m.Host(3).Forgotten)
		}
	}
}

// TestEvictWish: a host that renews is asked to leave, which no other host acts on. When it dies
// the wish becomes a verdict.
func TestEvictWish(t *testing.T) {
	r, rec, _ := liveUnder(t, layout.PolicyLease)
	rec.Sequence++
	require.NoError(t, r.evict(3, 7, true))
	told := r.until(r.now)
	require.Contains(t, told, Wished{Host: 3, Incarnation: 7, Name: "other"})
	require.Empty(t, declared(told))
	wish := []layout.Verdict{{Host: 3, Incarnation: 7, Kind: layout.VerdictWish}}
	require.Equal(t, wish, r.table[0].Verdicts)
	since := r.now
	require.Empty(t, r.until(since+times.Renew()-1))
	require.False(t, r.m.Host(3).Gone)
	told = declared2(r.until(since + times.Dead()))
	require.Equal(t, []Action{Declared{Host: 3, Incarnation: 7, Name: "other", By: 1}}, told)
	require.Equal(t, []layout.Verdict{{Host: 3, Incarnation: 7}}, r.table[0].Verdicts)

	require.NoError(t, r.evict(3, 7, true), "a dead one can be forgotten")
	told = declared2(r.until(r.now))
	require.Equal(t, []Action{Declared{Host: 3, Incarnation: 7, Name: "other", Verdict: layout.VerdictForgotten, Again: true, By: 1}}, told)
	require.ErrorIs(t, r.evict(3, 7, true), evict.ErrDead)
}

func declared2(told []Action) (all []Action) {
	for _, d := range declared(told) {
		all = append(all, d)
	}
	return all
}

// TestEvictWishHeeded: it leaves, and the wish is dropped.
func TestEvictWishHeeded(t *testing.T) {
	r, rec, _ := liveUnder(t, layout.PolicyLease)
	require.NoError(t, r.evict(3, 7, false))
	r.until(r.now)
	require.Len(t, r.table[0].Verdicts, 1)
	rec.State = layout.StateLeft
	r.until(r.now + times.Renew())
	require.Empty(t, r.table[0].Verdicts)
}

// TestEvictRenewsAfterAll: the fresh read decides whether the host is silent.
func TestEvictRenewsAfterAll(t *testing.T) {
	r, rec, since := liveUnder(t, layout.PolicyManual)
	r.until(since + 2*times.Alive())
	rec.Sequence++
	require.NoError(t, r.evict(3, 7, false))
	r.until(r.now)
	require.Equal(t, layout.VerdictWish, r.table[0].Verdicts[0].Kind)
	require.False(t, r.m.Host(3).Gone)
}

func TestEvictRefused(t *testing.T) {
	r, rec, since := liveUnder(t, layout.PolicyLease)
	require.ErrorIs(t, r.evict(0, 7, false), evict.ErrNoHost)
	require.ErrorIs(t, r.evict(5, 7, false), evict.ErrNoHost)
	require.ErrorIs(t, r.evict(4, 7, false), evict.ErrNoHost)
	require.ErrorIs(t, r.evict(3, 8, false), evict.ErrChanged)
	require.ErrorIs(t, r.evict(1, 101, true), evict.ErrSelf)
	require.EqualError(t, r.evict(1, 101, true), "evict host 1: a host cannot forget itself: stop it, or ask another host to")
	r.until(since + times.Dead())
	require.ErrorIs(t, r.evict(3, 7, false), evict.ErrDead)
	rec.State, rec.Incarnation = layout.StateJoining, 8
	r.until(r.now + 3*times.Dead())
	require.ErrorIs(t, r.evict(3, 8, true), evict.ErrJoining)
	rec.State, rec.Sequence = layout.StateLeft, 9
	r.until(r.now + times.Renew())
	require.ErrorIs(t, r.evict(3, 8, false), evict.ErrHasLeft)
	r.tickAt(r.m.Deadline())
	require.ErrorIs(t, r.evict(3, 8, false), evict.ErrNotLive)
}

// TestEvict_AskedHost_IsNotifiedOnce: a host that is asked to leave is notified once, and
// continues until its driver calls Leave.
func TestEvict_AskedHost_IsNotifiedOnce(t *testing.T) {
	wish := layout.Verdict{Host: 1, Incarnation: 101, Kind: layout.VerdictWish}
	r, rec, _ := liveUnder(t, layout.PolicyLease)
	rec.Verdicts = []layout.Verdict{{Host: 1, Incarnation: 100, Kind: layout.VerdictWish}}
	require.NotContains(t, r.until(r.now+times.Renew()), Asked{By: 3, Name: "other"}, "another incarnation was")
	rec.Verdicts = []layout.Verdict{wish}
	told := r.renewing(3, r.now+2*times.Renew())
	require.Contains(t, told, Asked{By: 3, Name: "other"})
	require.NotContains(t, r.renewing(3, r.now+times.Lease), Asked{By: 3, Name: "other"})
	require.True(t, r.m.Live(r.now))

	r, _, _ = liveUnder(t, layout.PolicyLease)
	require.NoError(t, r.evict(1, 101, false))
	require.Equal(t, Asked{By: 1, Name: "self"}, want[Asked](r))
}

// TestForgotten: the id may be taken by any machine, the long way, but only if no other is free.
func TestForgotten(t *testing.T) {
	forgotten := func(r *rig) {
		r.set(2, layout.StateLive, 2, 7, 1)
		r.set(3, layout.StateLive, 3, 8, 1).Verdicts = []layout.Verdict{{Host: 2, Incarnation: 7, Kind: layout.VerdictForgotten}}
	}
	t.Run("given", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		forgotten(r)
		r.start()
		r.read(0)
		require.Equal(t, times.LongWait(), r.join())
	})
	t.Run("dead is not enough", func(t *testing.T) {
		r := newRig(t, Config{ID: 2})
		forgotten(r)
		r.table[2].Verdicts[0].Kind = layout.VerdictDead
		r.start()
		r.read(0)
		none[Write](r)
	})
	t.Run("chosen last", func(t *testing.T) {
		r := newRig(t, Config{})
		forgotten(r)
		r.set(1, layout.StateLive, 1, 9, 1) // dead, of this machine
		r.set(4, layout.StateLeft, 4, 6, 1)
		r.start()
		r.read(0)
		require.Equal(t, 4, want[Write](r).Record.ID)
		r.write(0)
		r.tick()
		r.set(4, layout.StateLive, 4, 5, 3)
		r.read(0)
		r.read(0)
		require.Equal(t, 2, want[Write](r).Record.ID)
		require.Equal(t, times.LongWait(), r.join())
	})
}

// TestChoose_OwnDeadID_IsLast: ids that this machine left dead are chosen last, once they are dead.
func TestChoose_OwnDeadID_IsLast(t *testing.T) {
	r := newRig(t, Config{})
	used := r.set(1, layout.StateLive, 1, 5, 1)
	r.set(2, layout.StateLive, 2, 6, 1)
	r.set(3, layout.StateLive, 1, 7, 1)
	r.set(4, layout.StateLive, 1, 8, 1)
	r.start()
	begin := r.now
	for {
		used.Sequence++ // a copy of this machine lives there
		r.read(0)
		if _, ok := got[Write](r); ok {
			break
		}
		if _, ok := got[ReadTable](r); !ok {
			r.tick()
		}
		require.Less(t, r.now, begin+2*times.Dead())
	}
	require.Equal(t, 3, want[Write](r).Record.ID)
	require.GreaterOrEqual(t, r.now, begin+times.Dead())
	r.join()

	r = newRig(t, Config{})
	for id := 1; id <= 4; id++ {
		r.set(id, layout.StateLive, byte(id), uint64(id), 1)
	}
	r.start()
	for r.read(0); !r.m.Over(); r.read(0) {
		r.table[0].Sequence++
		if _, ok := got[ReadTable](r); !ok {
			r.tick()
		}
	}
	require.ErrorIs(t, want[Refused](r).Reason, ErrFull)
	require.Less(t, r.now, time.Hour+times.Alive(), "at once if none is of this machine but what is in use")
}

// TestClaimUnderVerdict: a claim that is declared dead before it looks does not go live.
func TestClaimUnderVerdict(t *testing.T) {
	r := newRig(t, Config{ID: 2})
	r.start()
	r.read(0)
	r.write(0)
	r.tick()
	r.set(3, layout.StateLive, 3, 8, 1).Verdicts = []layout.Verdict{{Host: 2, Incarnation: 101}}
	r.read(0)
	require.ErrorIs(t, want[Refused](r).Reason, ErrVerdict)
	none[Write](r)
}

// TestEvictAgain: a standing wish is reported again when the command is repeated, and does not
// prevent a verdict, even if the record is full.
func TestEvictAgain(t *testing.T) {
	r, rec, _ := liveUnder(t, layout.PolicyManual)
	for range 2 {
		rec.Sequence++
		require.NoError(t, r.evict(3, 7, false))
		require.Contains(t, r.until(r.now), Wished{Host: 3, Incarnation: 7, Name: "other"})
		require.NotContains(t, r.until(r.now+times.Renew()), Wished{Host: 3, Incarnation: 7, Name: "other"})
	}
	for len(r.m.verdicts) < layout.MaxVerdicts {
		r.m.verdicts = append(r.m.verdicts, verdict{layout.Verdict{Host: 2, Incarnation: uint64(len(r.m.verdicts))}, r.now})
	}
	r.until(r.now + times.Alive())
	require.NoError(t, r.evict(3, 7, false))
	require.Len(t, declared(r.until(r.now)), 1)
}
