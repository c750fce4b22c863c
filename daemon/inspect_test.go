package daemon

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

func TestReport(t *testing.T) {
	disk, sb := lockspacetest.Example(t)
	before := lockspacetest.Contents(t, disk)
	s, err := Inspect(disk.OpenReadOnly())
	require.NoError(t, err)
	require.Equal(t, before, lockspacetest.Contents(t, disk))
	require.Len(t, s.Hosts, 5)
	require.Len(t, s.Entries, 3)
	require.Len(t, s.Slots, 8, "all but that of the removed lock")
	require.Empty(t, s.Damaged)

	r := s.Report()
	require.Equal(t, LockspaceReport{Name: "prod", UUID: sb.UUID, Device: "memory", Stride: 512, Hosts: 6, Locks: 8,
		LeaseMS: 30000, Formatted: sb.Formatted, Warnings: []string{}}, r.Lockspace)
	require.Nil(t, r.ThisHost)
	var dead []int
	for _, h := range r.Hosts {
		if h.Dead {
			dead = append(dead, h.ID)
		}
	}
	require.Equal(t, []int{4}, dead)
	require.Equal(t, []LockReport{
		{Name: "backup", Lock: 3, Permits: 1, Creation: 9, Holders: []HolderReport{}, Queue: []QueueReport{}},
		{Name: "queue", Lock: 1, Permits: 2, Creation: 7,
			Holders: []HolderReport{{Host: 1, HostName: "db1", PID: 4711, Command: "rsync -a",
				Since: time.Unix(1700000000, 0).UTC(), Token: layout.MakeTicket(100, 1), Phase: layout.Held, Settled: true}},
			Queue: []QueueReport{
				{Place: 1, Host: 3, HostName: "db3", Mode: layout.Shared, Ticket: layout.MakeTicket(400, 3), Phase: layout.Choosing},
				{Place: 2, Host: 2, HostName: "db2", Ticket: layout.MakeTicket(300, 2), Phase: layout.Waiting},
			}},
	}, r.Locks)

	// Another may read it back, and 64 bits survive.
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(text), `"incarnation":"1152921504606846977","sequence":"576460752303423488"`)
	require.Contains(t, string(text), `"this_host":null`)
	require.NotContains(t, string(text), "local")
	var back Report
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, r, &back)
}

func TestReportDirectoryLock(t *testing.T) {
	disk, sb := lockspacetest.Example(t)
	lockspacetest.PutSlot(t, disk.Open(), sb, layout.Slot{Lock: 0, Host: 2, Incarnation: 1<<60 + 2, Phase: layout.Held, Ticket: layout.MakeTicket(5, 2)})
	s, err := Inspect(disk.Open())
	require.NoError(t, err)
	locks := s.Report().Locks
	require.Len(t, locks, 3)
	require.Zero(t, locks[0].Lock)
	require.Equal(t, 2, locks[0].Holders[0].Host)
}

func TestInspectDamage(t *testing.T) {
	disk, sb := lockspacetest.Example(t)
	g := sb.Geometry
	dev := disk.Open()
	lockspacetest.Damage(t, dev, 0)
	lockspacetest.Damage(t, dev, g.Host(1))
	lockspacetest.Damage(t, dev, g.Entry(2))
	lockspacetest.Damage(t, dev, g.Slot(1, 2))
	f := blockdev.NewFaulty(dev, blockdev.FaultyOptions{})
	f.Inject(blockdev.Fault{Op: blockdev.OpRead, From: g.Slot(1, 3), To: g.Slot(1, 3) + 512, Err: unix.EIO})
	s, err := Inspect(f)
	require.NoError(t, err)
	require.Equal(t, 1, s.CopyUsed)
	var what []string
	for _, d := range s.Damaged {
		what = append(what, d.What())
	}
	require.Equal(t, []string{"superblock", "record of host 1", "directory entry of lock 2",
		"slot of host 2 in lock 1", "slot of host 3 in lock 1"}, what)
	require.ErrorIs(t, s.Damaged[4].Err, unix.EIO)

	r := s.Report()
	require.Equal(t, []string{"the superblock is damaged, its copy is in use"}, r.Lockspace.Warnings)
	require.Len(t, r.Damaged, 5)
	require.Equal(t, g.Host(1), r.Damaged[1].Offset)
	require.Contains(t, r.Damaged[1].Error, "damaged record")
	// With host 1 unreadable its slots count, and its verdict on host 4 is not seen.
	require.Equal(t, "queue", r.Locks[1].Name)
	require.Len(t, r.Locks[1].Holders, 2)
	require.Equal(t, 4, r.Locks[1].Holders[0].Host)
	require.Equal(t, 1, r.Locks[1].Holders[1].Host)

	f.Heal()
	lockspacetest.Damage(t, dev, 0) // undo
	lockspacetest.Damage(t, dev, g.Superblock(1))
	s, err = Inspect(f)
	require.NoError(t, err)
	require.Zero(t, s.CopyUsed)
	require.Equal(t, []string{"the copy of the superblock is damaged"}, s.Report().Lockspace.Warnings)
}

func TestInspectDeviceFails(t *testing.T) {
	disk, _ := lockspacetest.Example(t)
	f := blockdev.NewFaulty(disk.Open(), blockdev.FaultyOptions{})
	f.Inject(blockdev.Fault{Op: blockdev.OpRead, After: 3, Err: unix.ENXIO})
	_, err := Inspect(f)
	require.ErrorIs(t, err, unix.ENXIO)
	require.ErrorContains(t, err, "read host table")
}

func TestWalk(t *testing.T) {
	disk, sb := lockspacetest.Example(t)
	lockspacetest.Damage(t, disk.Open(), sb.Geometry.Slot(8, 6))
	var offset int64 = -1
	kinds := make(map[RecordKind]int)
	require.NoError(t, Walk(disk.OpenReadOnly(), sb, func(r Record) error {
		require.Greater(t, r.Offset, offset)
		offset = r.Offset
		kinds[r.Kind]++
		return nil
	}))
	require.Equal(t, map[RecordKind]int{KindSuperblock: 1, KindCopy: 1, KindHost: 5, KindEntry: 3, KindSlot: 10}, kinds)
	require.Equal(t, sb.Geometry.Slot(8, 6), offset)
}
