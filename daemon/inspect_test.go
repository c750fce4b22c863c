package daemon

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// inspected is a lockspace with something of everything in it.
func inspected(t *testing.T) (*blockdev.Memory, layout.Superblock) {
	t.Helper()
	disk := blockdev.NewMemory(1<<20, 512, 512)
	dev := disk.Open()
	result, err := formatDevice(t.Context(), dev, FormatOptions{Name: "prod", Hosts: 6, Locks: 8, Lease: 30 * time.Second})
	require.NoError(t, err)
	sb := result.Superblock
	host := func(id int, state layout.HostState, verdicts ...layout.Verdict) {
		putHost(t, dev, sb, layout.HostRecord{ID: id, Incarnation: 1<<60 + uint64(id), State: state, Sequence: 1 << 59,
			Name: []string{"", "db1", "db2", "db3", "db4", "db5"}[id], Highest: 5, Verdicts: verdicts})
	}
	host(1, layout.StateLive, layout.Verdict{Host: 4, Incarnation: 1<<60 + 4},
		layout.Verdict{Host: 2, Incarnation: 1<<60 + 2, Kind: layout.VerdictWish})
	host(2, layout.StateLive)
	host(3, layout.StateJoining)
	host(4, layout.StateLive) // dead
	host(5, layout.StateLeft)
	putEntry(t, dev, sb, layout.Entry{Lock: 1, Name: "queue", Permits: 2, Creation: 7})
	putEntry(t, dev, sb, layout.Entry{Lock: 2, Creation: 8}) // free
	putEntry(t, dev, sb, layout.Entry{Lock: 3, Name: "backup", Permits: 1, Creation: 9})
	slot := func(lock, host int, phase layout.Phase, number uint64, change func(s *layout.Slot)) {
		s := layout.Slot{Lock: lock, Host: host, Incarnation: 1<<60 + uint64(host), Creation: 7, Phase: phase,
			Ticket: layout.MakeTicket(number, host)}
		if change != nil {
			change(&s)
		}
		putSlot(t, dev, sb, s)
	}
	slot(1, 1, layout.Held, 100, func(s *layout.Slot) {
		s.Holder = layout.Holder{PID: 4711, Command: "rsync -a", Since: time.Unix(1700000000, 0).UTC()}
	})
	slot(1, 2, layout.Waiting, 300, nil)
	slot(1, 3, layout.Choosing, 400, func(s *layout.Slot) { s.Mode = layout.Shared })
	slot(1, 4, layout.Held, 50, nil)                                         // of a dead host
	slot(1, 5, layout.Waiting, 60, nil)                                      // of one that left
	slot(2, 1, layout.Held, 10, nil)                                         // of a removed lock
	slot(3, 1, layout.Waiting, 11, func(s *layout.Slot) { s.Creation = 8 })  // of the lock that was there before
	slot(3, 2, layout.Waiting, 12, func(s *layout.Slot) { s.Incarnation++ }) // of an earlier incarnation
	slot(3, 3, layout.Idle, 13, func(s *layout.Slot) { s.Creation = 9 })
	return disk, sb
}

func TestReport(t *testing.T) {
	disk, sb := inspected(t)
	before := contents(t, disk)
	s, err := Inspect(disk.OpenReadOnly())
	require.NoError(t, err)
	require.Equal(t, before, contents(t, disk))
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
	disk, sb := inspected(t)
	putSlot(t, disk.Open(), sb, layout.Slot{Lock: 0, Host: 2, Incarnation: 1<<60 + 2, Phase: layout.Held, Ticket: layout.MakeTicket(5, 2)})
	s, err := Inspect(disk.Open())
	require.NoError(t, err)
	locks := s.Report().Locks
	require.Len(t, locks, 3)
	require.Zero(t, locks[0].Lock)
	require.Equal(t, 2, locks[0].Holders[0].Host)
}

func TestInspectDamage(t *testing.T) {
	disk, sb := inspected(t)
	g := sb.Geometry
	dev := disk.Open()
	damage(t, dev, 0)
	damage(t, dev, g.Host(1))
	damage(t, dev, g.Entry(2))
	damage(t, dev, g.Slot(1, 2))
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
	damage(t, dev, 0) // undo
	damage(t, dev, g.Superblock(1))
	s, err = Inspect(f)
	require.NoError(t, err)
	require.Zero(t, s.CopyUsed)
	require.Equal(t, []string{"the copy of the superblock is damaged"}, s.Report().Lockspace.Warnings)
}

func TestInspectDeviceFails(t *testing.T) {
	disk, _ := inspected(t)
	f := blockdev.NewFaulty(disk.Open(), blockdev.FaultyOptions{})
	f.Inject(blockdev.Fault{Op: blockdev.OpRead, After: 3, Err: unix.ENXIO})
	_, err := Inspect(f)
	require.ErrorIs(t, err, unix.ENXIO)
	require.ErrorContains(t, err, "read host table")
}

func TestWalk(t *testing.T) {
	disk, sb := inspected(t)
	damage(t, disk.Open(), sb.Geometry.Slot(8, 6))
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
