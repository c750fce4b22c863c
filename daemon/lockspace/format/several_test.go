package format

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

func TestFormatSeveral_EmptyDisks_BecomeMembers(t *testing.T) {
	for _, n := range []int{3, 5} {
		disks := newDisks(n)
		disks[1] = disktest.NewMemory(512<<10, 512, 4096)
		result, err := FormatDevices(t.Context(), openAll(disks), formatOptions("prod"))
		require.NoError(t, err)
		require.Empty(t, result.Warnings)
		require.False(t, result.Created)
		sb := result.Superblock
		require.Equal(t, 4096, sb.Geometry.Stride, "the largest physical block")
		require.EqualValues(t, 1, sb.Members.Epoch)
		require.Equal(t, n, sb.Members.Positions)
		require.Zero(t, sb.Members.Vacant())
		for i, disk := range disks {
			require.Equal(t, diskPath(i), result.Paths[i])
			require.Equal(t, byte(4), sb.Members.Disks[i][6]>>4, "a random uuid")
			want := sb
			want.Position = i + 1
			found, copyUsed, err := lockspace.FindSuperblock(disk.Open())
			require.NoError(t, err)
			require.Zero(t, copyUsed)
			require.Equal(t, want, found)
			contents := lockspacetest.Contents(t, disk)
			found, err = layout.DecodeSuperblock(contents[4096:], 1)
			require.NoError(t, err)
			require.Equal(t, want, found)
			require.Equal(t, make([]byte, len(contents)-8192), contents[8192:])
		}
	}
}

func TestFormatSeveral_OtherNumberOfDisks_IsRefused(t *testing.T) {
	dir := lockspacetest.Dir(t)
	for _, n := range []int{0, 2, 4, 6} {
		var paths []string
		for i := range n {
			paths = append(paths, filepath.Join(dir, fmt.Sprint(i)))
		}
		_, err := Format(t.Context(), paths, formatOptions(""))
		require.ErrorIs(t, err, ErrDisks)
		require.ErrorContains(t, err, fmt.Sprintf("1, 3 or 5 different disks, not %d", n))
		disks := newDisks(n)
		before := contentsOf(t, disks)
		_, err = FormatDevices(t.Context(), openAll(disks), formatOptions(""))
		require.ErrorIs(t, err, ErrDisks)
		require.Equal(t, before, contentsOf(t, disks))
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

// TestFormatSeveral_RefusedDisk_IsNamed: the refusal of one disk leaves all as they were.
func TestFormatSeveral_RefusedDisk_IsNamed(t *testing.T) {
	for name, test := range map[string]struct {
		disk  func(t *testing.T) *disktest.Memory
		force bool // whether force does not help
		err   error
		want  string
	}{
		"data": {disk: func(t *testing.T) *disktest.Memory {
			disk := disktest.NewMemory(1<<20, 512, 512)
			putCopy(t, disk, 512, 4096, 1, func(p []byte) error { p[9] = 1; return nil })
			return disk
		}, err: ErrOccupied, want: "it holds unknown data, the first byte that is not zero at 410"},
		"lockspace": {disk: func(t *testing.T) *disktest.Memory {
			disk := disktest.NewMemory(1<<20, 512, 512)
			oldLockspace(t, disk)
			return disk
		}, err: ErrOccupied, want: `it holds lockspace "old"`},
		"interrupted format": {disk: func(t *testing.T) *disktest.Memory {
			disk := disktest.NewMemory(1<<20, 512, 512)
			require.NoError(t, wipeOld(t, disk))
			return disk
		}, err: ErrOccupied, want: "the rest of an interrupted format"},
		"later version": {disk: func(t *testing.T) *disktest.Memory {
			disk := disktest.NewMemory(1<<20, 512, 512)
			oldLockspace(t, disk)
			p := lockspacetest.Contents(t, disk)[:512]
			p[4] = 9
			require.NoError(t, disk.Open().Write(append(blockdev.Alloc(512)[:0], p...), 0))
			lockspacetest.Damage(t, disk.Open(), 512)
			return disk
		}, force: true, err: ErrForeignVersion, want: "version 9"},
		"too small": {disk: func(*testing.T) *disktest.Memory { return disktest.NewMemory(4096, 512, 512) },
			force: true, err: lockspace.ErrDeviceSize, want: "it has 4096 bytes"},
		"blocks too large": {disk: func(*testing.T) *disktest.Memory { return disktest.NewMemory(1<<20, 512, 1<<17) },
			force: true, err: lockspace.ErrStride, want: "its physical blocks are of 131072 bytes"},
	} {
		for at := range 3 {
			t.Run(fmt.Sprintf("%s, disk %d", name, at+1), func(t *testing.T) {
				disks := newDisks(3)
				disks[at] = test.disk(t)
				before := contentsOf(t, disks)
				o := formatOptions("new")
				o.Force = test.force
				_, err := FormatDevices(t.Context(), openAll(disks), o)
				require.ErrorIs(t, err, test.err)
				require.ErrorContains(t, err, "format "+diskPath(at)+": ")
				require.ErrorContains(t, err, test.want)
				for i := range disks {
					if i != at {
						require.NotContains(t, err.Error(), diskPath(i))
					}
				}
				require.Equal(t, before, contentsOf(t, disks))
			})
		}
	}
}

func TestFormatSeveral_AllOccupiedDisks_AreShown(t *testing.T) {
	disks := newDisks(3)
	oldLockspace(t, disks[0])
	putCopy(t, disks[2], 512, 4096, 1, func(p []byte) error { p[9] = 1; return nil })
	_, err := FormatDevices(t.Context(), openAll(disks), formatOptions("new"))
	require.ErrorIs(t, err, ErrOccupied)
	require.ErrorContains(t, err, "format /dev/disk1: device is not empty: it holds lockspace")
	require.ErrorContains(t, err, "format /dev/disk3: device is not empty: it holds unknown data")
}

func TestFormatSeveral_TwoPathsToOneDisk_AreRefused(t *testing.T) {
	dir := lockspacetest.Dir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("a"), make([]byte, 1<<20), 0o600))
	require.NoError(t, os.WriteFile(at("b"), make([]byte, 1<<20), 0o600))
	require.NoError(t, os.Symlink("a", at("link")))
	require.NoError(t, os.Symlink(".", at("dir")))
	for _, paths := range [][]string{
		{at("a"), at("b"), at("a")},
		{at("a"), at("b"), at("link")},
		{at("new"), at("b"), at("dir/new")},
	} {
		_, err := Format(t.Context(), paths, forced("new"))
		require.ErrorIs(t, err, ErrDisks)
		require.ErrorContains(t, err, paths[0]+" and "+paths[2]+" are the same")
		for _, name := range []string{"a", "b"} {
			contents, err := os.ReadFile(at(name))
			require.NoError(t, err)
			require.Equal(t, make([]byte, 1<<20), contents)
		}
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 4, "a file was created")
}

