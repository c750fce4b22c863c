package lease

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease/members"
	"github.com/bakeryd/bakeryd/layout"
)

// membersRig drives one machine by hand over three members with the records of four hosts.
type membersRig struct {
	*rig
	copies [3][4]Copy
}

func newMembersRig(t *testing.T, cfg Config) *membersRig {
	t.Helper()
	cfg.Members = 3
	r := &membersRig{rig: newRig(t, cfg)}
	for k := range r.copies {
		for i := range r.copies[k] {
			r.copies[k][i].ID = i + 1
		}
	}
	return r
}

// put writes a record of another host on members.
func (r *membersRig) put(id int, state layout.HostState, machine byte, incarnation, generation, sequence uint64, members ...int) {
	for _, k := range members {
		r.copies[k][id-1] = Copy{HostRecord: layout.HostRecord{
			ID: id, Generation: uint32(generation), State: state, MachineID: machineID(machine), Incarnation: incarnation, Sequence: sequence, Name: "other", ReadHorizon: 4,
		}}
	}
}

// readFrom completes the requested read with the copies of members.
func (r *membersRig) readFrom(members ...int) {
	r.t.Helper()
	records := make([]Record, want[ReadTable](r.rig).Hosts)
	for i := range records {
		records[i].Copies = make([]Copy, len(r.copies))
		for _, k := range members {
			records[i].Copies[k] = r.copies[k][i]
			records[i].Copies[k].Read = true
		}
	}
	r.out = r.m.TableRead(r.now, records)
}

// writeTo completes the requested write on members, after a time.
func (r *membersRig) writeTo(took time.Duration, members ...int) {
	r.t.Helper()
	w := want[Write](r.rig)
	for _, k := range members {
		r.copies[k][w.Record.ID-1] = Copy{HostRecord: w.Record}
	}
	r.now += took
	r.out = r.m.WrittenOn(r.now, members)
}

// follow carries out the machine's actions until a time or until done. Its reads take turns among
// pairs of members.
func (r *membersRig) follow(until time.Duration, done func() bool, pairs ...[]int) {
	r.t.Helper()
	for turn := 0; r.now <= until && !done() && !r.m.Over(); {
		switch {
		case has[Write](r.rig):
			r.writeTo(0, 0, 1, 2)
		case has[ReadTable](r.rig):
			r.readFrom(pairs[turn%len(pairs)]...)
			turn++
		default:
			r.tick()
		}
	}
}

func forever() bool { return false } // follow until the time is over

// liveOn returns a rig whose machine is live and ready.
func liveOn(t *testing.T, cfg Config) *membersRig {
	t.Helper()
	r := newMembersRig(t, cfg)
	r.start()
	r.follow(r.now+time.Minute, r.m.Ready, []int{0, 1, 2})
	require.True(t, r.m.Ready())
	return r
}

// broken runs a check without a mutation and with one, and expects it to fail with that.
func broken(t *testing.T, mu mutation, holds func(t *testing.T, mu mutation) bool) {
	t.Helper()
	mutating := mutating(t)
	require.True(t, holds(t, sound))
	if mutating {
		require.False(t, holds(t, mu))
	}
}

// TestMembers_HalfWrittenRenewal_DeathIsNoticedInTime: reads return the last renewal of a dead host
// and the one before it in turns (GREATEST-EVER).
func TestMembers_HalfWrittenRenewal_DeathIsNoticedInTime(t *testing.T) {
	broken(t, lastRead, func(t *testing.T, mu mutation) bool {
		r := liveOn(t, Config{ID: 1})
		r.m.mutate(mu)
		r.put(2, layout.StateLive, 2, 7, 1, 8, 0)
		r.put(2, layout.StateLive, 2, 7, 1, 7, 1, 2)
		r.follow(r.now+times.Dead()+2*times.Alive(), forever, []int{0, 1}, []int{1, 2})
		return r.m.Host(2).Gone && r.m.Host(2).Incarnation == 7
	})
}

// TestMembers_HalfWrittenRenewal_RejoinIsNotRefused: the machine of a dead host joins again. A change
// of its record is no sign of life, because the last renewal may be on a minority (TWICE).
func TestMembers_HalfWrittenRenewal_RejoinIsNotRefused(t *testing.T) {
	broken(t, stirs, func(t *testing.T, mu mutation) bool {
		r := newMembersRig(t, Config{ID: 2})
		r.m.mutate(mu)
		r.put(2, layout.StateLive, 1, 7, 1, 8, 0)
		r.put(2, layout.StateLive, 1, 7, 1, 7, 1, 2)
		r.start()
		r.follow(r.now+3*times.Dead(), r.m.Ready, []int{1, 2}, []int{0, 1})
		return r.m.Ready()
	})
}

