// Package lockspacetest writes lockspaces and single records, valid and damaged ones, for tests.
package lockspacetest

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// PutSuperblocks writes the superblock and its copy.
func PutSuperblocks(t testing.TB, dev blockdev.Device, sb layout.Superblock) {
	t.Helper()
	for copy := range 2 {
		p := blockdev.Alloc(sb.Geometry.Stride)
		require.NoError(t, sb.Encode(p, copy))
		require.NoError(t, dev.Write(p, sb.Geometry.Superblock(copy)))
	}
}

// PutHost writes a host record.
func PutHost(t testing.TB, dev blockdev.Device, sb layout.Superblock, h layout.HostRecord) {
	t.Helper()
	p := blockdev.Alloc(sb.Geometry.Stride)
	require.NoError(t, sb.Space().EncodeHost(p, h))
	require.NoError(t, dev.Write(p, sb.Geometry.Host(h.ID)))
}

// PutSlot writes a slot.
func PutSlot(t testing.TB, dev blockdev.Device, sb layout.Superblock, s layout.Slot) {
	t.Helper()
	p := blockdev.Alloc(sb.Geometry.Stride)
	require.NoError(t, sb.Space().EncodeSlot(p, s))
	require.NoError(t, dev.Write(p, sb.Geometry.Slot(s.Lock, s.Host)))
}

// PutEntry writes a directory entry.
func PutEntry(t testing.TB, dev blockdev.Device, sb layout.Superblock, e layout.Entry) {
	t.Helper()
	p := blockdev.Alloc(sb.Geometry.Stride)
	require.NoError(t, sb.Space().EncodeEntry(p, e))
	require.NoError(t, dev.Write(p, sb.Geometry.Entry(e.Lock)))
}

// Contents returns the contents of a disk.
func Contents(t testing.TB, disk *disktest.Memory) []byte {
	t.Helper()
	dev := disk.Open()
	p := blockdev.Alloc(int(dev.Info().Size))
	require.NoError(t, dev.Read(p, 0))
	return p
}

// Damage flips a bit of the record at an offset, so that its checksum fails.
func Damage(t testing.TB, dev blockdev.Device, off int64) {
	t.Helper()
	p := blockdev.Alloc(dev.Info().LogicalBlock)
	require.NoError(t, dev.Read(p, off))
	p[300] ^= 1
	require.NoError(t, dev.Write(p, off))
}

// Forge sets a valid checksum and address in a record, so that decoding reaches its fields.
func Forge(record []byte, address int64) {
	binary.LittleEndian.PutUint64(record[16:], uint64(address))
	clear(record[8:12])
	binary.LittleEndian.PutUint32(record[8:], crc32.Checksum(record[:layout.RecordSize], crc32.MakeTable(crc32.Castagnoli)))
}

// Dir returns a temporary directory in which direct IO works.
func Dir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &fs))
	if fs.Type == unix.TMPFS_MAGIC {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs TMPDIR on a disk, not on tmpfs, and CI skips nothing")
		}
		t.Skip("SKIP: needs TMPDIR on a disk, not on tmpfs")
	}
	return dir
}

// Example returns a disk with records of every kind and state.
func Example(t *testing.T) (*disktest.Memory, layout.Superblock) {
	t.Helper()
	disk := disktest.NewMemory(1<<20, 512, 512)
	dev := disk.Open()
	sb := layout.Superblock{UUID: layout.UUID{7}, Name: "prod", Geometry: layout.Geometry{Stride: 512, Hosts: 6, Locks: 8},
		Lease: 30 * time.Second, Formatted: time.Now().UTC().Truncate(time.Microsecond)}
	PutSuperblocks(t, dev, sb)
	host := func(id int, state layout.HostState, verdicts ...layout.Verdict) {
		PutHost(t, dev, sb, layout.HostRecord{ID: id, Incarnation: 1<<60 + uint64(id), State: state, Sequence: 1 << 59,
			Name: []string{"", "db1", "db2", "db3", "db4", "db5"}[id], ReadHorizon: 5, Verdicts: verdicts})
	}
	host(1, layout.StateLive, layout.Verdict{Host: 4, Incarnation: 1<<60 + 4},
		layout.Verdict{Host: 2, Incarnation: 1<<60 + 2, Kind: layout.VerdictWish})
	host(2, layout.StateLive)
	host(3, layout.StateJoining)
	host(4, layout.StateLive) // dead
	host(5, layout.StateLeft)
	PutEntry(t, dev, sb, layout.Entry{Lock: 1, Name: "queue", Permits: 2, Creation: 7})
	PutEntry(t, dev, sb, layout.Entry{Lock: 2, Creation: 8}) // free
	PutEntry(t, dev, sb, layout.Entry{Lock: 3, Name: "backup", Permits: 1, Creation: 9})
	slot := func(lock, host int, phase layout.Phase, number uint64, change func(s *layout.Slot)) {
		s := layout.Slot{Lock: lock, Host: host, Incarnation: 1<<60 + uint64(host), Creation: 7, Phase: phase,
			Ticket: layout.MakeTicket(number, host)}
		if change != nil {
			change(&s)
		}
		PutSlot(t, dev, sb, s)
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

// Blank writes a small lockspace that no host ever joined.
func Blank(t testing.TB, disk *disktest.Memory) layout.Superblock {
	t.Helper()
	dev := disk.Open()
	sb := layout.Superblock{UUID: layout.UUID{7}, Name: "blank", Lease: 10 * time.Second, Formatted: time.Now().UTC().Truncate(time.Microsecond),
		Geometry: layout.Geometry{Stride: dev.Info().PhysicalBlock, Hosts: 3, Locks: 2}}
	PutSuperblocks(t, dev, sb)
	return sb
}
