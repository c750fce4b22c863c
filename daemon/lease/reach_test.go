package lease

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease/evict"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

// wideRig returns a rig in a lockspace of the given number of hosts.
func wideRig(t *testing.T, id, hosts int) *rig {
	t.Helper()
	r := newRig(t, Config{})
	r.m.cfg.ID, r.m.id = id, id
	r.m.cfg.Hosts, r.m.hosts, r.m.tried = hosts, make([]Host, hosts), make([]bool, hosts)
	r.table = make([]Record, hosts)
	for i := range r.table {
		r.table[i].ID = i + 1
	}
	return r
}

// wideLive returns a wideRig that is live.
func wideLive(t *testing.T, id, hosts int) *rig {
	t.Helper()
	r := wideRig(t, id, hosts)
	r.start()
	require.Equal(t, hosts, want[ReadTable](r).Hosts, "to find the hosts")
	r.read(0)
	r.write(0)
	r.tick()
	require.Equal(t, hosts, want[ReadTable](r).Hosts, "to cover earlier hosts")
	r.read(0)
	r.write(0)
	want[Joined](r)
	return r
}

// renewals lets some hosts renew, and returns the number of records that each of n reads of this
// one covered.
func (r *rig) renewals(n int, others ...int) (reads []int) {
	r.t.Helper()
	for len(reads) < n {
		if read, ok := got[ReadTable](r); ok {
			reads = append(reads, read.Hosts)
			for _, id := range others {
				r.table[id-1].Sequence++
			}
			r.read(time.Millisecond)
			continue
		}
		if _, ok := got[Write](r); ok {
			r.write(time.Millisecond)
			continue
		}
		r.tick()
	}
	return reads
}

// TestReach: a host reads up to the last host, and the live host with the lowest id the whole
// table once a lease.
func TestReach(t *testing.T) {
	t.Run("lowest", func(t *testing.T) {
		r := wideLive(t, 1, 2000)
		require.Equal(t, []int{3, 3, 3, 3, 3, 2000, 3, 3, 3, 3, 3, 2000}, r.renewals(12))
	})
	t.Run("not the lowest", func(t *testing.T) {
		r := wideRig(t, 3, 2000)
		r.table = wideLive(t, 3, 2000).table
		r.set(1, layout.StateLive, 2, 7, 1).ReadHorizon = 5
		r.table[2] = Record{}
		r.start()
		r.read(0)
		r.join()
		for _, reach := range r.renewals(24, 1) {
			require.Equal(t, 5, reach)
		}
		reads := r.renewals(8) // host 1 falls silent
		require.Contains(t, reads, 2000)
		require.Equal(t, 1, count(reads, 2000), "%v", reads)
	})
	t.Run("asked to, between renewals", func(t *testing.T) {
		r := wideLive(t, 1, 2000)
		for ; r.now < r.m.sweptAt+times.Lease; r.now += times.Watch() {
			r.out = r.m.Refresh(r.now)
			require.LessOrEqual(t, want[ReadTable](r).Hosts, 3)
			r.read(0)
			if _, ok := got[Write](r); ok {
				r.write(0)
			}
		}
	})
	t.Run("leaving", func(t *testing.T) {
		r := wideRig(t, 1, 2000)
		r.start()
		r.read(0)
		r.write(0)
		r.out = r.m.Leave(r.now)
		require.Equal(t, 3, want[ReadTable](r).Hosts)
		r.read(0)
		require.Equal(t, layout.StateLeft, r.write(0).State)
	})
}

func count(all []int, x int) (n int) {
	for _, y := range all {
		if y == x {
			n++
		}
	}
	return n
}

// TestReachUnread: nothing is concluded about a record that a read did not cover, and its
// verdicts are not read.
func TestReachUnread(t *testing.T) {
	r := wideLive(t, 1, 40)
	before := r.m.Host(30)
	far := r.set(30, layout.StateLive, 2, 7, 1)
	far.ReadHorizon = 38
	far.Verdicts = []layout.Verdict{{Host: 1, Incarnation: 101}}
	require.Equal(t, []int{3, 3, 3}, r.renewals(3))
	require.Equal(t, before, r.m.Host(30))
	require.Len(t, r.m.Hosts(), 3)
	far.Verdicts = nil
	require.Equal(t, []int{3, 3, 40}, r.renewals(3, 30))
	require.Equal(t, 38, r.m.ReadHorizon(), "as far as that has found")
	require.Equal(t, 38, want[Write](r).Record.ReadHorizon, "published by the renewal that the read is for")
	seen := r.m.Host(30)
	require.EqualValues(t, 7, seen.Incarnation)
	require.GreaterOrEqual(t, seen.Since, seen.Read, "it stands since it was first read")
	require.Len(t, r.m.Hosts(), 38)
}

