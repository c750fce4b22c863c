package probe

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// File describes the storage of a regular file.
type File struct {
	Filesystem string `json:"filesystem"`     // type of the filesystem
	Disk       *Disk  `json:"disk,omitempty"` // below the filesystem; nil: several disks, or unknown
}

type filesystem struct {
	name    string
	verdict Verdict
	why     string
}

const (
	onlyHere = "only this machine can use it: good for trying out"
	useBlock = "use a block device that all hosts reach"
)

var filesystems = map[int64]filesystem{
	unix.EXT4_SUPER_MAGIC:      {"ext4", Warning, onlyHere},
	unix.XFS_SUPER_MAGIC:       {"xfs", Warning, onlyHere},
	unix.BTRFS_SUPER_MAGIC:     {"btrfs", Warning, onlyHere + "; every write is copied elsewhere, which costs time"},
	0x2fc12fc1:                 {"zfs", Warning, onlyHere + "; it may cache what is written directly"},
	unix.TMPFS_MAGIC:           {"tmpfs", Unfit, "it is kept in memory"},
	unix.RAMFS_MAGIC:           {"ramfs", Unfit, "it is kept in memory"},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlay", Warning, "it is in a container's own layer, which nobody else sees and which goes with the container"},
	unix.NFS_SUPER_MAGIC:       {"nfs", Warning, "whether a write is durable and immediately visible to others is up to the server and its export options"},
	unix.FUSE_SUPER_MAGIC:      {"fuse", Warning, "whether a write is durable and immediately visible to others is up to the program that serves it"},
	unix.V9FS_MAGIC:            {"9p", Warning, "the host beneath may cache what is written directly"},
	0xff534d42:                 {"cifs", Warning, "whether a write is durable and immediately visible to others is up to the server"},
	0xfe534d42:                 {"smb", Warning, "whether a write is durable and immediately visible to others is up to the server"},
	0x00c36400:                 {"ceph", Warning, "its client caches unless all hosts open it at once"},
	0x7461636f:                 {"ocfs2", Warning, "its own fencing and locks decide when a write returns"},
	0x01161970:                 {"gfs2", Warning, "its own fencing and locks decide when a write returns"},
}

// addFile adds the storage of the regular file at path. It wraps an errno.
func (r *Report) addFile(s Sys, path string) error {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if err := unix.Statfs(path, &fs); err != nil {
		return fmt.Errorf("read filesystem of %s: %w", path, err)
	}
	// The magic numbers have 32 bits, whatever the sign of the field.
	known, ok := filesystems[int64(uint32(fs.Type))]
	if !ok {
		known = filesystem{fmt.Sprintf("filesystem %#x", uint32(fs.Type)), Unknown, "what it does with direct writes is not known here"}
	}
	r.File = &File{Filesystem: known.name}
	if disk, err := s.Disk(unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))); err == nil {
		r.File.Disk = &disk
	}
	r.add("kind", known.verdict, "a regular file on "+known.name+": "+known.why, useBlock)
	return nil
}
