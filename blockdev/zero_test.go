package blockdev_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// A disk whose filesystem or driver makes no zeroes is written.
func TestDiskZeroFallback(t *testing.T) {
	d := mustOpen(t, backingFile(t), blockdev.Options{})
	require.NoError(t, d.Write(disktest.Random(1, testSize), 0))
	require.NoError(t, d.WriteZeroes(0, testSize))
	require.Equal(t, make([]byte, testSize), mustRead(t, d, 0, testSize))
}

// Zeroing a file frees its space.
func TestZeroMakesHole(t *testing.T) {
	path := backingFile(t)
	d := mustOpen(t, path, blockdev.Options{})
	require.NoError(t, d.Write(disktest.Random(1, 1<<20), 0))
	var before, after unix.Stat_t
	require.NoError(t, unix.Stat(path, &before))
	require.NoError(t, d.Zero(0, 1<<20))
	require.NoError(t, unix.Stat(path, &after))
	require.Less(t, after.Blocks, before.Blocks)
	require.Equal(t, before.Size, after.Size)
}
