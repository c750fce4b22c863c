package area

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
)

// maxPath is the longest path in sanlock's structures.
const maxPath = 1023

// file is a regular file or block device that was found, and not yet opened for reading or writing.
type file struct {
	fd      int // of O_PATH
	regular bool
	size    int64 // of a regular file
}

// find finds a file with the rights of this thread. It opens nothing before its kind is known, because the open of
// another kind may have an effect, such as that of a watchdog.
func find(name string) (*file, error) {
	if !path.IsAbs(name) || len(name) > maxPath {
		return nil, fmt.Errorf("%w: path of %d bytes; want an absolute one of at most %d", unix.EINVAL, len(name), maxPath)
	}
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	for err == unix.EINTR {
		fd, err = unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	kind := st.Mode & unix.S_IFMT
	if err == nil && kind != unix.S_IFREG && kind != unix.S_IFBLK {
		err = fmt.Errorf("%w but has mode %v", blockdev.ErrNotDevice, fs.FileMode(st.Mode))
	}
	f := &file{fd: fd, regular: kind == unix.S_IFREG, size: st.Size}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *file) close() { _ = unix.Close(f.fd) } // nothing was written by it

// path returns a path of the file that was found, whatever has its name now. Its permissions apply.
func (f *file) path() string { return "/proc/self/fd/" + strconv.Itoa(f.fd) }

// open opens the file for direct and durable IO, which does not keep this process from ending.
func (r *request) open(f *file) (*blockdev.Disk, error) {
	disk, err := blockdev.Open(f.path(), blockdev.Options{ReadOnly: !r.write, Killable: true})
	switch err = cause(err); {
	case err == nil, errors.Is(err, blockdev.ErrTooSmall), err == blockdev.ErrReadOnly:
		return disk, err
	}
	return nil, r.cannotOpen(err)
}

// extend makes a regular file at least end bytes long by a write of its last sector. Sanlock does it by a write of the
// whole area. Unlike truncation, a write never shortens a file that another host extends at the same time.
func (r *request) extend(f *file, end int64, sector int) error {
	if !f.regular || f.size >= end {
		return nil
	}
	fd, err := unix.Open(f.path(), unix.O_WRONLY|unix.O_DIRECT|unix.O_DSYNC|unix.O_CLOEXEC, 0)
	if err != nil {
		return r.cannotOpen(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Pwrite(fd, zeroes()[:sector], end-int64(sector)); err != nil {
		return fmt.Errorf("extend the file to %d bytes: %w", end, err)
	}
	return nil
}

// takeRights gives this thread the rights of a peer for files, by raw system calls: those of package syscall would
// change all threads. The thread ends with its goroutine. Another user for files also drops the capabilities that
// override permissions. A peer that is root, or is this process's user, has the rights of this process.
func (p Peer) takeRights() error {
	if p.UID == 0 || p.UID == unix.Geteuid() {
		return nil
	}
	runtime.LockOSThread() // never unlocked
	groups := []uint32{uint32(p.GID)}
	for _, gid := range p.Groups {
		groups = append(groups, uint32(gid))
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0)
	// These two report no error: each returns the id before the call, and -1 is not set.
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, uintptr(p.GID), 0, 0)
	gid, _, _ := unix.RawSyscall(unix.SYS_SETFSGID, ^uintptr(0), 0, 0)
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(p.UID), 0, 0)
	uid, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ^uintptr(0), 0, 0)
	if errno != 0 || int(gid) != p.GID || int(uid) != p.UID {
		return fmt.Errorf("%w to take the rights of user %d and group %d; run bakeryd as root", unix.EPERM, p.UID, p.GID)
	}
	return nil
}