// TestMembers_IDInUse_IsRefused: two changes of the record are a sign of life.
func TestMembers_IDInUse_IsRefused(t *testing.T) {
	r := newMembersRig(t, Config{ID: 2})
	r.start()
	for seq := uint64(7); !r.m.Over(); seq++ {
		require.Less(t, seq, uint64(10))
		r.put(2, layout.StateLive, 1, 7, 1, seq, 0, 1, 2)
		r.readFrom(0, 1)
		if !r.m.Over() {
			r.tick()
		}
	}
	require.ErrorIs(t, want[Refused](r.rig).Reason, ErrInUse)
}

// TestMembers_VerdictOnMinority_EndsTheLeaseOfItsHost: other hosts may have acted on it (CO-SIGN).
func TestMembers_VerdictOnMinority_EndsTheLeaseOfItsHost(t *testing.T) {
	broken(t, deafMinority, func(t *testing.T, mu mutation) bool {
		r := liveOn(t, Config{ID: 1})
		r.m.mutate(mu)
		r.put(2, layout.StateLive, 2, 7, 1, 7, 0, 1, 2)
		r.copies[0][1].Sequence, r.copies[0][1].Verdicts = 8, []layout.Verdict{{Host: 1, Incarnation: r.m.Incarnation()}}
		r.follow(r.now+2*times.Alive(), forever, []int{0, 1})
		return r.m.Over()
	})
}

// TestMembers_VerdictOnMinority_IsPublishedBeforeItCounts (CO-SIGN).
func TestMembers_VerdictOnMinority_IsPublishedBeforeItCounts(t *testing.T) {
	r := liveOn(t, Config{ID: 1})
	r.put(3, layout.StateLive, 3, 9, 1, 3, 0, 1, 2)
	r.put(2, layout.StateLive, 2, 7, 1, 7, 0, 1, 2)
	v := layout.Verdict{Host: 3, Incarnation: 9}
	r.copies[0][1].Sequence, r.copies[0][1].Verdicts = 8, []layout.Verdict{v}
	r.follow(r.now+times.Alive(), func() bool { return has[Write](r.rig) }, []int{0, 1})
	require.Equal(t, []layout.Verdict{v}, want[Write](r.rig).Record.Verdicts)
	require.False(t, r.m.Host(3).Gone)
	r.writeTo(0, 1, 2)
	require.True(t, r.m.Host(3).Gone)
}

// TestMembers_VerdictOnMajority_Counts: it stands without another write.
func TestMembers_VerdictOnMajority_Counts(t *testing.T) {
	r := liveOn(t, Config{ID: 1})
	r.put(3, layout.StateLive, 3, 9, 1, 3, 0, 1, 2)
	r.put(2, layout.StateLive, 2, 7, 1, 7, 0, 1, 2)
	for _, k := range []int{0, 1} {
		r.copies[k][1].Sequence, r.copies[k][1].Verdicts = 8, []layout.Verdict{{Host: 3, Incarnation: 9}}
	}
	r.follow(r.now+times.Alive(), func() bool { return r.m.Host(3).Gone && r.m.Host(3).Incarnation == 9 }, []int{0, 1})
	require.True(t, r.m.Host(3).Gone && r.m.Host(3).Incarnation == 9)
	require.Empty(t, r.m.own.Verdicts)
}

// TestMembers_VerdictOnMinority_FreesNoID: a host that is not live cannot publish it (CO-SIGN).
func TestMembers_VerdictOnMinority_FreesNoID(t *testing.T) {
	broken(t, minorityVerdict, func(t *testing.T, mu mutation) bool {
		r := newMembersRig(t, Config{ID: 3, Policy: layout.PolicyManual})
		r.m.mutate(mu)
		r.put(3, layout.StateLive, 1, 9, 1, 3, 0, 1, 2)
		r.put(2, layout.StateLive, 2, 7, 1, 7, 0, 1, 2)
		r.copies[0][1].Sequence, r.copies[0][1].Verdicts = 8, []layout.Verdict{{Host: 3, Incarnation: 9}}
		r.start()
		r.readFrom(0, 1)
		return !has[Write](r.rig)
	})
}

