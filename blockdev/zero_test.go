package blockdev

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAllZero(t *testing.T) {
	dev := NewMemory(testSize, 512, 512).Open()
	p := Alloc(512)
	for _, at := range []int64{0, 1, 511, 512, chunk - 1, chunk, testSize - 1} {
		p[at%512] = 1
		require.NoError(t, dev.Write(p, at/512*512))
		zero, first, err := AllZero(dev, 0, testSize, nil)
		require.NoError(t, err)
		require.False(t, zero)
		require.Equal(t, at, first)
		clear(p)
		require.NoError(t, dev.Write(p, at/512*512))
	}

	var done []int64
	zero, first, err := AllZero(dev, 512, 2*chunk+512, func(n int64) { done = append(done, n) })
	require.NoError(t, err)
	require.True(t, zero)
	require.Equal(t, int64(-1), first)
	require.Equal(t, []int64{chunk, 2 * chunk, 2*chunk + 512}, done)
}

func TestAllZeroErrors(t *testing.T) {
	f := NewFaulty(NewMemory(testSize, 512, 512).Open(), FaultyOptions{})
	f.Inject(Fault{Op: OpRead, From: chunk, To: chunk + 1, Err: unix.EIO})
	_, _, err := AllZero(f, 0, testSize, nil)
	require.ErrorIs(t, err, unix.EIO)
	_, _, err = AllZero(f, 1, 512, nil)
	require.ErrorIs(t, err, ErrAlignment)
	_, _, err = AllZero(f, testSize, 512, nil)
	require.ErrorIs(t, err, ErrRange)
}

// A device that cannot make zeroes by itself is written.
func TestZeroByWriting(t *testing.T) {
	mem := NewMemory(testSize, 512, 512)
	type plain struct{ Device }
	dev := plain{mem.Open()}
	p := bytes.Repeat([]byte{1}, 2*chunk)
	aligned := Alloc(len(p))
	copy(aligned, p)
	require.NoError(t, dev.Write(aligned, 0))
	require.NoError(t, Zero(dev, 512, chunk+512))
	clear(p[512 : chunk+1024])
	require.Equal(t, p, mustRead(t, dev, 0, len(p)))
	require.ErrorIs(t, Zero(plain{mem.OpenReadOnly()}, 0, 512), ErrReadOnly)
	require.ErrorIs(t, Zero(dev, 0, testSize+512), ErrRange)
}

// A disk whose filesystem or driver makes no zeroes is written.
func TestDiskZeroFallback(t *testing.T) {
	d := mustOpen(t, backingFile(t), Options{})
	require.NoError(t, d.Write(random(1, testSize), 0))
	require.NoError(t, writeZeroes(d.pwrite, 0, testSize))
	zero, _, err := AllZero(d, 0, testSize, nil)
	require.NoError(t, err)
	require.True(t, zero)
}

// Zeroing a file frees its space.
func TestZeroMakesHole(t *testing.T) {
	path := backingFile(t)
	d := mustOpen(t, path, Options{})
	require.NoError(t, d.Write(random(1, 1<<20), 0))
	var before, after unix.Stat_t
	require.NoError(t, unix.Stat(path, &before))
	require.NoError(t, d.Zero(0, 1<<20))
	require.NoError(t, unix.Stat(path, &after))
	require.Less(t, after.Blocks, before.Blocks)
	require.Equal(t, before.Size, after.Size)
}
