package format

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

const vacantSize = 1 << 20

func TestProbeVacant(t *testing.T) {
	for _, block := range [][2]int{{512, 512}, {512, 4096}, {4096, 4096}} {
		disk := disktest.NewMemory(vacantSize, block[0], block[1])
		m, err := ProbeVacant(t.Context(), disk.Open(), measure.Options{Others: []blockdev.Device{disk.OpenReadOnly()}})
		require.NoError(t, err)
		require.Equal(t, measure.ProbeCount, m.Write.Count)
		require.Equal(t, measure.ProbeCount, m.Read.Count)
		require.Equal(t, measure.ManySlots, m.Many)
		require.Equal(t, []measure.PathResult{{Path: "memory", Writes: measure.PathWrites}}, m.Paths)
		require.False(t, m.Lockspace)
		require.Equal(t, make([]byte, vacantSize), lockspacetest.Contents(t, disk), "as it was before")
	}
}

// TestProbeVacantIsStopped: a probe that is stopped zeroes its block.
func TestProbeVacantIsStopped(t *testing.T) {
	disk := disktest.NewMemory(vacantSize, 512, 4096)
	ctx, cancel := context.WithCancel(t.Context())
	faulty := disktest.NewFaulty(disk.Open(), disktest.FaultyOptions{Sleep: func(time.Duration) { cancel() }})
	faulty.Inject(disktest.Fault{Op: blockdev.OpWrite, After: 10, Times: 1, Delay: 1})
	_, err := ProbeVacant(ctx, faulty, measure.Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, make([]byte, vacantSize), lockspacetest.Contents(t, disk))
}

func TestProbeVacantRefuses(t *testing.T) {
	for _, at := range []int{0, 600, 4096, vacantSize - 1} {
		disk := disktest.NewMemory(vacantSize, 512, 512)
		p := blockdev.Alloc(512)
		p[at%512] = 1
		require.NoError(t, disk.Open().Write(p, int64(at/512*512)))
		before := lockspacetest.Contents(t, disk)
		_, err := ProbeVacant(t.Context(), disk.Open(), measure.Options{})
		require.ErrorIs(t, err, ErrOccupied)
		require.ErrorContains(t, err, "it holds unknown data")
		require.Equal(t, before, lockspacetest.Contents(t, disk))
	}
	disk := disktest.NewMemory(vacantSize, 512, 512)
	oldLockspace(t, disk, liveHost(1, "db1"))
	before := lockspacetest.Contents(t, disk)
	_, err := ProbeVacant(t.Context(), disk.Open(), measure.Options{})
	require.ErrorIs(t, err, ErrOccupied)
	require.Equal(t, before, lockspacetest.Contents(t, disk))
}

// killedProbe writes on a disk what a probe leaves that is killed after some writes.
func killedProbe(t *testing.T, disk *disktest.Memory) {
	t.Helper()
	faulty := disktest.NewFaulty(disk.Open(), disktest.FaultyOptions{})
	faulty.Inject(disktest.Fault{Op: blockdev.OpWrite, After: 5, Crash: true})
	_, err := ProbeVacant(t.Context(), faulty, measure.Options{})
	require.ErrorIs(t, err, disktest.ErrCrashed)
	require.True(t, isScratch(lockspacetest.Contents(t, disk)))
}

func TestProbeKilled(t *testing.T) {
	t.Parallel()
	disk := disktest.NewMemory(vacantSize, 512, 4096)
	killedProbe(t, disk)

	o, err := ReadOccupancy(t.Context(), disk.OpenReadOnly())
	require.NoError(t, err)
	require.Contains(t, o.What, "bakeryctl probe --write")
	left := lockspacetest.Contents(t, disk)
	_, err = FormatDevice(t.Context(), disk.Open(), formatOptions("new"))
	require.ErrorIs(t, err, ErrOccupied)
	require.ErrorContains(t, err, "it holds the block of a bakeryctl probe --write that is running or was killed")
	require.Equal(t, left, lockspacetest.Contents(t, disk))

	_, err = ProbeVacant(t.Context(), disk.Open(), measure.Options{})
	require.NoError(t, err)
	require.Equal(t, make([]byte, vacantSize), lockspacetest.Contents(t, disk), "the next probe clears it")

	killedProbe(t, disk)
	force := formatOptions("new")
	force.Force = true
	_, err = FormatDevice(t.Context(), disk.Open(), force)
	require.NoError(t, err)
	_, _, err = lockspace.FindLockspace(disk.Open())
	require.NoError(t, err)
}