// TestMembers_ClaimOnMinority_KeepsTheVerdict: if the claim of a next host was half-written, the host
// under a verdict may read neither the claim nor, if it was dropped, the verdict (DROP).
func TestMembers_ClaimOnMinority_KeepsTheVerdict(t *testing.T) {
	broken(t, dropSoon, func(t *testing.T, mu mutation) bool {
		r := liveOn(t, Config{ID: 1})
		r.put(2, layout.StateLive, 2, 7, 1, 7, 0, 1, 2)
		r.follow(r.now+times.Dead()+2*times.Alive(), func() bool { return r.m.sentenced(2, 7) }, []int{0, 1})
		require.True(t, r.m.sentenced(2, 7))
		r.m.mutate(mu)
		r.put(2, layout.StateJoining, 2, 8, 2, 8, 0)
		r.follow(r.now+2*times.Alive(), forever, []int{0, 1})
		return r.m.sentenced(2, 7)
	})
}

// TestMembers_ClaimOnMajority_DropsTheVerdict: its room is needed.
func TestMembers_ClaimOnMajority_DropsTheVerdict(t *testing.T) {
	r := liveOn(t, Config{ID: 1})
	r.put(2, layout.StateLive, 2, 7, 1, 7, 0, 1, 2)
	r.follow(r.now+times.Dead()+2*times.Alive(), func() bool { return r.m.sentenced(2, 7) }, []int{0, 1})
	r.put(2, layout.StateJoining, 2, 8, 2, 8, 0, 2)
	r.follow(r.now+2*times.Alive(), forever, []int{0, 1, 2})
	require.False(t, r.m.sentenced(2, 7))
}

// TestMembers_ResumedFromMinority_KeepsItsLease: the record that a process resumes from may be the
// half-written last one of the process before it.
func TestMembers_ResumedFromMinority_KeepsItsLease(t *testing.T) {
	broken(t, resumeSure, func(t *testing.T, mu mutation) bool {
		r := liveOn(t, Config{ID: 1})
		term, _ := r.m.Term()
		r.copies[0][0].Sequence++
		s := newMembersRig(t, Config{ID: 1, Resume: &term})
		s.m.mutate(mu)
		s.now, s.copies = r.now, r.copies
		s.start()
		s.readFrom(0, 1)
		require.True(t, want[Joined](s.rig).Resumed)
		s.follow(s.now+times.Alive(), func() bool { return has[Write](s.rig) }, []int{1, 2})
		return !s.m.Over()
	})
}

// TestMembers_LateRenewalsOnTwoMembers_SettleNothing: each may be the one that hung there. On one
// member the second comes after the first has returned (PER-MEMBER).
func TestMembers_LateRenewalsOnTwoMembers_SettleNothing(t *testing.T) {
	broken(t, anySteps, func(t *testing.T, mu mutation) bool {
		r := liveOn(t, Config{ID: 1})
		r.m.mutate(mu)
		read := func() {
			r.out = r.m.Refresh(r.now)
			r.readFrom(1, 2)
			r.follow(r.now, func() bool { return !has[Write](r.rig) }, []int{1, 2})
		}
		r.put(2, layout.StateLive, 2, 7, 1, 7, 0, 1, 2)
		read()
		r.now += time.Second
		r.put(2, layout.StateLive, 2, 7, 1, 8, 1)
		read()
		r.now += time.Second
		r.put(2, layout.StateLive, 2, 7, 1, 9, 2)
		read()
		return !r.m.Host(2).Settled
	})
}

// TestMembers_CountedMembersNotRead_ClaimIsRepeated: a claim whose members stay away is decided by
// those that are left.
func TestMembers_CountedMembersNotRead_ClaimIsRepeated(t *testing.T) {
	r := newMembersRig(t, Config{ID: 1})
	r.start()
	r.readFrom(0, 1)
	r.writeTo(0, 0, 1)
	first := r.m.own.Incarnation
	r.copies[2] = r.copies[1] // it shows the claim, but had not acknowledged it
	r.follow(r.now+3*times.Dead(), func() bool { return has[Write](r.rig) }, []int{1, 2})
	require.NotEqual(t, first, r.m.own.Incarnation)
	require.Equal(t, uint32(2), want[Write](r.rig).Record.Generation)
	r.writeTo(0, 1, 2)
	r.follow(r.now+3*times.Dead(), r.m.Ready, []int{1, 2})
	require.True(t, r.m.Ready())
}

