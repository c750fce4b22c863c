package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease/complaints"
	"github.com/bakeryd/bakeryd/layout"
)

// heldUp calls HeldUp, and runs the machine until it waits again.
func (r *rig) heldUp(by layout.Complaint, certain bool) {
	r.t.Helper()
	r.out = r.m.HeldUp(r.now, by, certain)
	r.quiet()
}

// quiet lets all IO return at once.
func (r *rig) quiet() {
	r.t.Helper()
	for {
		if _, ok := got[ReadTable](r); ok {
			r.read(0)
			continue
		}
		if _, ok := got[Write](r); !ok {
			return
		}
		r.write(0)
	}
}

// wait runs until a time, with all IO returning immediately, and returns the reported complaints.
func (r *rig) wait(until time.Duration) (heard []layout.Complaint) {
	r.t.Helper()
	for {
		if c, ok := got[Complained](r); ok {
			heard = append(heard, c.Of...)
		}
		if _, ok := got[ReadTable](r); ok {
			r.read(0)
			continue
		}
		if _, ok := got[Write](r); ok {
			r.write(0)
			continue
		}
		next := r.m.nextRead()
		if w, ok := got[Wait](r); ok {
			next = w.Until
		}
		if next > until {
			r.now = until
			return heard
		}
		r.tickAt(max(r.now, next))
	}
}

var bySlot = layout.Complaint{Host: 3, Lock: 7}

// TestHeldUp: a complaint that lasts for Retry is published by an early renewal, and stays while
// it is repeated.
func TestHeldUp(t *testing.T) {
	r := live1(t)
	r.now += times.Renew() / 2
	r.heldUp(bySlot, false)
	require.Empty(t, r.table[0].Complaints, "a write may be under way")
	r.now += times.Retry() - 1
	r.heldUp(bySlot, false)
	require.Empty(t, r.table[0].Complaints)
	r.now++
	sequence := r.table[0].Sequence
	r.heldUp(bySlot, false)
	require.Equal(t, []layout.Complaint{bySlot}, r.table[0].Complaints)
	require.Equal(t, sequence+1, r.table[0].Sequence)

	for end := r.now + times.Lease; r.now < end; { // it causes no additional renewals
		r.heldUp(bySlot, false)
		r.wait(r.now + times.Watch())
		require.Equal(t, []layout.Complaint{bySlot}, r.table[0].Complaints)
	}
	require.LessOrEqual(t, r.table[0].Sequence, sequence+1+uint64(times.Lease/times.Renew())+1)

	last := r.now
	r.wait(last + 2*times.Alive())
	require.Equal(t, []layout.Complaint{bySlot}, r.table[0].Complaints, "all are to read it")
	r.wait(last + 2*times.Alive() + times.Alive())
	require.Empty(t, r.table[0].Complaints)
	require.Zero(t, r.m.complaints.Len())
}

// TestHeldUp_NotRepeated_IsNotPublished: two complaints far apart are two writes under way.
func TestHeldUp_NotRepeated_IsNotPublished(t *testing.T) {
	r := live1(t)
	for range 5 {
		r.heldUp(bySlot, false)
		r.wait(r.now + times.Renew() + 1)
		require.Empty(t, r.table[0].Complaints)
	}
}

// TestHeldUp_Certain_IsPublishedImmediately: a certain complaint is published immediately, but at
// least Watch after the last write.
func TestHeldUp_Certain_IsPublishedImmediately(t *testing.T) {
	r := live1(t)
	r.now += times.Watch()
	r.heldUp(bySlot, true)
	require.Equal(t, []layout.Complaint{bySlot}, r.table[0].Complaints)
	written := r.now
	other := layout.Complaint{Lock: 9}
	r.heldUp(other, true)
	require.NotContains(t, r.table[0].Complaints, other)
	require.Equal(t, written+times.Watch(), want[Wait](r).Until)
	r.wait(written + times.Watch())
	require.Equal(t, []layout.Complaint{other, bySlot}, r.table[0].Complaints)
}

