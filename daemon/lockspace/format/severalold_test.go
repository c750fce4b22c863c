package format

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// TestFormatSeveral_SomeMembersOfALockspace_AreRefused: the refusal says how many are missing.
func TestFormatSeveral_SomeMembersOfALockspace_AreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disks := newDisks(5)
		old := oldSeveral(t, disks, map[*layout.HostRecord][]int{severalHost(2, "db2"): {0, 2, 4}})
		before := contentsOf(t, disks)
		for _, test := range []struct {
			given   []int
			missing int
		}{{[]int{1}, 4}, {[]int{4, 0, 2}, 2}, {[]int{0, 1, 2, 3, 4}, 0}} {
			var devs []blockdev.Device
			for _, i := range test.given {
				devs = append(devs, openAll(disks)[i])
			}
			_, err := FormatDevices(t.Context(), devs, formatOptions("new"))
			require.ErrorIs(t, err, ErrOccupied)
			for _, i := range test.given {
				require.ErrorContains(t, err, fmt.Sprintf(`format %s: device is not empty: it holds lockspace "old" (%v) on 5 disks, position %d, `,
					diskPath(i), old.UUID, i+1))
			}
			if test.missing > 0 {
				require.ErrorContains(t, err, fmt.Sprintf("; give all 5 disks of that lockspace, %d of them are missing here", test.missing))
			} else {
				require.NotContains(t, err.Error(), "missing")
			}
		}
		require.Equal(t, before, contentsOf(t, disks))
	})
}

// TestFormatSeveral_OldOneHasAVacantPosition_DiskThereIsNotMissing: there is none to give.
func TestFormatSeveral_OldOneHasAVacantPosition_DiskThereIsNotMissing(t *testing.T) {
	disks := newDisks(3)
	sb := oldSeveral(t, disks, nil)
	sb.Members.Disks[2] = layout.UUID{}
	for i := range 2 {
		sb.Position = i + 1
		lockspacetest.PutSuperblocks(t, disks[i].Open(), sb)
	}
	_, err := FormatDevices(t.Context(), openAll(disks)[:1], formatOptions("new"))
	require.ErrorContains(t, err, "; give all 2 disks of that lockspace, 1 of them are missing here")
	o := formatOptions("new")
	o.Force = true
	_, err = FormatDevices(t.Context(), openAll(disks), o)
	require.NoError(t, err)
}

// TestFormatSeveral_RenewalOnOneMember_IsSeen: the other members have older records of the host.
func TestFormatSeveral_RenewalOnOneMember_IsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disks, host := newDisks(3), severalHost(3, "db3")
		old := oldSeveral(t, disks, map[*layout.HostRecord][]int{host: {0, 1, 2}})
		r := &renewer{}
		r.run(t, disks[1].Open(), old, *host)
		_, err := FormatDevices(t.Context(), openAll(disks), formatOptions("new"))
		r.stop()
		require.ErrorIs(t, err, ErrHostAlive)
		require.ErrorContains(t, err, "lockspace is in use: host 3 (db3) is using it now")

		_, err = FormatDevices(t.Context(), openAll(disks), formatOptions("new"))
		require.NotErrorIs(t, err, ErrHostAlive)
		require.ErrorContains(t, err, "none of them was seen alive")
	})
}

// TestFormatSeveral_WithForce_WaitsForHostsOnAnyMember: the newest record of a host may be on one
// of the given disks only.
func TestFormatSeveral_WithForce_WaitsForHostsOnAnyMember(t *testing.T) {
	for name, others := range map[string]func(h *layout.HostRecord){
		"never joined": nil,
		"left before":  func(h *layout.HostRecord) { h.State = layout.StateLeft },
	} {
		for n := range 6 {
			at, renews := n/2, (n/2+n%2)%3
			t.Run(fmt.Sprintf("%s, seen on disk %d, renews on disk %d", name, at+1, renews+1), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					disks, host := newDisks(3), severalHost(2, "db2")
					hosts := map[*layout.HostRecord][]int{host: {at}}
					if others != nil {
						earlier := severalHost(2, "db2")
						others(earlier)
						hosts[earlier] = []int{(at + 1) % 3, (at + 2) % 3}
					}
					old := oldSeveral(t, disks, hosts)
					// The host does not notice at first, and one copy of its renewal lands.
					r := &renewer{stall: oldLease / 2}
					r.run(t, disks[renews].Open(), old, *host)
					time.Sleep(oldLease / 5)
					var told []string
					o := forced("new")
					o.Progress = func(m string) { told = append(told, m) }
					_, err := FormatDevices(t.Context(), openAll(disks), o)
					require.NoError(t, err)
					<-r.done
					require.Greater(t, time.Now(), r.deadline(), "both lockspaces had a live host")
					require.Equal(t, []string{"waiting 1.2s for the leases of the old lockspace to end", "host 2 (db2) renewed its lease, waiting 1.2s"}, told)
				})
			})
		}
	}
}

