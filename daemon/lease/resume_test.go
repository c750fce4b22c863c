package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// successor returns a rig whose machine resumes a term, over the table of another rig, at its
// time.
func (r *rig) successor(t *testing.T, term Term, id int) *rig {
	t.Helper()
	s := newRig(t, Config{ID: id, Resume: &term})
	s.table, s.now = r.table, r.now
	s.m.cfg.Incarnation = func() uint64 { return 201 }
	return s
}

func TestTerm(t *testing.T) {
	r := newRig(t, Config{ID: 1})
	_, ok := r.m.Term()
	require.False(t, ok)
	r = live1(t)
	term, ok := r.m.Term()
	require.True(t, ok)
	require.Equal(t, Term{ID: 1, Incarnation: 101, T0: r.m.Deadline() - times.Lease, Ready: true, Clean: true}, term)
	r.tick()
	r.read(0)
	r.out = r.m.WriteFailed(r.now)
	term, ok = r.m.Term()
	require.True(t, ok)
	require.False(t, term.Clean)
	r.tickAt(r.m.Deadline())
	_, ok = r.m.Term()
	require.False(t, ok)
}

// TestResume: within the lease the same incarnation continues, immediately and with the lease
// that it had (RESUMED).
func TestResume(t *testing.T) {
	for _, id := range []int{0, 1, 2} {
		r := live1(t)
		r.m.own.PRKey = 77
		r.set(3, layout.StateLive, 3, 7, 1)
		term, _ := r.m.Term()
		r.until(r.now + times.Dead() + times.Renew()) // host 3 is declared dead
		require.Len(t, r.table[0].Verdicts, 1)
		late, _ := r.m.Term()
		require.Greater(t, late.T0, term.T0)

		s := r.successor(t, late, id)
		s.m.cfg.Self.WatchdogArmed, s.m.cfg.Self.WatchdogSeconds = true, 30
		s.start()
		s.read(0)
		require.Equal(t, Joined{ID: 1, Incarnation: 101, Deadline: late.T0 + times.Lease, Resumed: true}, want[Joined](s))
		want[Ready](s)
		none[Delayed](s)
		require.Equal(t, r.m.Deadline(), s.m.Deadline())
		require.True(t, s.m.MayWrite(s.now))
		require.True(t, s.m.Host(3).Gone)
		again, _ := s.m.Term()
		require.Equal(t, late, again)

		before := s.table[0].Sequence
		s.read(0)
		rec := s.write(0)
		require.Equal(t, before+1+uint64((s.now-late.T0)/time.Millisecond), rec.Sequence, "none that the predecessor may have used")
		require.EqualValues(t, 77, rec.PRKey)
		require.True(t, rec.WatchdogArmed)
		require.Equal(t, []layout.Verdict{{Host: 3, Incarnation: 7}}, rec.Verdicts)
		want[Renewed](s)
		require.GreaterOrEqual(t, rec.ReadHorizon, 3)
	}
}

