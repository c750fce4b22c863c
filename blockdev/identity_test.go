package blockdev_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
)

// TestDiskID_PathsToOneDisk_AreEqual builds directories of sysfs: two SCSI paths to one disk with
// partitions, multipath over one of them with its partition, an LVM volume, and others.
func TestDiskID_PathsToOneDisk_AreEqual(t *testing.T) {
	sys := t.TempDir()
	file := func(path, text string) {
		path = filepath.Join(sys, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o644))
	}
	below := func(name, disk string) {
		slaves := filepath.Join(sys, name, "slaves")
		require.NoError(t, os.MkdirAll(slaves, 0o755))
		require.NoError(t, os.Symlink(filepath.Join(sys, disk), filepath.Join(slaves, disk)))
	}
	for _, disk := range []string{"sda", "sdb"} {
		file(disk+"/device/wwid", "naa.600140")
		file(disk+"/"+disk+"1/partition", "1")
		file(disk+"/"+disk+"2/partition", "2")
	}
	file("dm-0/dm/uuid", "mpath-3600140")
	below("dm-0", "sda")
	file("dm-1/dm/uuid", "part2-mpath-3600140")
	below("dm-1", "dm-0")
	file("dm-2/dm/uuid", "LVM-x")
	below("dm-2", "sda")
	file("nvme0n1/wwid", "eui.0025")
	file("nvme0n1/nvme0n1p1/partition", "1")
	file("vda/size", "100")
	file("vda/vda1/partition", "1")

	for path, want := range map[string]string{
		"sda":               "naa.600140",
		"sdb":               "naa.600140",
		"sda/sda1":          "naa.600140 partition 1",
		"sdb/sdb1":          "naa.600140 partition 1",
		"sdb/sdb2":          "naa.600140 partition 2",
		"dm-0":              "naa.600140",
		"dm-1":              "naa.600140 partition 2",
		"dm-2":              "", // a part of the disk, and another one may be on it as well
		"nvme0n1":           "eui.0025",
		"nvme0n1/nvme0n1p1": "eui.0025 partition 1",
		"vda":               "",
		"vda/vda1":          "",
		"none":              "",
	} {
		require.Equal(t, want, blockdev.DiskID(filepath.Join(sys, path)), path)
	}
}

func TestInfo_LoopsOnOneFile_AreOneDisk(t *testing.T) {
	file, other := backingFile(t), backingFile(t)
	disk := func(path string) string { return mustOpen(t, path, blockdev.Options{}).Info().Disk() }
	want := disk(file)
	require.Contains(t, want, "inode")
	require.NotEqual(t, want, disk(other))
	require.Equal(t, want, disk(loop(t, file, 512)))
	require.Equal(t, want, disk(loop(t, file, 4096)))
	require.Equal(t, want+" from byte 1048576", disk(loop(t, file, 512, "--offset", "1048576")))
	require.Empty(t, blockdev.Info{Path: "memory"}.Disk())
	require.Equal(t, "device 7:1048575", blockdev.Info{Major: 7, Minor: 1<<20 - 1}.Disk())
}