// TestMembers_TooFewCopies_RecordIsUnreadable.
func TestMembers_TooFewCopies_RecordIsUnreadable(t *testing.T) {
	r := newMembersRig(t, Config{ID: 1})
	r.start()
	r.readFrom(1)
	require.False(t, has[Write](r.rig))
	r.follow(r.now+2*times.Dead(), forever, []int{1})
	require.ErrorIs(t, want[Refused](r.rig).Reason, members.ErrMinority)
}

// TestMembers_CopiesMissed_IDIsNotAbandoned: other hosts may read a majority. If they cannot, it is (ABANDONED).
func TestMembers_CopiesMissed_IDIsNotAbandoned(t *testing.T) {
	broken(t, missedDamage, func(t *testing.T, mu mutation) bool {
		r := liveOn(t, Config{ID: 1})
		r.m.mutate(mu)
		r.put(2, layout.StateLeft, 2, 7, 1, 7, 0, 1, 2)
		r.follow(r.now+times.Alive(), forever, []int{0, 1, 2})
		r.copies[0][1].Err = errSim
		after := r.m.abandonedAfter(&r.m.hosts[1]) + 2*times.Alive()
		r.follow(r.now+after, forever, []int{0, 1})
		abandoned := r.m.Host(2).Abandoned
		r.copies[1][1].Err = errSim
		r.follow(r.now+after, forever, []int{0, 1})
		require.True(t, r.m.Host(2).Abandoned)
		return !abandoned
	})
}

// TestMembers_Claim_OutranksEveryCopySeen (VERSIONS): also one on a minority.
func TestMembers_Claim_OutranksEveryCopySeen(t *testing.T) {
	r := newMembersRig(t, Config{ID: 1, Reclaim: true})
	r.put(1, layout.StateLive, 1, 7, 8, 9, 0)
	r.put(1, layout.StateLive, 1, 7, 3, 2, 1, 2)
	r.copies[1][0].Err, r.copies[2][0].Err = errSim, errSim
	r.start()
	r.follow(r.now+10*times.Dead(), func() bool { return has[Write](r.rig) }, []int{0, 1, 2})
	require.Equal(t, uint32(9), want[Write](r.rig).Record.Generation)
}

// TestMembers_ClaimRepeated_IsNewer: a copy of the first claim may still be in flight to a member.
func TestMembers_ClaimRepeated_IsNewer(t *testing.T) {
	r := newMembersRig(t, Config{ID: 1})
	r.start()
	r.readFrom(0, 1)
	first := want[Write](r.rig).Record
	r.out = r.m.WriteFailed(r.now)
	r.follow(r.now+3*times.Dead(), func() bool { return has[Write](r.rig) }, []int{0, 1})
	next := want[Write](r.rig).Record
	require.NotEqual(t, first.Incarnation, next.Incarnation)
	require.Equal(t, first.Generation, next.Generation)
	require.Greater(t, next.Sequence, first.Sequence)
}

// TestMembers_LastGeneration_ClaimIsRefused.
func TestMembers_LastGeneration_ClaimIsRefused(t *testing.T) {
	r := newMembersRig(t, Config{ID: 1})
	r.put(1, layout.StateLeft, 1, 7, math.MaxUint32, 9, 0, 1, 2)
	r.start()
	r.readFrom(0, 1)
	require.ErrorIs(t, want[Refused](r.rig).Reason, members.ErrGenerations)
}

// TestMachine_OneDisk_CountsNoGenerations: a record on one disk has no room for them.
func TestMachine_OneDisk_CountsNoGenerations(t *testing.T) {
	r := live1(t)
	require.Zero(t, r.table[0].Generation)
	require.Empty(t, want[Joined](r).Generation)
}

// TestMembers_Leaving_VoidsTheTerm: it must not be resumed once left may be on a member (LEFT-FIRST).
func TestMembers_Leaving_VoidsTheTerm(t *testing.T) {
	r := liveOn(t, Config{ID: 1})
	_, ok := r.m.Term()
	require.True(t, ok)
	r.out = r.m.Leave(r.now)
	require.Equal(t, layout.StateLeft, want[Write](r.rig).Record.State)
	_, ok = r.m.Term()
	require.False(t, ok)
}