// TestResume_TermNotStanding_Joins: if a term cannot be resumed the host joins, no sooner than
// without a term (KEEP-OUT).
func TestResume_TermNotStanding_Joins(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*rig, *Term)
		delay  time.Duration
	}{
		{"the lease is about to end", func(r *rig, _ *Term) {}, times.Lease - times.Budget()},
		{"another incarnation", func(_ *rig, term *Term) { term.Incarnation++ }, 0},
		{"left", func(r *rig, _ *Term) { r.table[0].State = layout.StateLeft }, 0},
		{"verdict", func(r *rig, _ *Term) {
			r.set(3, layout.StateLive, 3, 7, 1).Verdicts = []layout.Verdict{{Host: 1, Incarnation: 101}}
		}, 0},
		{"no such host", func(_ *rig, term *Term) { term.ID = 5 }, 0},
		{"from the future", func(_ *rig, term *Term) { term.T0 += time.Hour }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := live1(t)
			term, _ := r.m.Term()
			r.now = term.T0 + max(c.delay, time.Second)
			c.change(r, &term)
			s := r.successor(t, term, 1)
			s.start()
			begin := s.now
			for s.read(0); ; s.read(0) {
				none[Joined](s)
				if _, ok := got[Write](s); ok {
					break
				}
				s.tick()
			}
			dead := s.now-begin >= times.Dead()
			wait := s.join()
			require.True(t, dead || wait == times.LongWait(), "stood for %v, waited %v", s.now-begin, wait)
			require.False(t, want[Joined](s).Resumed)
			require.EqualValues(t, 201, s.m.Incarnation())
		})
	}
	t.Run("a wish is reported", func(t *testing.T) {
		r := live1(t)
		term, _ := r.m.Term()
		r.set(3, layout.StateLive, 3, 7, 1).Verdicts = []layout.Verdict{{Host: 1, Incarnation: 101, Kind: layout.VerdictWish}}
		s := r.successor(t, term, 1)
		s.start()
		s.read(0)
		want[Joined](s)
		require.Equal(t, Asked{By: 3, Name: "other"}, want[Asked](s))
	})
}

// TestResumeErrors: failed reads are retried while the lease lasts.
func TestResumeErrors(t *testing.T) {
	r := live1(t)
	term, _ := r.m.Term()
	s := r.successor(t, term, 1)
	s.start()
	s.out = s.m.ReadFailed(s.now)
	s.tick()
	s.table[0].Err = errSim
	s.read(0)
	require.Equal(t, s.now+times.Retry(), want[Wait](s).Until)
	s.tick()
	s.table[0].Err = nil
	s.read(0)
	require.True(t, want[Joined](s).Resumed)
}

// TestResumeReady: if the term was not ready, the host waits to be covered.
func TestResumeReady(t *testing.T) {
	for _, ready := range []bool{false, true} {
		r := live1(t)
		term, _ := r.m.Term()
		term.Ready = ready
		r.set(3, layout.StateLive, 3, 7, 1).ReadHorizon = 0
		s := r.successor(t, term, 1)
		s.start()
		s.read(0)
		require.Equal(t, ready, s.m.Ready())
		_, told := got[Ready](s)
		require.Equal(t, ready, told)
		if !ready { // otherwise it reads immediately, to publish its read horizon
			s.tick()
		}
		s.table[2].ReadHorizon = 4
		s.read(0)
		require.True(t, s.m.Ready())
		require.Equal(t, 4, want[Write](s).Record.ReadHorizon)
	}
}

// TestLostCleanly: which ends of a lease let this machine claim its id again the short way.
func TestLostCleanly(t *testing.T) {
	for _, c := range []struct {
		name  string
		run   func(*rig)
		clean bool
	}{
		{"reads hang", func(r *rig) { r.tick(); r.tickAt(r.m.Deadline()) }, true},
		{"verdict", func(r *rig) {
			r.tick()
			r.set(3, layout.StateLive, 3, 7, 1).Verdicts = []layout.Verdict{{Host: 1, Incarnation: 101}}
			r.read(0)
		}, false},
		{"renewed late", func(r *rig) { r.tick(); r.read(0); r.write(times.Lease) }, false},
		{"a write hangs", func(r *rig) { r.tick(); r.read(0); r.land(); r.tickAt(r.m.Deadline()) }, false},
		{"a write failed", func(r *rig) {
			r.tick()
			r.read(0)
			r.out = r.m.WriteFailed(r.now)
			r.tick()
			r.read(0)
			r.write(0)
			r.tickAt(r.m.Deadline())
		}, false},
		{"overwritten", func(r *rig) { r.tick(); r.set(1, layout.StateJoining, 2, 7, 9); r.read(0) }, false},
		{"another lockspace", func(r *rig) { r.out = r.m.Lose(r.now, errSim) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := live1(t)
			c.run(r)
			lost := want[Lost](r)
			if !c.clean {
				require.Zero(t, lost.Incarnation)
				return
			}
			require.EqualValues(t, 101, lost.Incarnation)
			for _, id := range []int{0, 1} {
				s := newRig(t, Config{ID: id, Left: []uint64{lost.Incarnation}})
				s.table, s.now = append([]Record(nil), r.table...), r.now
				s.m.cfg.Incarnation = func() uint64 { return 201 }
				s.start()
				s.read(0)
				require.Equal(t, times.ShortWait(), s.join())
				require.Equal(t, 1, s.m.ID())
			}
		})
	}
	t.Run("resumed", func(t *testing.T) {
		for _, clean := range []bool{false, true} {
			r := live1(t)
			term, _ := r.m.Term()
			term.Clean = clean
			s := r.successor(t, term, 1)
			s.start()
			s.read(0)
			early := s.successor(t, term, 1)
			early.start()
			early.read(0)
			early.tickAt(early.m.Deadline())
			require.Zero(t, want[Lost](early).Incarnation, "holders may know a later deadline")
			s.tick()
			s.read(0)
			s.write(0)
			s.tickAt(s.m.Deadline())
			require.Equal(t, clean, want[Lost](s).Incarnation != 0)
		}
	})
}