// TestHeldUpWriteFails: the complaint is published again.
func TestHeldUpWriteFails(t *testing.T) {
	r := live1(t)
	r.now += times.Watch()
	r.out = r.m.HeldUp(r.now, bySlot, true)
	r.read(0)
	want[Write](r)
	r.out = r.m.WriteFailed(r.now)
	r.wait(r.now + times.Watch())
	require.Equal(t, []layout.Complaint{bySlot}, r.table[0].Complaints)
	require.Equal(t, r.m.own.Sequence, r.table[0].Sequence)
}

// TestHeldUp_OwnSlotOrNotLive_HasNoEffect: complaints about own slots, and of a host that is not
// live, have no effect.
func TestHeldUp_OwnSlotOrNotLive_HasNoEffect(t *testing.T) {
	r := newRig(t, Config{ID: 1})
	require.Nil(t, r.m.HeldUp(r.now, bySlot, true))
	r.start()
	require.Nil(t, r.m.HeldUp(r.now, bySlot, true))
	r.read(0)
	r.join()
	require.Nil(t, r.m.HeldUp(r.now, layout.Complaint{Host: 1, Lock: 7}, true))
	require.Zero(t, r.m.complaints.Len())
	r.out = r.m.HeldUp(r.m.Deadline(), bySlot, true)
	want[Lost](r)
	require.Nil(t, r.m.HeldUp(r.now, bySlot, true))
}

// TestManyComplaints: all get into the record in rotation, new ones first, up to
// complaints.Room.
func TestManyComplaints(t *testing.T) {
	r := live1(t)
	r.now += times.Watch()
	const n = 2*layout.MaxComplaints + 3
	heldUp := func() {
		for lock := range n {
			r.out = append(r.out, r.m.HeldUp(r.now, layout.Complaint{Host: 2, Lock: lock}, true)...)
		}
	}
	said := map[layout.Complaint]bool{}
	heldUp()
	for range 3 {
		r.quiet()
		require.Len(t, r.table[0].Complaints, layout.MaxComplaints)
		for _, c := range r.table[0].Complaints {
			said[c] = true
		}
		r.wait(r.now + times.Watch())
	}
	require.Len(t, said, n)
	clear(said)
	for range 3 { // as often as the lease is renewed
		heldUp()
		r.wait(r.m.renewAt())
		for _, c := range r.table[0].Complaints {
			said[c] = true
		}
	}
	require.Len(t, said, n)
	for lock := range 2 * complaints.Room {
		r.m.HeldUp(r.now, layout.Complaint{Host: 2, Lock: lock}, true)
	}
	require.Equal(t, complaints.Room, r.m.complaints.Len())
}

// TestLeftWithoutComplaints: a host that has left publishes no complaints.
func TestLeftWithoutComplaints(t *testing.T) {
	r := live1(t)
	r.now += times.Watch()
	r.heldUp(bySlot, true)
	require.NotEmpty(t, r.table[0].Complaints)
	r.out = r.m.Leave(r.now)
	for !r.m.Over() {
		if _, ok := got[ReadTable](r); ok {
			r.read(0)
			continue
		}
		r.write(0)
	}
	require.Equal(t, layout.StateLeft, r.table[0].State)
	require.Empty(t, r.table[0].Complaints)
}

