package hostid

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

func TestKeepDisk_RequestsReturn_DiskIsFree(t *testing.T) {
	own := Options{RuntimeDir: t.TempDir()}
	lockspace, id := layout.UUID{1}, layout.UUID{2}
	image := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(image, make([]byte, 4096), 0o600))
	open := func() (*blockdev.Disk, *os.File) {
		d, err := blockdev.Open(image, blockdev.Options{Killable: true})
		require.NoError(t, err)
		file, err := own.KeepDisk(d, lockspace, id)
		require.NoError(t, err)
		return d, file
	}
	d, file := open()
	require.NoError(t, d.Read(blockdev.Alloc(4096), 0))
	require.NoError(t, LockDisk(file, 1))
	require.NoError(t, LockDisk(file, 1))
	require.False(t, own.InFlight(file, lockspace, id, 1), "it is this process")
	next, nextFile := open()
	require.True(t, own.InFlight(nextFile, lockspace, id, 1))
	require.True(t, own.InFlight(nil, lockspace, id, 1), "the disk is not opened")
	require.ErrorIs(t, LockDisk(nextFile, 1), blockdev.ErrBusy)
	require.NoError(t, LockDisk(nextFile, 2), "another host")
	require.False(t, own.InFlight(nil, lockspace, layout.UUID{3}, 1))

	late, err := unix.Dup(int(file.Fd())) // stands for a request in flight
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.True(t, own.InFlight(nextFile, lockspace, id, 1))
	time.AfterFunc(10*time.Millisecond, func() { _ = unix.Close(late) })
	require.NoError(t, LockDisk(nextFile, 1), "it waits for the kernel")
	require.False(t, own.InFlight(nextFile, lockspace, id, 1))
	require.NoError(t, next.Close())
	require.False(t, own.InFlight(nextFile, lockspace, id, 1))
}

func TestKeepDisk_Simulated_HasNoFile(t *testing.T) {
	own := Options{RuntimeDir: t.TempDir()}
	file, err := own.KeepDisk(disktest.NewMemory(4096, 512, 512).Open(), layout.UUID{1}, layout.UUID{2})
	require.NoError(t, err)
	require.NoError(t, LockDisk(file, 1))
	require.False(t, own.InFlight(file, layout.UUID{1}, layout.UUID{2}, 1))
}
