package lockspace

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

func TestInspectDamage(t *testing.T) {
	disk, sb := lockspacetest.Example(t)
	g := sb.Geometry
	dev := disk.Open()
	lockspacetest.Damage(t, dev, 0)
	lockspacetest.Damage(t, dev, g.Host(1))
	lockspacetest.Damage(t, dev, g.Entry(2))
	lockspacetest.Damage(t, dev, g.Slot(1, 2))
	f := disktest.NewFaulty(dev, disktest.FaultyOptions{})
	f.Inject(disktest.Fault{Op: blockdev.OpRead, From: g.Slot(1, 3), To: g.Slot(1, 3) + 512, Err: unix.EIO})
	s, err := Inspect(f)
	require.NoError(t, err)
	require.Equal(t, 1, s.CopyUsed)
	var what []string
	for _, d := range s.Damaged {
		what = append(what, d.Describe())
	}
	require.Equal(t, []string{"superblock", "record of host 1", "directory entry of lock 2",
		"slot of host 2 in lock 1", "slot of host 3 in lock 1"}, what)
	require.ErrorIs(t, s.Damaged[4].Err, unix.EIO)

	f.RemoveFaults()
	lockspacetest.Damage(t, dev, 0) // undo
	lockspacetest.Damage(t, dev, g.Superblock(1))
	s, err = Inspect(f)
	require.NoError(t, err)
	require.Zero(t, s.CopyUsed)
	require.Equal(t, KindCopy, s.Damaged[0].Kind)
}

func TestInspectDeviceFails(t *testing.T) {
	disk, _ := lockspacetest.Example(t)
	f := disktest.NewFaulty(disk.Open(), disktest.FaultyOptions{})
	f.Inject(disktest.Fault{Op: blockdev.OpRead, After: 3, Err: unix.ENXIO})
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