// TestComplained: complaints about a host's own records are reported once for every write of the
// record with them, at most once a renewal.
func TestComplained(t *testing.T) {
	r := live1(t)
	mine, entry := layout.Complaint{Host: 1, Lock: 7}, layout.Complaint{Lock: 3}
	rec := r.set(2, layout.StateLive, 2, 7, 1)
	rec.Complaints = []layout.Complaint{mine, bySlot, entry}
	require.Equal(t, []layout.Complaint{mine, entry}, r.wait(r.now+times.Renew()))
	require.Empty(t, r.wait(r.now+times.Dead()), "a host that is silent, and dead")
	rec.Incarnation, rec.Sequence = 8, 1
	first := r.now
	require.Equal(t, []layout.Complaint{mine, entry}, r.wait(first+times.Renew()))
	told := 0
	for end := r.now + times.Lease; r.now < end; { // a host that writes as fast as it can
		rec.Sequence++
		r.out = r.m.Refresh(r.now)
		told += len(r.wait(r.now+times.Renew()/20)) / 2
	}
	require.InDelta(t, int(times.Lease/times.Renew()), told, 1)
}

// TestComplainedSoon: a complaint that came right after another is reported when the pace allows,
// without another read.
func TestComplainedSoon(t *testing.T) {
	r := live1(t)
	rec := r.set(2, layout.StateLive, 2, 7, 1)
	rec.Complaints = []layout.Complaint{{Host: 1, Lock: 7}}
	r.out = r.m.Refresh(r.now)
	require.Len(t, r.wait(r.now), 1)
	at := r.now
	rec.Sequence, rec.Complaints = 2, []layout.Complaint{{Host: 1, Lock: 8}}
	r.now++
	r.out = r.m.Refresh(r.now)
	require.Empty(t, r.wait(at+times.Renew()-1))
	require.Equal(t, rec.Complaints, r.wait(at+times.Renew()))
}

// TestComplainedBound: no more than complaints.Room are kept.
func TestComplainedBound(t *testing.T) {
	r := live1(t)
	for lock := 0; lock < 20*layout.MaxComplaints; lock += layout.MaxComplaints {
		rec := r.set(2, layout.StateLive, 2, 7, uint64(lock+1))
		for i := range layout.MaxComplaints {
			rec.Complaints = append(rec.Complaints, layout.Complaint{Host: 1, Lock: lock + i})
		}
		r.m.complaints.ReportAt = r.now + time.Hour
		r.out = r.m.Refresh(r.now)
		r.quiet()
	}
	require.Len(t, r.m.complaints.Received, complaints.Room)
}

// TestComplained_SenderNotLive_IsIgnored: complaints of a host that is not live do not count.
func TestComplained_SenderNotLive_IsIgnored(t *testing.T) {
	for _, state := range []layout.HostState{layout.StateJoining, layout.StateLeft} {
		r := live1(t)
		r.set(2, state, 2, 7, 1).Complaints = []layout.Complaint{{Host: 1, Lock: 7}}
		require.Empty(t, r.wait(r.now+times.Renew()), state)
	}
}

// TestSimulationComplaints: without trouble a complaint is reported to its host within two
// renewals and Alive, whatever other hosts complain about, and no host writes more than its
// complaints need.
func TestSimulationComplaints(t *testing.T) {
	for seed := range uint64(100) {
		s := newSim(seed + 1)
		s.calm = true
		for _, h := range s.hosts {
			s.start(h)
		}
		s.run(1)
		a, b := s.hosts[0], s.hosts[1]
		of := layout.Complaint{Host: b.m.ID(), Lock: 5}
		began := s.now + time.Duration(s.rng.Int64N(int64(s.times.Lease)))
		told := never
		b.onComplained = func(c Complained) {
			for _, c := range c.Of {
				if c == of {
					told = min(told, s.now)
				}
			}
		}
		var say func()
		say = func() {
			if told == never {
				s.carry(a, a.m.HeldUp(s.now, of, false))
				s.after(s.times.Retry(), say)
			}
		}
		s.after(began-s.now, say)
		s.run(6)
		require.Empty(t, s.broken)
		require.Less(t, told-began, 2*s.times.Renew()+s.times.Alive(), "seed %d", seed+1)
		require.Less(t, a.m.own.Sequence, uint64(6*s.times.Lease/s.times.Renew()+6))
	}
}