func TestFormatSeveral_MissingPaths_BecomeFiles(t *testing.T) {
	dir := lockspacetest.Dir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	paths := []string{at("a"), at("b"), at("c")}
	result, err := Format(t.Context(), paths, formatOptions("prod"))
	require.NoError(t, err)
	require.True(t, result.Created)
	requireMembers := func(paths []string, result *Result) {
		require.Equal(t, paths, result.Paths)
		for i, path := range paths {
			dev, err := blockdev.Open(path, blockdev.Options{ReadOnly: true})
			require.NoError(t, err)
			sb, copyUsed, err := lockspace.FindSuperblock(dev)
			require.NoError(t, err)
			require.NoError(t, dev.Close())
			require.Zero(t, copyUsed)
			want := result.Superblock
			want.Position = i + 1
			require.Equal(t, want, sb)
		}
		dev, sb, _, err := lockspace.OpenDisks(paths, lockspace.DiskOptions{ReadOnly: true})
		require.NoError(t, err)
		defer dev.Close()
		require.Equal(t, result.Superblock, sb)
		snapshot, err := lockspace.Inspect(dev)
		require.NoError(t, err)
		require.Empty(t, snapshot.Hosts)
	}
	requireMembers(paths, result)

	// One of them is not empty, and then it is erased.
	paths = []string{at("d"), at("b"), at("e")}
	_, err = Format(t.Context(), paths, formatOptions("next"))
	require.ErrorIs(t, err, ErrOccupied)
	require.Regexp(t, "^format "+at("b")+": ", err.Error())
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 3, "nothing is created")
	result, err = Format(t.Context(), paths, forced("next"))
	require.NoError(t, err)
	require.False(t, result.Created)
	requireMembers(paths, result)

	_, err = Format(t.Context(), []string{at("x"), at("y"), at("no/such")}, formatOptions(""))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "create "+at("no/such"))
	require.NotContains(t, err.Error(), "create "+at("x"))
	require.NoFileExists(t, at("x"))
}