// TestResumePublishes: changed fields of the new process are published immediately.
func TestResumePublishes(t *testing.T) {
	r := live1(t)
	term, _ := r.m.Term()
	for _, change := range []func(*layout.HostRecord){
		func(self *layout.HostRecord) { self.PRKey = 5 },
		func(self *layout.HostRecord) { self.WatchdogArmed, self.WatchdogSeconds = true, 60 },
	} {
		s := r.successor(t, term, 1)
		change(&s.m.cfg.Self)
		s.start()
		s.read(0)
		s.read(0)
		want[Write](s)
	}
	s := r.successor(t, term, 1)
	s.start()
	s.read(0)
	none[ReadTable](s)
	require.Equal(t, term.T0+times.Renew(), want[Wait](s).Until)
}

// TestResumeAfterFailedWrite: a failed write of the previous process that lands late is not
// mistaken for a write of the next one. Otherwise a host that renews would seem to have stood
// still since.
func TestResumeAfterFailedWrite(t *testing.T) {
	r := live1(t)
	r.tick()
	r.read(0)
	failed := want[Write](r).Record
	r.out = r.m.WriteFailed(r.now)
	r.now += times.Retry()
	term, _ := r.m.Term()
	s := r.successor(t, term, 1)
	s.start()
	s.read(0)
	require.True(t, want[Joined](s).Resumed)
	s.read(0)
	s.write(0)

	o := newRig(t, Config{ID: 2})
	o.table, o.now = s.table, s.now
	o.start()
	o.read(0)
	since := o.m.Host(1).Since
	o.join()
	s.tick()
	s.read(0)
	s.write(0)
	s.table[0] = Record{HostRecord: failed}
	o.tick()
	o.read(0)
	require.Equal(t, failed.Sequence, o.m.Host(1).Sequence)
	require.Greater(t, o.m.Host(1).Since, since, "it has written since")
}

// TestResumeWishes: a host that the previous process asked to leave may not have read that yet.
func TestResumeWishes(t *testing.T) {
	r, rec, _ := liveUnder(t, layout.PolicyManual)
	rec.Sequence++
	require.NoError(t, r.evict(3, 7, false))
	r.until(r.now)
	wish := []layout.Verdict{{Host: 3, Incarnation: 7, Kind: layout.VerdictWish}}
	require.Equal(t, wish, r.table[0].Verdicts)
	term, _ := r.m.Term()
	s := r.successor(t, term, 1)
	s.m.cfg.Policy = layout.PolicyManual
	s.start()
	s.read(0)
	s.until(s.now + times.Renew())
	require.Equal(t, wish, s.table[0].Verdicts)
	rec.State = layout.StateLeft
	s.until(s.now + times.Renew())
	require.Empty(t, s.table[0].Verdicts)
}
