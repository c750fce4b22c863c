package format

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

func TestFormatOptions(t *testing.T) {
	for _, test := range []struct {
		change func(o *Options)
		want   string
	}{
		{func(o *Options) { o.Hosts = 0 }, "hosts 0: want 1 to 2000"},
		{func(o *Options) { o.Hosts = 2001 }, "hosts 2001: want 1 to 2000"},
		{func(o *Options) { o.Locks = -1 }, "locks -1: want 1 to 65536"},
		{func(o *Options) { o.Locks = 65537 }, "locks 65537: want 1 to 65536"},
		{func(o *Options) { o.Lease = time.Second - 1 }, "lease 999.999999ms: want 1s to 1h0m0s in whole microseconds"},
		{func(o *Options) { o.Lease = time.Second + 1 }, "lease 1.000000001s: want 1s to 1h0m0s in whole microseconds"},
		{func(o *Options) { o.Lease = 2 * time.Hour }, "lease 2h0m0s: want 1s to 1h0m0s in whole microseconds"},
		{func(o *Options) { o.Name = "a\nb" }, `name "a\nb": want at most 64 bytes of UTF-8 without control characters`},
		{func(o *Options) { o.Name = strings.Repeat("x", 65) }, "want at most 64 bytes"},
		{func(o *Options) { o.Policy = 3 }, "want lease, fence or manual"},
		{func(o *Options) { o.Stride = 1000 }, "stride 1000: want auto, or a power of two from 512 to 65536"},
		{func(o *Options) { o.Stride = 256 }, "stride 256: want auto, or"},
		{func(o *Options) { o.Stride = -512 }, "stride -512: want auto, or"},
		{func(o *Options) { o.Stride = 1 << 17 }, "stride 131072: want auto, or"},
	} {
		o := formatOptions("")
		test.change(&o)
		_, err := Format(t.Context(), []string{"/dev/does-not-exist"}, o) // nothing is opened
		var option *OptionError
		require.ErrorAs(t, err, &option)
		require.ErrorContains(t, err, test.want)
	}
}

func TestFormatNewFile(t *testing.T) {
	path := filepath.Join(lockspacetest.Dir(t), "locks")
	o := formatOptions("prod")
	o.Policy = layout.PolicyManual
	begun := time.Now().Truncate(time.Microsecond)
	result, err := Format(t.Context(), []string{path}, o)
	require.NoError(t, err)
	require.True(t, result.Created)
	require.Empty(t, result.Warnings)
	sb := result.Superblock
	require.Equal(t, layout.Superblock{UUID: sb.UUID, Name: "prod", Lease: o.Lease, Policy: layout.PolicyManual,
		Geometry: layout.Geometry{Stride: sb.Geometry.Stride, Hosts: 3, Locks: 2}, Formatted: sb.Formatted}, sb)
	require.WithinRange(t, sb.Formatted, begun, time.Now())
	require.Equal(t, byte(4), sb.UUID[6]>>4, "a random uuid")

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, int64(result.Size), info.Size())
	dev, found, copyUsed, err := lockspace.OpenDisks([]string{path}, lockspace.DiskOptions{})
	require.NoError(t, err)
	require.NoError(t, dev.Close())
	require.Equal(t, sb, found)
	require.Zero(t, copyUsed)

	_, err = Format(t.Context(), []string{path}, o)
	require.ErrorIs(t, err, ErrOccupied)
	require.ErrorContains(t, err, `it holds lockspace "prod" (`+sb.UUID.String()+"), no host joined")
	o.Force = true
	again, err := Format(t.Context(), []string{path}, o)
	require.NoError(t, err)
	require.False(t, again.Created)
	require.NotEqual(t, sb.UUID, again.Superblock.UUID)
	_, found, _, err = lockspace.OpenDisks([]string{path}, lockspace.DiskOptions{ReadOnly: true})
	require.NoError(t, err)
	require.Equal(t, again.Superblock, found)
}

