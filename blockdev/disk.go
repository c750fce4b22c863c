package blockdev

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Options configure Open.
type Options struct {
	// ReadOnly opens for reading only. Write and Zero then return ErrReadOnly.
	ReadOnly bool

	// Exclusive refuses a device that is mounted, belongs to a volume or RAID, or that another
	// process on this host holds exclusively. Until it is closed, a block device cannot be used
	// like that by others. A regular file is refused while a loop device on it is held
	// exclusively; later nothing prevents that.
	Exclusive bool

	// Killable lets the process end while a Read or Write is in flight, for example to a disk that hangs:
	// they are made by io_uring. Otherwise, or if the kernel does not permit io_uring, the process exists
	// until they have returned, also after SIGKILL. That holds for Zero in any case, for a regular file
	// whose filesystem makes no asynchronous requests, and for more requests than the queue of the disk in
	// the kernel has room for.
	Killable bool
}

// Disk is a block device or a regular file, opened for direct and durable IO.
type Disk struct {
	Handle
	fd    int
	rings *rings                  // nil if requests are made by pread and pwrite
	kept  atomic.Pointer[os.File] // see Keep
}

// Open opens the block device or regular file at path, following symbolic links.
//
// Every Read and Write is one pread or pwrite, or the same by io_uring, without the page cache
// (O_DIRECT) and durable when it returns (O_DSYNC: forced unit access if the device has it, otherwise a
// flush of its cache).
// The kernel splits requests above the device's own limit, max_sectors_kb in sysfs.
//
// It returns ErrNotDevice, ErrBusy, ErrReadOnly, ErrNoDirectIO, ErrTooSmall, or wraps an errno.
func Open(path string, opts Options) (*Disk, error) {
	d, err := open(path, path, opts)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return d, nil
}

// open opens path and uses name in errors.
func open(path, name string, opts Options) (*Disk, error) {
	var st unix.Stat_t
	// Checked before opening: opening a FIFO blocks, and opening a watchdog arms it.
	if err := unix.Stat(path, &st); err != nil {
		return nil, err
	}
	if err := checkKind(st.Mode); err != nil {
		return nil, err
	}
	fd, err := openDirect(path, st.Mode, opts)
	if err != nil {
		return nil, err
	}
	d := &Disk{fd: fd}
	if opts.Killable && ringsAllowed() {
		d.rings = &rings{}
	}
	d.Handle = NewHandle(Info{Path: name, ReadOnly: opts.ReadOnly}, d.serve, d.release)
	if err := d.inspect(opts); err != nil {
		_ = unix.Close(fd) // nothing was written: the earlier error is returned
		return nil, err
	}
	return d, nil
}

func openDirect(path string, mode uint32, opts Options) (int, error) {
	flags := unix.O_RDWR | unix.O_DIRECT | unix.O_DSYNC | unix.O_CLOEXEC
	if opts.ReadOnly {
		flags = flags&^unix.O_RDWR | unix.O_RDONLY
	}
	if opts.Exclusive && mode&unix.S_IFMT == unix.S_IFBLK {
		flags |= unix.O_EXCL
	}
	for {
		fd, err := unix.Open(path, flags, 0)
		switch err {
		case unix.EINTR:
			continue
		case unix.EINVAL:
			return -1, noDirectIO("it refuses O_DIRECT")
		case unix.EBUSY:
			return -1, fmt.Errorf("%w: mounted, part of another device, or held exclusively", ErrBusy)
		case unix.EROFS:
			return -1, fmt.Errorf("%w: %w", ErrReadOnly, err)
		}
		return fd, err
	}
}

// inspect checks the opened file and sets its geometry.
func (d *Disk) inspect(opts Options) error {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return err
	}
	if err := checkKind(st.Mode); err != nil {
		return err
	}
	inspect := d.info.inspectFile
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		inspect = d.info.inspectBlock
	}
	if err := inspect(d.fd, &st); err != nil {
		return err
	}
	if opts.Exclusive && d.info.Regular {
		if err := checkLoops(&st); err != nil {
			return err
		}
	}
	if d.info.Size < int64(d.info.PhysicalBlock) {
		return fmt.Errorf("%w: %d bytes, less than one block of %d", ErrTooSmall, max(d.info.Size, st.Size), d.info.PhysicalBlock)
	}
	return nil
}

// Lock locks n bytes at off for this Disk. Another Lock of any of them on this machine returns
// ErrBusy until the Disk is closed and its last request has returned, even if the process is gone.
// Therefore a process that locks what it writes knows that no write of an earlier process can still
// land. Lock returns ErrClosed after Close.
func (d *Disk) Lock(off, n int64) error {
	return d.ledger.whileOpen(func() error { return lock(d.fd, d.info.Path, off, n) })
}

