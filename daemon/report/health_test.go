package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// healths returns the health of every host of a report, by id.
func healths(r *Report) map[int]Health {
	all := map[int]Health{}
	for _, h := range r.Hosts {
		all[h.ID] = h.Health
	}
	return all
}

func TestHealthOnTheDevice(t *testing.T) {
	disk, sb := lockspacetest.Example(t)
	lockspacetest.PutHost(t, disk.Open(), sb, layout.HostRecord{ID: 6, Incarnation: 6, State: layout.StateLive, ReadHorizon: 6,
		Verdicts: []layout.Verdict{{Host: 3, Incarnation: 1<<60 + 3, Kind: layout.VerdictForgotten}, {Host: 1, Incarnation: 77},
			{Host: 5, Incarnation: 1<<60 + 5}, {Host: 4, Incarnation: 1<<60 + 4, Kind: layout.VerdictWish}}})
	s, err := lockspace.Inspect(disk.OpenReadOnly())
	require.NoError(t, err)
	r := FromSnapshot(s)
	require.Equal(t, map[int]Health{1: HealthLive, 2: HealthLive, 3: HealthDead, 4: HealthDead, 5: HealthLeft, 6: HealthLive}, healths(r))
	for _, h := range r.Hosts {
		require.Equal(t, h.ID == 2, h.AskedToLeave, h.ID)
		require.Equal(t, h.ID == 3, h.Forgotten, h.ID)
		require.Nil(t, h.SilentMS)
		require.Nil(t, h.DeadInMS)
	}
}

// watchedBy returns what a daemon knows of the hosts of a lockspace 100 s after its first read.
// Each was seen to renew the given time ago.
func watchedBy(ages ...time.Duration) *Knowledge {
	k := &Knowledge{Now: 100 * time.Second, Times: timing.Times{Lease: 30 * time.Second}}
	for i, age := range ages {
		k.Hosts = append(k.Hosts, lease.Host{
			Readable: true, Incarnation: 1<<60 + uint64(i+1), State: layout.StateLive, Sequence: 1 << 59,
			Since: k.Now - age, Read: k.Now - time.Second,
		})
	}
	k.Hosts[2].State = layout.StateJoining
	k.Hosts[4].State, k.Hosts[4].Gone = layout.StateLeft, true
	return k
}

func TestHealthAsWatched(t *testing.T) {
	const s = time.Second
	report := func(k *Knowledge, policy layout.Policy) *Report {
		disk, _ := lockspacetest.Example(t)
		snapshot, err := lockspace.Inspect(disk.OpenReadOnly())
		require.NoError(t, err)
		snapshot.Superblock.Policy = policy
		return Build(snapshot, k)
	}

	k := watchedBy(2*s, 21*s, 50*s, 50*s, 50*s, 0)
	r := report(k, layout.PolicyLease)
	require.Equal(t, map[int]Health{1: HealthLive, 2: HealthSilent, 3: HealthJoining, 4: HealthDead, 5: HealthLeft}, healths(r))
	require.Equal(t, int64(2000), *r.Hosts[0].SilentMS)
	require.Nil(t, r.Hosts[0].DeadInMS)
	require.Equal(t, int64(21_000), *r.Hosts[1].SilentMS)
	require.Equal(t, int64(15_000), *r.Hosts[1].DeadInMS)
	require.True(t, r.Hosts[1].AskedToLeave)
	require.Equal(t, int64(50_000), *r.Hosts[3].SilentMS, "a dead host")
	require.Equal(t, int64(50_000), *r.Hosts[4].SilentMS, "one that has left")
	k.Began = 60 * s
	r = report(k, layout.PolicyLease)
	require.Nil(t, r.Hosts[3].SilentMS, "its last renewal was before this host watched it")
	require.Nil(t, r.Hosts[4].SilentMS)
	require.NotNil(t, r.Hosts[1].SilentMS)

	k.Hosts[1].Watchdog = 10 * s
	require.Equal(t, int64(25_000), *report(k, layout.PolicyFence).Hosts[1].DeadInMS)
	r = report(k, layout.PolicyManual)
	require.Equal(t, HealthSilent, r.Hosts[1].Health)
	require.Nil(t, r.Hosts[1].DeadInMS)
	k.Now += 60 * s
	require.Zero(t, *report(k, layout.PolicyLease).Hosts[1].DeadInMS)

	for _, c := range []struct {
		silent, failed time.Duration // since when; the time after the host was due at which an attempt of this host failed, 0: none
		fences         int
		next           int64
	}{
		{35 * s, 0, 0, 0},
		{36 * s, 0, 0, 0},
		{65 * s, 0, 0, 0},
		{36*s + 2*s, 1 * s, 1, 28_000}, // this host knows before the window is over
		{67 * s, 0, 1, 29_000},
		{67 * s, 1 * s, 1, 29_000}, // in an earlier window
		{100 * s, 0, 2, 26_000},
		{100 * s, 61 * s, 3, 26_000},
	} {
		k = watchedBy(2*s, c.silent, 0, 0, 0, 0)
		if c.failed > 0 {
			k.FailedFences = map[int]time.Duration{2: k.Hosts[1].Since + 36*s + c.failed}
		}
		h := report(k, layout.PolicyFence).Hosts[1]
		require.Equal(t, c.fences, h.FailedFences, c)
		require.Equal(t, c.next > 0, h.NextFenceMS != nil, c)
		if c.next > 0 {
			require.Equal(t, c.next, *h.NextFenceMS, c)
		}
		require.Zero(t, report(k, layout.PolicyLease).Hosts[1].FailedFences, "nothing is fenced")
	}

	k = watchedBy(2*s, 21*s, 0, 0, 0, 0)
	k.Hosts[1].Sequence-- // the report's own read has seen a renewal
	k.Taken = k.Now - 4*s
	r = report(k, layout.PolicyLease)
	require.Equal(t, HealthLive, r.Hosts[1].Health)
	require.Equal(t, int64(4000), *r.Hosts[1].SilentMS)
	k.Taken = k.Now - 31*s
	k.Hosts[1].Since, k.Hosts[1].Read = k.Taken-s, k.Taken-s
	require.Equal(t, HealthUnknown, report(k, layout.PolicyLease).Hosts[1].Health, "the disk is not read any more")
	k.Hosts[1].Incarnation-- // and a new incarnation
	require.Equal(t, HealthUnknown, report(k, layout.PolicyLease).Hosts[1].Health)
	k.Taken = k.Now
	require.Equal(t, HealthLive, report(k, layout.PolicyLease).Hosts[1].Health)
	require.Nil(t, report(k, layout.PolicyLease).Hosts[1].SilentMS)
}

