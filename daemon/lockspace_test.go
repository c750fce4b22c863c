package daemon

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

func TestFindLockspace(t *testing.T) {
	disk := blockdev.NewMemory(1<<20, 512, 4096)
	_, _, err := FindLockspace(disk.Open())
	require.ErrorIs(t, err, ErrNoLockspace)
	require.ErrorIs(t, err, layout.ErrVirgin)
	require.ErrorContains(t, err, "no lockspace on memory: ")

	want := oldLockspace(t, disk)
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

// TestFindLockspaceWithoutAPath: a device that cannot be read at all is not taken for one without a lockspace, which a
// hint would have formatted.
func TestFindLockspaceWithoutAPath(t *testing.T) {
	disk := blockdev.NewMemory(1<<20, 512, 512)
	oldLockspace(t, disk)
	f := blockdev.NewFaulty(disk.Open(), blockdev.FaultyOptions{})
	f.Inject(blockdev.Fault{Err: unix.EIO})
	_, _, err := FindLockspace(f)
	require.ErrorIs(t, err, unix.EIO)
	require.NotErrorIs(t, err, ErrNoLockspace)
	require.ErrorContains(t, err, "read superblock")
	f.Heal()
	f.Inject(blockdev.Fault{To: 512, Err: unix.EIO})
	_, copyUsed, err := FindLockspace(f)
	require.NoError(t, err)
	require.Equal(t, 1, copyUsed)
}

// TestFindLockspaceOnOtherDevice finds lockspaces that were copied to a device they do not fit.
func TestFindLockspaceOnOtherDevice(t *testing.T) {
	copied := func(from *blockdev.Memory, to *blockdev.Memory) blockdev.Device {
		p := lockspacetest.Contents(t, from)
		dev := to.Open()
		require.NoError(t, dev.Write(p[:min(int64(len(p)), dev.Info().Size)], 0))
		return dev
	}
	disk := blockdev.NewMemory(1<<20, 512, 512)
	sb := oldLockspace(t, disk)
	_, _, err := FindLockspace(copied(disk, blockdev.NewMemory(1<<20, 4096, 4096)))
	require.ErrorIs(t, err, ErrStride)
	require.ErrorContains(t, err, "it has a stride of 512 bytes, the device blocks of 4096")
	_, _, err = FindLockspace(copied(disk, blockdev.NewMemory(sb.Geometry.Size()-512, 512, 512)))
	require.ErrorIs(t, err, ErrDeviceSize)
	require.ErrorContains(t, err, "it needs 8192 bytes (8.0 KiB), the device has 7680 bytes (7.5 KiB)")
}

func TestOpenLockspaceFails(t *testing.T) {
	path := filepath.Join(lockspacetest.Dir(t), "blank")
	_, _, _, err := OpenLockspace(path, true)
	require.ErrorContains(t, err, "no such file")
	require.NoError(t, blockdev.Create(path, 64<<10, nil))
	_, _, _, err = OpenLockspace(path, true)
	require.ErrorIs(t, err, ErrNoLockspace)
}

func TestPrintable(t *testing.T) {
	for message, want := range map[string]string{
		"db/backup-1": "db/backup-1",
		"größe":       "größe",
		"":            `""`,
		"two words":   `"two words"`,
		`a"b`:         `"a\"b"`,
		`a\b`:         `"a\\b"`,
		"a\u202eb":    `"a\u202eb"`,
		"a\u200bb":    `"a\u200bb"`,
		"a\u00a0b":    `"a\u00a0b"`,
		"a\x1b[1m":    `"a\x1b[1m"`,
		"a\xffb":      `"a\xffb"`,
	} {
		require.Equal(t, want, text.Printable(message))
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[text.Bytes]string{
		0: "0 bytes", 1023: "1023 bytes", 1024: "1024 bytes (1.0 KiB)", 1<<20 - 1: "1048575 bytes (1.0 MiB)",
		68689920: "68689920 bytes (65.5 MiB)", 3 << 50: "3377699720527872 bytes (3072.0 TiB)",
	} {
		require.Equal(t, want, n.String())
	}
}

// TestOnAnotherDevice: what is opened is joined, and is closed again if it holds no lockspace.
func TestOnAnotherDevice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 2)
		dev := c.disk.Open()
		d := c.host(1, func(cfg *Config) { *cfg = cfg.On(func() (blockdev.Device, error) { return dev, nil }) })
		h := acquire(t, d, Request{Name: "x"})
		require.NoError(t, h.Release())
		require.Positive(t, blockdev.StatsOf(dev).Write.Count)

		blank := blockdev.NewMemory(1<<20, 512, 512).Open()
		join := func(open func() (blockdev.Device, error)) error {
			return c.unjoined(2, func(cfg *Config) { *cfg = cfg.On(open) }).Join(t.Context())
		}
		require.ErrorIs(t, join(func() (blockdev.Device, error) { return blank, nil }), ErrNoLockspace)
		require.ErrorIs(t, blank.Close(), blockdev.ErrClosed)

		gone := errors.New("no such disk")
		require.ErrorIs(t, join(func() (blockdev.Device, error) { return nil, gone }), gone)
	})
}
