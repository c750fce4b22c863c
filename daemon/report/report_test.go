package report

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

func TestReport(t *testing.T) {
	disk, sb := lockspacetest.Example(t)
	before := lockspacetest.Contents(t, disk)
	s, err := lockspace.Inspect(disk.OpenReadOnly())
	require.NoError(t, err)
	require.Equal(t, before, lockspacetest.Contents(t, disk))
	require.Len(t, s.Hosts, 5)
	require.Len(t, s.Entries, 3)
	require.Len(t, s.Slots, 8, "all but that of the removed lock")
	require.Empty(t, s.Damaged)

	r := FromSnapshot(s)
	require.Equal(t, Lockspace{Name: "prod", UUID: sb.UUID, Device: "memory", Stride: 512, Hosts: 6, Locks: 8,
		LeaseMS: 30000, Formatted: sb.Formatted, Warnings: []string{}}, r.Lockspace)
	require.Nil(t, r.ThisHost)
	var dead []int
	for _, h := range r.Hosts {
		if h.Dead {
			dead = append(dead, h.ID)
		}
	}
	require.Equal(t, []int{4}, dead)
	require.Equal(t, []Lock{
		{Name: "backup", Number: 3, Permits: 1, Creation: 9, Holders: []Holder{}, Queue: []Queued{}},
		{Name: "queue", Number: 1, Permits: 2, Creation: 7,
			Holders: []Holder{{Host: 1, HostName: "db1", PID: 4711, Command: "rsync -a",
				Since: time.Unix(1700000000, 0).UTC(), Token: layout.MakeTicket(100, 1), Phase: layout.Held, Published: true, HostHealth: HealthLive}},
			Queue: []Queued{
				{Place: 1, Host: 3, HostName: "db3", Mode: layout.Shared, Ticket: layout.MakeTicket(400, 3), Phase: layout.Choosing},
				{Place: 2, Host: 2, HostName: "db2", Ticket: layout.MakeTicket(300, 2), Phase: layout.Waiting},
			}},
	}, r.Locks)

	// The JSON can be decoded, and keeps 64 bits.
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(text), `"incarnation":"1000000000000001","sequence":"576460752303423488"`)
	require.Contains(t, string(text), `"this_host":null`)
	require.NotContains(t, string(text), "local")
	var back Report
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, r, &back)
}

func TestReportDirectoryLock(t *testing.T) {
	disk, sb := lockspacetest.Example(t)
	lockspacetest.PutSlot(t, disk.Open(), sb, layout.Slot{Lock: 0, Host: 2, Incarnation: 1<<60 + 2, Phase: layout.Held, Ticket: layout.MakeTicket(5, 2)})
	s, err := lockspace.Inspect(disk.Open())
	require.NoError(t, err)
	locks := FromSnapshot(s).Locks
	require.Len(t, locks, 3)
	require.Zero(t, locks[0].Number)
	require.Equal(t, 2, locks[0].Holders[0].Host)
}

func TestReport_DamagedRecords_AreListedAndBelieved(t *testing.T) {
	disk, sb := lockspacetest.Example(t)
	dev, g := disk.Open(), sb.Geometry
	for _, at := range []int64{0, g.Host(1), g.Entry(2), g.Slot(1, 2), g.Slot(1, 3)} {
		lockspacetest.Damage(t, dev, at)
	}
	report := func() *Report {
		s, err := lockspace.Inspect(dev)
		require.NoError(t, err)
		return FromSnapshot(s)
	}
	r := report()
	require.Equal(t, []string{"the superblock is damaged, its copy is in use"}, r.Lockspace.Warnings)
	require.Len(t, r.Damaged, 5)
	require.Equal(t, g.Host(1), r.Damaged[1].Offset)
	require.Contains(t, r.Damaged[1].Error, "damaged record")
	// With host 1 unreadable its slots count, and its verdict on host 4 is not seen.
	require.Equal(t, "queue", r.Locks[1].Name)
	require.Len(t, r.Locks[1].Holders, 2)
	require.Equal(t, 4, r.Locks[1].Holders[0].Host)
	require.Equal(t, 1, r.Locks[1].Holders[1].Host)

	lockspacetest.Damage(t, dev, 0) // undo
	lockspacetest.Damage(t, dev, g.Superblock(1))
	require.Equal(t, []string{"the copy of the superblock is damaged"}, report().Lockspace.Warnings)
}