// TestHealthByAVerdictOfLongAgo: its author may have replaced the verdict by another, or have
// ended.
func TestHealthByAVerdictOfLongAgo(t *testing.T) {
	disk, _ := lockspacetest.Example(t)
	snapshot, err := lockspace.Inspect(disk.OpenReadOnly())
	require.NoError(t, err)
	k := watchedBy(0, 0, 0, 0, 0, 0)
	k.Hosts[0].Gone, k.Hosts[0].Forgotten = true, true
	r := Build(snapshot, k)
	require.Equal(t, HealthDead, r.Hosts[0].Health)
	require.True(t, r.Hosts[0].Forgotten)
	require.Empty(t, r.Locks[1].Holders, "its locks are free")
}

func TestHealthOfAnUnreadableRecord(t *testing.T) {
	disk, sb := lockspacetest.Example(t)
	lockspacetest.Damage(t, disk.Open(), sb.Geometry.Host(2))
	snapshot, err := lockspace.Inspect(disk.OpenReadOnly())
	require.NoError(t, err)
	k := watchedBy(0, 50*time.Second, 0, 0, 0, 0)
	k.Hosts[1].Readable, k.Hosts[1].Name, k.Hosts[1].Read = false, "db2", k.Hosts[1].Since
	k.Hosts[1].Damaged = k.Now - 20*time.Second
	r := Build(snapshot, k)
	require.Len(t, r.Hosts, 5)
	h := r.Hosts[1]
	require.Equal(t, 2, h.ID)
	require.Equal(t, "db2", h.Name)
	require.True(t, h.Unreadable)
	require.Equal(t, HealthSilent, h.Health)
	require.Equal(t, int64(17_500), *h.DeadInMS, "it may have renewed its lease just before the damage")
	require.Equal(t, "db2", r.Locks[1].Queue[1].HostName)

	k.Hosts[1].Gone = true // evicted
	r = Build(snapshot, k)
	require.Equal(t, HealthDead, r.Hosts[1].Health)
	require.Len(t, r.Locks[1].Queue, 1, "its slot is void")
}

// TestReport_HostFromMemory_IDsAreEmpty: zeros would be the machine and the boot of every such host.
func TestReport_HostFromMemory_IDsAreEmpty(t *testing.T) {
	record := Remembered(1, lease.Host{Name: "db1", Incarnation: 5, State: layout.StateLive})
	s := &lockspace.Snapshot{Hosts: []layout.HostRecord{record, {ID: 2, Incarnation: 6, MachineID: [16]byte{1}, BootID: [16]byte{15: 2}}}}
	r := FromSnapshot(s)
	require.Empty(t, r.Hosts[0].MachineID+r.Hosts[0].BootID)
	require.Equal(t, "01000000000000000000000000000000", r.Hosts[1].MachineID)
	require.Equal(t, "00000000000000000000000000000002", r.Hosts[1].BootID)
}
