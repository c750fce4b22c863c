package blockdev

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// sysBlock has a directory for each block device, named by its numbers.
const sysBlock = "/sys/dev/block"

// Disk returns a name of the disk that is the same by whichever path the disk was opened: the
// world-wide name of a SCSI or NVMe disk, also below multipath, with the number of a partition; the
// file below a loop device; otherwise the device numbers. It returns "" for a device of a test,
// which has none of these.
func (i Info) Disk() string {
	switch {
	case i.Regular:
		return fileID(i.Path)
	case i.Major == 0:
		return ""
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(sysBlock, fmt.Sprintf("%d:%d", i.Major, i.Minor)))
	if err == nil {
		if id := diskID(dir); id != "" {
			return id
		}
	}
	return fmt.Sprintf("device %d:%d", i.Major, i.Minor)
}

// diskID returns the name of the disk with a directory in sysfs, "" if none is known.
func diskID(dir string) string {
	attribute := func(name string) string {
		p, _ := os.ReadFile(filepath.Join(dir, name)) // "" if there is none
		return strings.TrimSpace(string(p))
	}
	if n := attribute("partition"); n != "" {
		return withSuffix(diskID(filepath.Dir(dir)), " partition "+n)
	}
	below := func() string {
		slaves, _ := filepath.Glob(filepath.Join(dir, "slaves", "*"))
		for _, slave := range slaves {
			if slave, err := filepath.EvalSymlinks(slave); err == nil {
				return diskID(slave)
			}
		}
		return ""
	}
	switch kind, _, _ := strings.Cut(attribute("dm/uuid"), "-"); {
	case kind == "mpath":
		return below()
	case strings.HasPrefix(kind, "part"):
		return withSuffix(below(), " partition "+strings.TrimPrefix(kind, "part"))
	}
	if file := attribute("loop/backing_file"); file != "" {
		offset := attribute("loop/offset")
		if offset == "0" {
			return fileID(file)
		}
		return withSuffix(fileID(file), " from byte "+offset)
	}
	for _, name := range []string{"wwid", "device/wwid"} {
		if id := attribute(name); id != "" {
			return id
		}
	}
	return ""
}

func withSuffix(id, suffix string) string {
	if id == "" {
		return ""
	}
	return id + suffix
}

// fileID returns the name of a file by its device and inode, "" if there is none at the path.
func fileID(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return ""
	}
	return fmt.Sprintf("file %d:%d inode %d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
}