// TestProbeKilledBesideData: a block that a probe left does not hide data behind it.
func TestProbeKilledBesideData(t *testing.T) {
	disk := disktest.NewMemory(vacantSize, 512, 4096)
	killedProbe(t, disk)
	p := blockdev.Alloc(512)
	p[3] = 1
	require.NoError(t, disk.Open().Write(p, 8192))
	_, err := ProbeVacant(t.Context(), disk.Open(), measure.Options{})
	require.ErrorIs(t, err, ErrOccupied)
	require.ErrorContains(t, err, "unknown data, the first byte that is not zero at 8195")
}

func TestProbeGivesWayToAnother(t *testing.T) {
	t.Parallel()
	disk := disktest.NewMemory(vacantSize, 512, 4096)
	s, err := openScratch(t.Context(), disk.Open())
	require.NoError(t, err)
	_, err = s.Write()
	require.NoError(t, err)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_, err := s.Write()
				assert.NoError(t, err)
			}
		}
	}()
	_, err = ProbeVacant(t.Context(), disk.Open(), measure.Options{})
	require.ErrorIs(t, err, ErrProbed)
	close(stop)
	<-done
	_, err = s.Read()
	require.NoError(t, err, "it was not disturbed")
	require.NoError(t, s.Close())
	require.Equal(t, make([]byte, vacantSize), lockspacetest.Contents(t, disk))
}

// TestProbeDisturbed: a probe does not write a block again that another program, such as format,
// has written.
func TestProbeDisturbed(t *testing.T) {
	disk := disktest.NewMemory(vacantSize, 512, 512)
	other := bytes.Repeat([]byte{7}, 512)
	faulty := disktest.NewFaulty(disk.Open(), disktest.FaultyOptions{Sleep: func(time.Duration) {
		p := blockdev.Alloc(512)
		copy(p, other)
		assert.NoError(t, disk.Open().Write(p, 0))
	}})
	faulty.Inject(disktest.Fault{Op: blockdev.OpRead, From: 0, To: 512, After: 20, Times: 1, Delay: 1})
	_, err := ProbeVacant(t.Context(), faulty, measure.Options{})
	require.ErrorIs(t, err, measure.ErrDisturbed)
	require.Equal(t, other, lockspacetest.Contents(t, disk)[:512])
}

func TestProbeSeesStaleWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := disktest.NewMemory(vacantSize, 512, 512)
		late := disktest.NewFaulty(disk.OpenReadOnly(), disktest.FaultyOptions{})
		late.Inject(disktest.Fault{Op: blockdev.OpRead, From: 0, To: 512, After: 7, Times: 3, Returns: disktest.Stale})
		never := disktest.NewMemory(vacantSize, 512, 512).OpenReadOnly()
		m, err := ProbeVacant(t.Context(), disk.Open(), measure.Options{Others: []blockdev.Device{late, never, disk.OpenReadOnly()}})
		require.NoError(t, err)
		require.Equal(t, measure.PathWrites, m.Paths[0].Writes)
		require.Equal(t, 1, m.Paths[0].Stale, "read again and again until it is seen")
		require.False(t, m.Paths[0].Never)
		require.Equal(t, measure.PathResult{Path: "memory", Writes: 1, Stale: 1, Never: true}, m.Paths[1])
		require.Zero(t, m.Paths[2].Stale)
		require.Equal(t, make([]byte, vacantSize), lockspacetest.Contents(t, disk))
	})
}

// TestProbeStandsStill_WayIsLate: a probe that was frozen between two reads counts its reads, not
// the time.
func TestProbeStandsStill_WayIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := disktest.NewMemory(vacantSize, 512, 512)
		late := disktest.NewFaulty(disk.OpenReadOnly(), disktest.FaultyOptions{})
		late.Inject(disktest.Fault{Op: blockdev.OpRead, From: 0, To: 512, After: 7, Times: 3, Returns: disktest.Stale, Delay: time.Minute})
		m, err := ProbeVacant(t.Context(), disk.Open(), measure.Options{Others: []blockdev.Device{late}})
		require.NoError(t, err)
		require.Equal(t, 1, m.Paths[0].Stale)
		require.False(t, m.Paths[0].Never)
	})
}