func TestFormatNewFileFails(t *testing.T) {
	dir := lockspacetest.Dir(t)
	_, err := Format(t.Context(), []string{"/dev/does-not-exist/x"}, formatOptions(""))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Format(t.Context(), []string{filepath.Join(dir, "no", "such")}, formatOptions(""))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Format(t.Context(), []string{dir}, formatOptions(""))
	require.ErrorIs(t, err, blockdev.ErrNotDevice)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Format(ctx, []string{filepath.Join(dir, "locks")}, formatOptions(""))
	require.ErrorIs(t, err, context.Canceled)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files, "something is left behind")

	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, err = Format(t.Context(), []string{empty}, formatOptions(""))
	require.ErrorIs(t, err, blockdev.ErrTooSmall)
	require.ErrorContains(t, err, "the lockspace needs 65536 bytes (64.0 KiB)")
}

func TestFormatFileStride(t *testing.T) {
	dir := lockspacetest.Dir(t)
	o := formatOptions("")
	o.Stride = 512
	path := filepath.Join(dir, "small")
	result, err := Format(t.Context(), []string{path}, o)
	if errors.Is(err, lockspace.ErrStride) {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the filesystem takes no blocks of 512 bytes, and CI skips nothing: %v", err)
		}
		t.Skipf("SKIP: %v", err)
	}
	require.NoError(t, err)
	require.Equal(t, 512, result.Superblock.Geometry.Stride)
	require.Equal(t, text.Bytes(512*16), result.Size)
	o.Stride = 16384
	result, err = Format(t.Context(), []string{filepath.Join(dir, "large")}, o)
	require.NoError(t, err)
	require.Equal(t, text.Bytes(16384*16), result.Size)
}

func TestFormatStride(t *testing.T) {
	for _, test := range []struct {
		logical, physical, asked, want int
		err                            string
	}{
		{512, 512, 0, 512, ""},
		{512, 4096, 0, 4096, ""},
		{4096, 4096, 0, 4096, ""},
		{512, 4096, 4096, 4096, ""},
		{512, 512, 65536, 65536, ""},
		{4096, 4096, 512, 0, "stride 512 is below its logical block size of 4096"},
		{512, 4096, 512, 0, "stride 512 is below its physical block size of 4096"},
		{512, 131072, 0, 0, "its physical blocks are of 131072 bytes, the largest stride is 65536"},
	} {
		disk := disktest.NewMemory(4<<20, test.logical, test.physical)
		o := formatOptions("")
		o.Stride = test.asked
		result, err := FormatDevice(t.Context(), disk.Open(), o)
		if test.err != "" {
			require.ErrorIs(t, err, lockspace.ErrStride)
			require.ErrorContains(t, err, test.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, test.want, result.Superblock.Geometry.Stride)
		_, copyUsed, err := lockspace.FindLockspace(disk.Open())
		require.NoError(t, err)
		require.Zero(t, copyUsed)
	}
}

func TestFormatTooSmall(t *testing.T) {
	for _, test := range []struct {
		size         int64
		hosts, locks int
		want         string
	}{
		{64 << 10, 3, 16, "3 hosts and 16 locks 512 bytes apart need 36864 bytes (36.0 KiB), it has"},
		{32 << 10, 3, 16, "need 36864 bytes (36.0 KiB), it has 32768 bytes (32.0 KiB); 3 hosts and 14 locks, or 2 hosts and 16 locks would fit"},
		{32 << 10, 2000, 65536, "it has 32768 bytes (32.0 KiB); 6 hosts and 6 locks would fit"},
		{2 << 10, 1, 1, "need 3072 bytes (3.0 KiB), it has 2048 bytes (2.0 KiB); no lockspace fits"},
	} {
		disk := disktest.NewMemory(test.size, 512, 512)
		o := formatOptions("")
		o.Hosts, o.Locks = test.hosts, test.locks
		_, err := FormatDevice(t.Context(), disk.Open(), o)
		if test.size == 64<<10 {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, lockspace.ErrDeviceSize)
		require.ErrorContains(t, err, test.want)
		require.Equal(t, make([]byte, test.size), lockspacetest.Contents(t, disk))
	}
}

func TestFormatOverData(t *testing.T) {
	disk := disktest.NewMemory(1<<20, 512, 512)
	dev := disk.Open()
	p := blockdev.Alloc(512)
	p[7] = 9
	require.NoError(t, dev.Write(p, 100<<10)) // behind the lockspace, where the copy of another could be
	require.NoError(t, dev.Write(p, 512<<10)) // behind the area that formatting reads
	_, err := FormatDevice(t.Context(), disk.Open(), formatOptions(""))
	require.ErrorIs(t, err, ErrOccupied)
	require.ErrorContains(t, err, "unknown data, the first byte that is not zero at 102407")
	before := lockspacetest.Contents(t, disk)
	require.Equal(t, byte(9), before[100<<10+7])

	o := formatOptions("")
	o.Force = true
	_, err = FormatDevice(t.Context(), disk.Open(), o)
	require.NoError(t, err)
	after := lockspacetest.Contents(t, disk)
	require.Zero(t, after[100<<10+7])
	require.Equal(t, byte(9), after[512<<10+7], "beyond what the lockspace needs")
}

func TestFormatLeavesStrideBehind(t *testing.T) {
	disk := disktest.NewMemory(1<<20, 512, 512)
	o := formatOptions("old")
	for _, stride := range []int{65536, 512, 4096, 512} {
		o.Stride = stride
		o.Force = true
		result, err := FormatDevice(t.Context(), disk.Open(), o)
		require.NoError(t, err)
		lockspacetest.Damage(t, disk.Open(), 0)
		sb, copyUsed, err := lockspace.FindLockspace(disk.Open())
		require.NoError(t, err, "more than one copy is left")
		require.Equal(t, 1, copyUsed)
		require.Equal(t, result.Superblock, sb)
	}
}

func TestFormatSeesLiveHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := disktest.NewMemory(1<<20, 512, 4096)
		dead, alive := liveHost(1, "db1"), liveHost(3, "d\u202eb 3")
		old := oldLockspace(t, disk, dead, alive)
		r := &renewer{}
		r.run(t, disk.Open(), old, alive)
		_, err := FormatDevice(t.Context(), disk.Open(), formatOptions("new"))
		require.ErrorIs(t, err, ErrOccupied)
		require.ErrorIs(t, err, ErrHostAlive)
		require.ErrorContains(t, err, `joined by host 1 (db1), host 3 ("d\u202eb 3"): lockspace is in use: host 3 ("d\u202eb 3") is using it now`)
		r.stop()
		_, _, err = lockspace.FindLockspace(disk.Open())
		require.NoError(t, err)

		begin := time.Now()
		_, err = FormatDevice(t.Context(), disk.Open(), formatOptions("new"))
		require.ErrorIs(t, err, ErrOccupied)
		require.NotErrorIs(t, err, ErrHostAlive)
		require.ErrorContains(t, err, "none of them was seen alive")
		require.GreaterOrEqual(t, time.Since(begin), oldLease/6+oldLease/20)
	})
}

