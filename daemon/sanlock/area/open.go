package area

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
)

// file is a file that was found, and not yet opened for reading or writing.
type file struct {
	fd      int // of O_PATH
	regular bool
	size    int64
}

// find finds a file with the rights of this thread. It opens nothing, because that would have an
// effect on a FIFO, a terminal or a watchdog.
func find(path string) (*file, error) {
	if !filepath.IsAbs(path) || len(path) > 1023 {
		return nil, fmt.Errorf("%w: path of %d bytes; want an absolute one of at most 1023", unix.EINVAL, len(path))
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	for err == unix.EINTR {
		fd, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &file{fd: fd, regular: st.Mode&unix.S_IFMT == unix.S_IFREG, size: st.Size}, nil
}

func (f *file) close() { _ = unix.Close(f.fd) } // nothing was written by it

// path returns a path of the file that was found, whatever has its name now. Its permissions apply.
func (f *file) path() string { return "/proc/self/fd/" + strconv.Itoa(f.fd) }

// open opens a regular file or a block device for direct and durable IO, which does not keep this
// process from ending.
func (r request) open(f *file) (*blockdev.Disk, error) {
	disk, err := blockdev.Open(f.path(), blockdev.Options{ReadOnly: !r.write, Killable: true})
	switch err = cause(err); {
	case err == nil, errors.Is(err, blockdev.ErrTooSmall), err == blockdev.ErrReadOnly:
		return disk, err
	}
	return nil, r.cannotOpen(err)
}

// extend makes a regular file at least end bytes long by a write of its last sector. Sanlock does
// it by a write of the whole area. Unlike truncation, a write never shortens a file that another
// host extends at the same time.
func (r request) extend(f *file, end int64, sector int) error {
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

// takeRights gives this thread the rights of a peer for files, by raw system calls: those of
// package syscall would change all threads. The thread ends with its goroutine; the first thread of
// the process never runs another. Another user for files also drops the capabilities that override
// permissions. A peer that is root, or is this process's user, has the rights of this process.
// The kernel makes no core dump of a process of which a thread has changed its user.
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
	// These two report no error. They return the id before the call, and leave it for -1.
	_, _ = unix.SetfsgidRetGid(p.GID)
	gid, _ := unix.SetfsgidRetGid(-1)
	_, _ = unix.SetfsuidRetUid(p.UID)
	uid, _ := unix.SetfsuidRetUid(-1)
	if errno != 0 || gid != p.GID || uid != p.UID {
		return fmt.Errorf("%w to take the rights of user %d and group %d; run bakeryd as root with CAP_SETUID and CAP_SETGID",
			unix.EPERM, p.UID, p.GID)
	}
	return nil
}
