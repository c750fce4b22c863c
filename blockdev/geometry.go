package blockdev

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	minBlock = 512

	// A file does not show the disk below it. Nearly all disks today write 4096 bytes as a unit.
	minFilePhysical = 4096

	// Above this, st_blksize is the transfer size that a network filesystem prefers, not a block.
	maxFilePhysical = 64 << 10
)

// checkKind returns an error that names the kind of a file that is neither a block device nor a
// regular file.
func checkKind(mode uint32) error {
	kind := mode & unix.S_IFMT
	if kind == unix.S_IFBLK || kind == unix.S_IFREG {
		return nil
	}
	what := map[uint32]string{unix.S_IFDIR: "directory", unix.S_IFCHR: "character device", unix.S_IFIFO: "FIFO", unix.S_IFSOCK: "socket"}[kind]
	return fmt.Errorf("%w but a %s", ErrNotDevice, cmp.Or(what, fmt.Sprintf("file of type %#o", kind)))
}

func noDirectIO(why string) error {
	return fmt.Errorf("%w: %s; use a block device, or a file on ext4 or xfs", ErrNoDirectIO, why)
}

// inspectBlock sets the geometry of a block device.
func (i *Info) inspectBlock(fd int, st *unix.Stat_t) error {
	logical, err := unix.IoctlGetUint32(fd, unix.BLKSSZGET)
	if err != nil {
		return fmt.Errorf("read logical block size: %w", err)
	}
	physical, err := unix.IoctlGetUint32(fd, unix.BLKPBSZGET)
	if err != nil {
		return fmt.Errorf("read physical block size: %w", err)
	}
	// Some devices can be opened for writing although they are read-only.
	readOnly, err := unix.IoctlGetUint32(fd, unix.BLKROGET)
	if err != nil {
		return fmt.Errorf("read whether it is read-only: %w", err)
	}
	if readOnly != 0 && !i.ReadOnly {
		return ErrReadOnly
	}
	// The result equals that of BLKGETSIZE64, which would need unsafe on 32-bit machines.
	size, err := unix.Seek(fd, 0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("read size: %w", err)
	}
	i.LogicalBlock = int(logical)
	i.PhysicalBlock = int(max(logical, physical))
	i.Size = size - size%int64(logical)
	i.Major, i.Minor = unix.Major(st.Rdev), unix.Minor(st.Rdev)
	return nil
}

// inspectFile sets the geometry of a regular file.
//
// The logical block is the alignment that the kernel reports for direct IO to this file (statx,
// Linux 6.1 and later), otherwise the smallest with which the file's beginning can be read. The
// physical block is the filesystem's block, but at least 4096.
func (i *Info) inspectFile(fd int, st *unix.Stat_t) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return fmt.Errorf("read filesystem type: %w", err)
	}
	if int64(fs.Type) == unix.TMPFS_MAGIC || int64(fs.Type) == unix.RAMFS_MAGIC {
		// Since Linux 6.6 tmpfs accepts O_DIRECT, and ignores it.
		return noDirectIO("it keeps its files in memory")
	}
	i.Regular = true
	var err error
	if i.LogicalBlock, err = fileBlock(fd); err != nil {
		return err
	}
	i.PhysicalBlock = max(minFilePhysical, i.LogicalBlock)
	if b := int(st.Blksize); b > i.PhysicalBlock && b <= maxFilePhysical && b&(b-1) == 0 {
		i.PhysicalBlock = b
	}
	i.Size = st.Size - st.Size%int64(i.LogicalBlock)
	return nil
}

// fileBlock returns the alignment that direct IO to an open file requires.
func fileBlock(fd int) (int, error) {
	var stx unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &stx)
	if err == nil && stx.Mask&unix.STATX_DIOALIGN != 0 {
		if stx.Dio_offset_align == 0 {
			return 0, noDirectIO("it has none for this file")
		}
		return max(minBlock, int(stx.Dio_offset_align)), nil
	}
	return probeBlock(fd)
}

// probeBlock returns the smallest block in which the beginning of a file can be read.
func probeBlock(fd int) (int, error) {
	p := scratch.Get(minFilePhysical)
	defer scratch.Put(p)
	for block := minBlock; block <= minFilePhysical; block *= 2 {
		_, err := unix.Pread(fd, p[:block], 0)
		if err != unix.EINVAL {
			return block, nil // a later read of that sector reports any other failure
		}
	}
	return 0, noDirectIO("it refuses direct reads")
}

// checkLoops refuses a file below a loop device that is mounted or otherwise held exclusively. It
// ignores a loop device that this process cannot open.
func checkLoops(file *unix.Stat_t) error {
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, name := range names {
		dev := filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(name))))
		if loopHeldOn(dev, file) {
			return fmt.Errorf("%w: %s, which is on this file, is mounted, part of another device, or held exclusively",
				ErrBusy, dev)
		}
	}
	return nil
}

// loopHeldOn reports whether a loop device on file is held exclusively.
func loopHeldOn(dev string, file *unix.Stat_t) bool {
	f, err := os.OpenFile(dev, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	status, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil || status.Inode != file.Ino || status.Device != uint64(file.Dev) {
		return false
	}
	fd, err := unix.Open(dev, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == unix.EBUSY
}
