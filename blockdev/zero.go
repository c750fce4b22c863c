package blockdev

import (
	"errors"

	"golang.org/x/sys/unix"
)

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
		if err := d.transfer(unix.Pwrite, Request{Op: OpWrite, N: int64(len(p)), Off: off, Bytes: p}); err != nil {
			return err
		}
	}
	return nil
}
