package check

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

func quiet(string) {}

// TestRepairSuperblock: the damaged sector is as it was, and no other sector is written.
func TestRepairSuperblock(t *testing.T) {
	for _, kind := range []lockspace.RecordKind{lockspace.KindSuperblock, lockspace.KindCopy} {
		t.Run(string(kind), func(t *testing.T) {
			c := newChecked(t)
			whole := lockspacetest.Contents(t, c.Disk)
			at := map[lockspace.RecordKind]int64{lockspace.KindSuperblock: 0, lockspace.KindCopy: c.Geo.Superblock(1)}[kind]
			for _, spoil := range []func(){
				func() { lockspacetest.Damage(t, c.Disk.Open(), at) },
				func() { c.Spoil(at) },
				func() { c.Write(at, func(buf []byte) error { clear(buf); return nil }) },
			} {
				spoil()
				found := c.check()
				require.Len(t, found, 1)
				require.True(t, found[0].Repair)
				require.NoError(t, RewriteSuperblock(c.Disk.Open(), kind, quiet))
				require.Equal(t, whole, lockspacetest.Contents(t, c.Disk))
				require.Empty(t, c.check())
				require.NoError(t, RewriteSuperblock(c.Disk.Open(), kind, func(string) { t.Error("written again") }))
			}
		})
	}
}

// TestRepairSuperblockRefuses: a valid superblock and one that formatting has begun are not
// overwritten.
func TestRepairSuperblockRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		other := c.SB
		other.UUID[5]++
		at := c.Geo.Superblock(1)
		c.Write(at, func(buf []byte) error { return other.Encode(buf, 1) })
		before := lockspacetest.Contents(t, c.Disk)
		for _, kind := range []lockspace.RecordKind{lockspace.KindSuperblock, lockspace.KindCopy} {
			err := RewriteSuperblock(c.Disk.Open(), kind, quiet)
			if kind == lockspace.KindCopy {
				require.ErrorIs(t, err, ErrNotRepaired)
				require.ErrorContains(t, err, other.UUID.String())
			}
			require.Equal(t, before, lockspacetest.Contents(t, c.Disk))
		}
		found := c.check()
		require.Len(t, found, 1)
		require.False(t, found[0].Repair)

		c.Write(at, func(buf []byte) error { return c.SB.Encode(buf, 1) })
		c.Write(0, func(buf []byte) error { return c.SB.Encode(buf, 1) }) // the mark
		before = lockspacetest.Contents(t, c.Disk)
		require.ErrorIs(t, RewriteSuperblock(c.Disk.Open(), lockspace.KindSuperblock, quiet), lockspace.ErrInterrupted)
		require.Equal(t, before, lockspacetest.Contents(t, c.Disk))
	})
}

// TestRepairSuperblock_SeveralDisks_ValidLeft: that of any member is the superblock of the lockspace.
func TestRepairSuperblock_SeveralDisks_ValidLeft(t *testing.T) {
	dir, sb := lockspacetest.Dir(t), newChecked(t).SB
	sb.Geometry.Stride = 4096
	sb.Members = layout.Members{Epoch: 1, Positions: 3, Disks: [layout.MaxPositions]layout.UUID{{1}, {2}, {3}}}
	var paths []string
	for at := 2; at <= 3; at++ {
		path := filepath.Join(dir, fmt.Sprint(at))
		paths = append(paths, path)
		require.NoError(t, os.WriteFile(path, make([]byte, sb.Geometry.Size()), 0o600))
		disk, err := blockdev.Open(path, blockdev.Options{})
		require.NoError(t, err)
		sb.Position = at
		lockspacetest.PutSuperblocks(t, disk, sb)
		require.NoError(t, disk.Close())
	}
	dev, _, _, err := lockspace.OpenDisks(paths, lockspace.DiskOptions{})
	require.NoError(t, err)
	defer dev.Close()
	for _, kind := range []lockspace.RecordKind{lockspace.KindSuperblock, lockspace.KindCopy} {
		require.NoError(t, RewriteSuperblock(dev, kind, func(string) { t.Error("written again") }))
	}
}
