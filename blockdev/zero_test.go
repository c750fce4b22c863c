package blockdev_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/disktest"
)

func TestAllZero(t *testing.T) {
	dev := disktest.NewMemory(testSize, 512, 512).Open()
	p := blockdev.Alloc(512)
	for _, at := range []int64{0, 1, 511, 512, blockdev.Chunk - 1, blockdev.Chunk, testSize - 1} {
		p[at%512] = 1
		require.NoError(t, dev.Write(p, at/512*512))
		zero, first, err := blockdev.AllZero(dev, 0, testSize, nil)
		require.NoError(t, err)
		require.False(t, zero)
		require.Equal(t, at, first)
		clear(p)
		require.NoError(t, dev.Write(p, at/512*512))
	}

	var done []int64
	zero, first, err := blockdev.AllZero(dev, 512, 2*blockdev.Chunk+512, func(n int64) { done = append(done, n) })
	require.NoError(t, err)
	require.True(t, zero)
	require.Equal(t, int64(-1), first)
	require.Equal(t, []int64{blockdev.Chunk, 2 * blockdev.Chunk, 2*blockdev.Chunk + 512}, done)
}

func TestAllZeroErrors(t *testing.T) {
	f := disktest.NewFaulty(disktest.NewMemory(testSize, 512, 512).Open(), disktest.FaultyOptions{})
	f.Inject(disktest.Fault{Op: blockdev.OpRead, From: blockdev.Chunk, To: blockdev.Chunk + 1, Err: unix.EIO})
	_, _, err := blockdev.AllZero(f, 0, testSize, nil)
	require.ErrorIs(t, err, unix.EIO)
	_, _, err = blockdev.AllZero(f, 1, 512, nil)
	require.ErrorIs(t, err, blockdev.ErrAlignment)
	_, _, err = blockdev.AllZero(f, testSize, 512, nil)
	require.ErrorIs(t, err, blockdev.ErrRange)
}

// A disk whose filesystem or driver makes no zeroes is written.
func TestDiskZeroFallback(t *testing.T) {
	d := mustOpen(t, backingFile(t), blockdev.Options{})
	require.NoError(t, d.Write(disktest.Random(1, testSize), 0))
	require.NoError(t, d.WriteZeroes(0, testSize))
	zero, _, err := blockdev.AllZero(d, 0, testSize, nil)
	require.NoError(t, err)
	require.True(t, zero)
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