// LockFile locks n bytes at off of a file. Another LockFile of any of them returns ErrBusy until f, and
// each copy of its descriptor, is closed, and the requests of disks that keep it have returned: see
// [Disk.Keep].
func LockFile(f *os.File, off, n int64) error {
	open, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	err = open.Control(func(fd uintptr) { locked = lock(int(fd), f.Name(), off, n) })
	return cmp.Or(err, locked)
}

func lock(fd int, path string, off, n int64) error {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: off, Len: n}
	err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock)
	if err == unix.EAGAIN {
		err = fmt.Errorf("%w: another process has it, or a request is in flight", ErrBusy)
	}
	if err != nil {
		return fmt.Errorf("lock %d bytes at %d of %s: %w", n, off, path, err)
	}
	return nil
}

// Keep makes d keep a file, and with it the locks on it, until d is closed and its requests that begin
// from now on have returned, even if the process is gone. It takes the place of the file before.
func (d *Disk) Keep(f *os.File) {
	if d.rings != nil {
		d.rings.keep(f)
	}
	if old := d.kept.Swap(f); old != nil {
		old.Close()
	}
}

func (d *Disk) serve(r Request) error {
	switch r.Op {
	case OpRead, OpWrite:
		return d.transfer(r)
	}
	if err := d.zero(r.Off, r.N); err != nil {
		return d.Fail(r, err)
	}
	return nil
}

// transfer makes a request, again if a signal interrupted it.
func (d *Disk) transfer(r Request) error {
	n, err := d.call(r)
	for err == unix.EINTR {
		n, err = d.call(r)
	}
	if err != nil || n != len(r.Bytes) {
		return d.explain(r, int64(n), err)
	}
	return nil
}

func (d *Disk) call(r Request) (int, error) {
	call, op := unix.Pread, uint8(ringRead)
	if r.Op == OpWrite {
		call, op = unix.Pwrite, ringWrite
	}
	if d.rings != nil {
		if n, begun, err := d.rings.transfer(op, d.fd, r.Bytes, r.Off); begun {
			return n, err
		}
	}
	return call(d.fd, r.Bytes, r.Off)
}

// explain returns the error of a request that ended with err, or short with got bytes.
func (d *Disk) explain(r Request, got int64, err error) error {
	switch {
	case errors.Is(err, unix.EINVAL):
		// The request was aligned as the kernel demands, so the device demands more than that.
		err = fmt.Errorf("%w: %w", ErrAlignment, err)
	case err != nil:
	case r.Op == OpWrite:
		err = fmt.Errorf("only %d written: %w", got, io.ErrShortWrite)
	default:
		// Checked only now: this costs a system call that successful requests do not need.
		end, seekErr := unix.Seek(d.fd, 0, io.SeekEnd)
		if seekErr == nil && r.Off+got < end {
			err = fmt.Errorf("only %d read: %w", got, unix.EIO)
		} else {
			err = fmt.Errorf("only %d read: %w: it has shrunk to %d bytes", got, ErrRange, end)
		}
	}
	return d.Fail(r, err)
}

// zero punches a hole in a file, and lets a block device write zeroes itself.
func (d *Disk) zero(off, n int64) error {
	// On a block device this is BLKZEROOUT: the blocks stay allocated and can be written later.
	mode := uint32(unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE)
	if d.info.Regular {
		mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	}
	err := unix.Fallocate(d.fd, mode, off, n)
	for err == unix.EINTR {
		err = unix.Fallocate(d.fd, mode, off, n)
	}
	if errors.Is(err, errors.ErrUnsupported) || err == unix.EINVAL {
		err = d.writeZeroes(off, n)
	}
	if err != nil {
		return err
	}
	return unix.Fsync(d.fd)
}

// writeZeroes does what zero does if neither the filesystem nor the driver makes zeroes.
func (d *Disk) writeZeroes(off, n int64) error {
	const chunk = 1 << 20
	p := scratch.Get(int(min(chunk, n)))
	defer scratch.Put(p)
	clear(p)
	for end := off + n; off < end; off += int64(len(p)) {
		p = p[:min(int64(len(p)), end-off)]
		if err := d.transfer(Request{Op: OpWrite, N: int64(len(p)), Off: off, Bytes: p}); err != nil {
			return err
		}
	}
	return nil
}

func (d *Disk) release() error {
	d.Keep(nil)
	if err := unix.Close(d.fd); err != nil {
		return fmt.Errorf("close %s: %w", d.info.Path, err)
	}
	return nil
}
