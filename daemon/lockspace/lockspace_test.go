package lockspace

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

func TestFindLockspace(t *testing.T) {
	disk := disktest.NewMemory(1<<20, 512, 4096)
	_, _, err := FindLockspace(disk.Open())
	require.ErrorIs(t, err, ErrNoLockspace)
	require.ErrorIs(t, err, layout.ErrBlank)
	require.ErrorContains(t, err, "no lockspace on memory: ")

	want := lockspacetest.Blank(t, disk)
	sb, copyUsed, err := FindLockspace(disk.OpenReadOnly())
	require.NoError(t, err)
	require.Equal(t, want, sb)
	require.Zero(t, copyUsed)

	lockspacetest.Damage(t, disk.Open(), 0)
	sb, copyUsed, err = FindLockspace(disk.Open())
	require.NoError(t, err)
	require.Equal(t, want, sb)
	require.Equal(t, 1, copyUsed)

	lockspacetest.Damage(t, disk.Open(), 4096)
	_, _, err = FindLockspace(disk.Open())
	require.ErrorIs(t, err, ErrNoLockspace)
	require.ErrorIs(t, err, layout.ErrChecksum)
}

// TestFindLockspaceWithoutAPath: a device that cannot be read at all is not taken for one without a
// lockspace, which a hint would have formatted.
func TestFindLockspaceWithoutAPath(t *testing.T) {
	disk := disktest.NewMemory(1<<20, 512, 512)
	lockspacetest.Blank(t, disk)
	f := disktest.NewFaulty(disk.Open(), disktest.FaultyOptions{})
	f.Inject(disktest.Fault{Err: unix.EIO})
	_, _, err := FindLockspace(f)
	require.ErrorIs(t, err, unix.EIO)
	require.NotErrorIs(t, err, ErrNoLockspace)
	require.ErrorContains(t, err, "read superblock")
	f.RemoveFaults()
	f.Inject(disktest.Fault{To: 512, Err: unix.EIO})
	_, copyUsed, err := FindLockspace(f)
	require.NoError(t, err)
	require.Equal(t, 1, copyUsed)
}

// TestFindLockspaceOnOtherDevice finds lockspaces that were copied to a device they do not fit.
func TestFindLockspaceOnOtherDevice(t *testing.T) {
	copied := func(from *disktest.Memory, to *disktest.Memory) blockdev.Device {
		p := lockspacetest.Contents(t, from)
		dev := to.Open()
		require.NoError(t, dev.Write(p[:min(int64(len(p)), dev.Info().Size)], 0))
		return dev
	}
	disk := disktest.NewMemory(1<<20, 512, 512)
	sb := lockspacetest.Blank(t, disk)
	_, _, err := FindLockspace(copied(disk, disktest.NewMemory(1<<20, 4096, 4096)))
	require.ErrorIs(t, err, ErrStride)
	require.ErrorContains(t, err, "stride 512 bytes, logical block 4096 bytes")
	_, _, err = FindLockspace(copied(disk, disktest.NewMemory(sb.Geometry.Size()-512, 512, 512)))
	require.ErrorIs(t, err, ErrDeviceSize)
	require.ErrorContains(t, err, "it needs 8192 bytes (8.0 KiB), the device has 7680 bytes (7.5 KiB)")
}

func TestOpenDisks_OnePath_Fails(t *testing.T) {
	path := filepath.Join(lockspacetest.Dir(t), "blank")
	_, _, _, err := OpenDisks([]string{path}, DiskOptions{ReadOnly: true})
	require.ErrorContains(t, err, "no such file")
	require.NoError(t, blockdev.Create(path, func(blockdev.Info) (int64, error) { return 64 << 10, nil }, func(blockdev.Device) error { return nil }))
	_, _, _, err = OpenDisks([]string{path}, DiskOptions{ReadOnly: true})
	require.ErrorIs(t, err, ErrNoLockspace)
}