// TestFormatSeveral_HostsOfAnotherLockspace_AreWaitedFor: each disk had a lockspace of its own. The
// longest lease counts.
func TestFormatSeveral_HostsOfAnotherLockspace_AreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disks := newDisks(3)
		left := liveHost(1, "db1")
		left.State = layout.StateLeft
		oldLockspace(t, disks[0], left)
		oldLockspace(t, disks[1], liveHost(1, "db1"))
		begin := time.Now()
		_, err := FormatDevices(t.Context(), openAll(disks), forced("new"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begin), 1200*time.Millisecond)
		require.Less(t, time.Since(begin), 1500*time.Millisecond)
	})
}

// TestFormatSeveral_OverRemains: a disk without superblocks has its lease from another member; alone
// it has none.
func TestFormatSeveral_OverRemains(t *testing.T) {
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			disks := newDisks(3)
			old := oldSeveral(t, disks, map[*layout.HostRecord][]int{severalHost(2, "db2"): {0, 1, 2}})
			lockspacetest.Damage(t, disks[0].Open(), old.Geometry.Superblock(0))
			lockspacetest.Damage(t, disks[0].Open(), old.Geometry.Superblock(1))
			_, err := FormatDevices(t.Context(), openAll(disks[:n]), formatOptions("new"))
			require.ErrorContains(t, err, "the remains of lockspace "+old.UUID.String()+", whose superblock is lost, joined by host 2 (db2)")
			begin := time.Now()
			_, err = FormatDevices(t.Context(), openAll(disks[:n]), forced("new"))
			require.NoError(t, err)
			if n == 1 {
				require.GreaterOrEqual(t, time.Since(begin), 72*time.Minute)
			} else {
				require.GreaterOrEqual(t, time.Since(begin), 1200*time.Millisecond)
				require.Less(t, time.Since(begin), 2*time.Second)
			}
		})
	}
}

// TestFormatSeveral_OneMemberWithForce_LeavesTheOthers: the hosts that it shows are waited for.
func TestFormatSeveral_OneMemberWithForce_LeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disks, host := newDisks(3), severalHost(2, "db2")
		old := oldSeveral(t, disks, map[*layout.HostRecord][]int{host: {0, 1, 2}})
		before := contentsOf(t, disks)
		r := &renewer{stall: oldLease / 2}
		r.run(t, disks[1].Open(), old, *host)
		time.Sleep(oldLease / 5)
		result, err := FormatDevices(t.Context(), openAll(disks)[1:2], forced("new"))
		require.NoError(t, err)
		<-r.done
		require.Greater(t, time.Now(), r.deadline())
		require.False(t, result.Superblock.Members.Several())
		require.Equal(t, "new", requireOneLockspace(t, disks[1], nil, old))
		for _, i := range []int{0, 2} {
			require.Equal(t, before[i], lockspacetest.Contents(t, disks[i]))
		}
	})
}

// TestFormatSeveral_Zeroing_IsParallel: the progress is that of all disks.
func TestFormatSeveral_Zeroing_IsParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disks := newDisks(3)
		oldSeveral(t, disks, nil)
		var devs []blockdev.Device
		for i, dev := range openAll(disks) {
			f := disktest.NewFaulty(dev, disktest.FaultyOptions{})
			f.Inject(disktest.Fault{Op: blockdev.OpZero, Delay: time.Second * time.Duration(i+1)})
			devs = append(devs, f)
		}
		var done []int64
		o := forced("new")
		o.Counter = func(step string, n, total int64, bytes bool) {
			if step == "zeroing" {
				require.True(t, bytes)
				require.EqualValues(t, 3*layout.HeadSize, total)
				done = append(done, n)
			}
		}
		begin := time.Now()
		_, err := FormatDevices(t.Context(), devs, o)
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(begin))
		require.Equal(t, []int64{layout.HeadSize, 2 * layout.HeadSize, 3 * layout.HeadSize}, done)
	})
}