// TestReachAdopts: hosts adopt the read horizon of a live host, but not of a dead one.
func TestReachAdopts(t *testing.T) {
	r := wideLive(t, 3, 40)
	r.set(1, layout.StateLeft, 2, 7, 1).ReadHorizon = 20
	r.renewals(1)
	require.Equal(t, 5, r.m.ReadHorizon())
	r.set(1, layout.StateLive, 2, 8, 1).ReadHorizon = 30
	r.renewals(1, 1)
	require.Equal(t, 30, r.m.ReadHorizon())
	require.Equal(t, 30, want[Write](r).Record.ReadHorizon, "at once")
	r.renewals(12, 1)
	require.Equal(t, 30, r.m.ReadHorizon())
}

// TestReachUnheard: no host publishes verdicts before all live hosts read its record (HEARD).
func TestReachUnheard(t *testing.T) {
	mutating := mutating(t)
	for _, mu := range []mutation{sound, unheard} {
		if mu != sound && !mutating {
			continue
		}
		r := wideRig(t, 30, 40)
		r.m.mutate(mu)
		r.set(1, layout.StateLive, 2, 7, 1).ReadHorizon = 3
		r.start()
		r.read(0)
		r.join()
		require.ErrorIs(t, want[Delayed](r).Reason, ErrFar)
		r.renewals(1, 1)
		require.True(t, r.m.Live(r.now) && !r.m.Ready())
		var err error
		r.out, err = r.m.Evict(r.now, 1, 7, false)
		if mu == unheard {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, evict.ErrNotLive)
		r.table[0].ReadHorizon = 30
		r.renewals(1, 1)
		require.True(t, r.m.Ready())
		_, err = r.m.Evict(r.now, 1, 7, false)
		require.NoError(t, err)
	}
}

// joinTimes returns how long it takes until the last of some hosts, with ids from 1 on, is ready.
// They join one after the other, or at the same time, without trouble.
func joinTimes(hosts, of int, atOnce bool) (took time.Duration, records int) {
	s := newSim(1)
	s.rng = rand.New(rand.NewPCG(7, 7))
	s.calm, s.times = true, timing.Times{Lease: 30 * time.Second}
	s.disk, s.torn, s.hosts = make([]layout.HostRecord, of), make([]int, of), nil
	for i := range hosts {
		h := &simHost{name: fmt.Sprint(i + 1), machine: byte(i + 1), ended: make(map[uint64]bool), m: New(Config{Hosts: of, Times: s.times})}
		s.hosts = append(s.hosts, h)
	}
	next := 0
	begin := func() {
		s.fixed = next + 1
		h := s.hosts[next]
		next++
		h.life++
		h.left = make([]uint64, of)
		h.m = New(Config{ID: next, Hosts: of, Times: s.times, Self: layout.HostRecord{MachineID: machineID(h.machine)},
			Incarnation: func() uint64 { s.serial++; return s.serial }})
		s.carry(h, h.m.Start(s.now))
	}
	for next < hosts && atOnce {
		begin()
	}
	for {
		ready := 0
		for _, h := range s.hosts[:next] {
			if h.m.Ready() {
				ready++
			}
		}
		if ready == hosts {
			return s.now, s.hosts[0].m.ReadHorizon()
		}
		if ready == next {
			begin()
		}
		s.step()
	}
}

// TestJoinTimes: of hosts that join one after the other, not each has to wait for renewals of the
// others.
func TestJoinTimes(t *testing.T) {
	for _, c := range []struct {
		hosts  int
		atOnce bool
		within time.Duration
	}{{3, false, 5 * time.Second}, {16, false, 15 * time.Second}, {64, true, 3 * time.Second}} {
		took, reach := joinTimes(c.hosts, 200, c.atOnce)
		t.Logf("%d hosts, at once %v: %v, then reads cover %d", c.hosts, c.atOnce, took.Round(time.Millisecond), reach)
		require.Less(t, took, c.within)
	}
}