func TestFormatRefusesOtherVersion(t *testing.T) {
	disk := disktest.NewMemory(1<<20, 512, 512)
	oldLockspace(t, disk)
	p := blockdev.Alloc(512)
	dev := disk.Open()
	require.NoError(t, dev.Read(p, 0))
	p[4] = 3
	require.NoError(t, dev.Write(p, 0))
	lockspacetest.Damage(t, dev, 512)
	o := formatOptions("")
	o.Force = true
	_, err := FormatDevice(t.Context(), disk.Open(), o)
	require.ErrorIs(t, err, ErrForeignVersion)
	require.ErrorContains(t, err, "format version 3")
}

func TestFormatNoticesLyingDevice(t *testing.T) {
	f := disktest.NewFaulty(disktest.NewMemory(1<<20, 512, 512).Open(), disktest.FaultyOptions{})
	f.Inject(disktest.Fault{Op: blockdev.OpWrite, To: 512, Late: true})
	_, err := FormatDevice(t.Context(), f, formatOptions(""))
	require.ErrorIs(t, err, ErrVerify)
}

func TestFormatReportsIO(t *testing.T) {
	f := disktest.NewFaulty(disktest.NewMemory(1<<20, 512, 512).Open(), disktest.FaultyOptions{})
	f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: 0, To: 512, Err: unix.EIO})
	_, err := FormatDevice(t.Context(), f, formatOptions(""))
	require.ErrorIs(t, err, unix.EIO)
	require.ErrorContains(t, err, "format memory: write superblock")
	f.RemoveFaults()
	f.Inject(disktest.Fault{Op: blockdev.OpRead, Err: unix.EIO})
	_, err = FormatDevice(t.Context(), f, formatOptions(""))
	require.ErrorIs(t, err, unix.EIO)
}
