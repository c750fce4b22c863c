package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

func fences(told []Action) (all []Fence) {
	for _, a := range told {
		if f, ok := a.(Fence); ok {
			all = append(all, f)
		}
	}
	return all
}

func (r *rig) fenced(host int, incarnation uint64) { r.out = r.m.Fenced(r.now, host, incarnation) }

// renewing lets a host of the table renew until a time, while the machine runs.
func (r *rig) renewing(id int, end time.Duration) (told []Action) {
	for r.now < end {
		r.table[id-1].Sequence++
		told = append(told, r.until(min(end, r.now+times.Renew()))...)
	}
	return told
}

// TestFence: under the policy fence a death is declared when the host is fenced, and not before.
func TestFence(t *testing.T) {
	r, rec, _ := liveUnder(t, layout.PolicyFence)
	rec.PRKey, rec.Sequence = 99, 2
	r.look(time.Second)
	due := r.now + times.Dead()
	require.Empty(t, fences(r.until(due-1)))
	told := r.until(due)
	require.Equal(t, []Fence{{Host: 3, Incarnation: 7, Name: "other", PRKey: 99, Until: due + times.FenceWindow() - times.Alive()}}, fences(told))
	require.Empty(t, declared(told))
	require.Empty(t, r.until(due+time.Second), "told once a window")
	require.Empty(t, r.table[0].Verdicts)

	r.fenced(3, 7)
	want[ReadTable](r)
	r.read(0)
	r.land()
	require.False(t, r.m.Host(3).Gone)
	r.ack(0)
	require.Equal(t, Declared{Host: 3, Incarnation: 7, Name: "other", By: 1}, want[Declared](r))
	r.tick()
	require.Empty(t, fences(r.until(r.now+3*times.FenceWindow())))
}

// TestFenceTurns: live hosts have windows in turn, by id.
func TestFenceTurns(t *testing.T) {
	r, _, since := liveUnder(t, layout.PolicyFence)
	r.set(2, layout.StateLive, 2, 8, 1)
	due := since + times.Dead()
	window := times.FenceWindow()
	require.Empty(t, fences(r.renewing(2, due-1)))
	require.Len(t, fences(r.renewing(2, due)), 1)
	require.Empty(t, fences(r.renewing(2, due+2*window-1)), "the next one is host 2's")
	require.Len(t, fences(r.renewing(2, due+2*window)), 1, "unanswered or not")

	// Host 2 falls silent: it has no more windows, and in the end it is fenced too.
	told := fences(r.until(due + 3*window))
	require.Len(t, told, 1)
	require.Equal(t, 3, told[0].Host)
}

// TestFenceTurnLate: the rest of a window after its margin has begun is not used.
func TestFenceTurnLate(t *testing.T) {
	r, _, since := liveUnder(t, layout.PolicyFence)
	due := since + times.Dead()
	h := &r.m.hosts[2]
	h.Read = due
	for _, c := range []struct{ now, at time.Duration }{
		{due - time.Hour, due},
		{due, due},
		{due + times.FenceTime() - 1, due},
		{due + times.FenceTime(), due + times.FenceWindow()},
		{due + 5*times.FenceWindow() + 1, due + 5*times.FenceWindow()},
	} {
		r.m.now = c.now
		require.Equal(t, c.at, r.m.turnAt(h, r.m.electorate()))
	}
	r.set(2, layout.StateLive, 2, 8, 1)
	r.m.hosts[1] = Host{State: layout.StateLive} // two electors, this one the first
	r.m.now = due + times.FenceWindow()
	require.Equal(t, due+2*times.FenceWindow(), r.m.turnAt(h, r.m.electorate()))
	r.m.id = 2
	require.Equal(t, due+times.FenceWindow(), r.m.turnAt(h, r.m.electorate()))
}

// TestFenceDropped: a suspicion ends with a renewal or another host's verdict, but a fenced host
// is dead.
func TestFenceDropped(t *testing.T) {
	t.Run("renews", func(t *testing.T) {
		r, rec, since := liveUnder(t, layout.PolicyFence)
		require.Len(t, fences(r.until(since+times.Dead())), 1)
		rec.Sequence++
		require.Empty(t, fences(r.renewing(3, r.now+2*times.FenceWindow())))
		r.fenced(3, 7)
		due := r.m.Host(3).DeadAt(times)
		require.Empty(t, declared(r.until(due-1)), "it may hold locks by its last renewal")
		require.Len(t, declared(r.until(due)), 1)
	})
	t.Run("another's verdict", func(t *testing.T) {
		r, _, since := liveUnder(t, layout.PolicyFence)
		require.Len(t, fences(r.until(since+times.Dead())), 1)
		r.set(4, layout.StateLeft, 4, 9, 1).Verdicts = []layout.Verdict{{Host: 3, Incarnation: 7}}
		told := r.until(r.now + 2*times.FenceWindow())
		require.Empty(t, fences(told))
		require.Len(t, declared(told), 1)
		r.fenced(3, 7)
		r.until(r.now)
		require.Empty(t, r.table[0].Verdicts)
	})
	t.Run("has restarted", func(t *testing.T) {
		r, rec, since := liveUnder(t, layout.PolicyFence)
		require.Len(t, fences(r.until(since+times.Dead())), 1)
		rec.Incarnation = 8
		r.fenced(3, 7)
		r.until(r.now + times.Renew())
		require.Empty(t, r.table[0].Verdicts)
	})
	t.Run("nonsense, or too late", func(t *testing.T) {
		r, _, _ := liveUnder(t, layout.PolicyFence)
		r.fenced(0, 7)
		r.fenced(5, 7)
		require.Empty(t, r.m.statements)
		r.tickAt(r.m.Deadline())
		r.fenced(3, 7)
		require.Empty(t, r.out)
	})
}

// early returns a rig of a lockspace with a fence-after of 6 s, whose host 3 was seen at the returned time.
func early(t *testing.T) (*rig, *Record, time.Duration) {
	t.Helper()
	return liveWith(t, Config{ID: 1, Policy: layout.PolicyFence, Times: timing.Times{Lease: times.Lease, FenceAfter: 6 * time.Second}})
}

// TestFence_Early_VerdictFollowsTheConfirmation: with fence-after neither lease nor watchdog is waited for.
func TestFence_Early_VerdictFollowsTheConfirmation(t *testing.T) {
	r, rec, since := early(t)
	rec.WatchdogArmed, rec.WatchdogSeconds = true, 10
	require.Empty(t, fences(r.until(since+6*time.Second-1)))
	require.Len(t, fences(r.until(since+6*time.Second)), 1)
	r.until(since + 7*time.Second)
	r.fenced(3, 7)
	require.Len(t, declared(r.until(since+7*time.Second)), 1)
}

// TestFence_RenewedBeforeTheFence_VerdictWaits: the host may grant locks by a renewal that landed before
// it was cut off.
func TestFence_RenewedBeforeTheFence_VerdictWaits(t *testing.T) {
	r, rec, since := early(t)
	require.Len(t, fences(r.until(since+6*time.Second)), 1)
	rec.Sequence++
	r.now += time.Second
	r.fenced(3, 7)
	require.Empty(t, declared(r.until(r.now+6*time.Second-1)))
	require.Len(t, declared(r.until(r.now+1)), 1)
}

// TestSteady_OutageOfTheDevice_FencesNobody: all hosts are silent after an outage, and one of them is the
// first to renew.
func TestSteady_OutageOfTheDevice_FencesNobody(t *testing.T) {
	mutating := mutating(t)
	for mu, want := range map[mutation]int{sound: 0, unsteady: 1} {
		if mu != sound && !mutating {
			continue
		}
		r, _, since := early(t)
		r.m.mutate(mu)
		r.tick() // asks for the read of a renewal, which hangs
		r.now = since + 10*time.Second
		require.Len(t, fences(r.until(r.now)), want)
		if mu == sound {
			again := r.now
			require.Empty(t, fences(r.until(again+6*time.Second-1)))
			require.Len(t, fences(r.until(again+6*time.Second)), 1, "it stays silent")
		}
	}
}

// TestSteady_OutageDuringAFence_IsTriedAgainSoon: not only in the next window of this host.
func TestSteady_OutageDuringAFence_IsTriedAgainSoon(t *testing.T) {
	r, _, since := early(t)
	require.Len(t, fences(r.until(since+6*time.Second)), 1)
	r.tick()
	r.now += 10 * time.Second
	again := r.now
	require.Empty(t, fences(r.until(again+6*time.Second-1)))
	require.Len(t, fences(r.until(again+6*time.Second)), 1)
}

// TestMachine_SilentForFenceAfter_MayNotGrant: the holder of its locks may be another host.
func TestMachine_SilentForFenceAfter_MayNotGrant(t *testing.T) {
	r, _, _ := early(t)
	require.Equal(t, r.m.t0+4800*time.Millisecond, r.m.SureUntil())
	require.Less(t, r.m.SureUntil(), r.m.WarnAt())
	plain := live1(t)
	require.Equal(t, plain.m.Deadline(), plain.m.SureUntil())
	require.Zero(t, New(Config{ID: 1, Hosts: 1, Times: times}).SureUntil(), "it is not live")
}

// TestNew_FenceAfterThatNoSuperblockHas_Panics: such a host would renew all the time.
func TestNew_FenceAfterThatNoSuperblockHas_Panics(t *testing.T) {
	for after, policy := range map[time.Duration]layout.Policy{time.Second: layout.PolicyFence, 6 * time.Second: layout.PolicyLease} {
		bad := times
		bad.FenceAfter = after
		require.Panics(t, func() { New(Config{ID: 1, Hosts: 1, Times: bad, Policy: policy}) })
	}
}

// TestFenceFreshRead: the verdict follows a read requested after the fencing (OWN).
func TestFenceFreshRead(t *testing.T) {
	r, _, since := liveUnder(t, layout.PolicyFence)
	r.until(since + times.Dead())
	r.out = r.m.Refresh(r.now)
	r.now++
	r.fenced(3, 7)
	none[ReadTable](r)
	r.deliver(r.m.extent)
	none[Write](r)
	want[ReadTable](r)
	r.out = r.m.ReadFailed(r.now)
	require.Equal(t, r.now+times.Retry(), want[Wait](r).Until)
	require.Len(t, declared(r.until(r.now+times.Retry())), 1)
}
