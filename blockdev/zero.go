package blockdev

import (
	"bytes"
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// chunk is the size of one request of writeZeroes and AllZero.
const chunk = 1 << 20

// AllZero reports whether the n bytes at off of a device are all zero, and returns the offset of
// the first that is not, or -1 if they are or are not known. The progress function, unless nil,
// is called after every read with the number of bytes checked. AllZero returns the errors of
// Device.Read.
func AllZero(dev Device, off, n int64, progress func(done int64)) (zero bool, firstNonZero int64, err error) {
	p, zeroes := scratch.Get(chunk), scratch.Get(chunk)
	defer scratch.Put(p)
	defer scratch.Put(zeroes)
	clear(zeroes)
	for done := int64(0); done < n; {
		part := p[:min(chunk, n-done)]
		if err := dev.Read(part, off+done); err != nil {
			return false, -1, err
		}
		if !bytes.Equal(part, zeroes[:len(part)]) {
			at := slices.IndexFunc(part, func(b byte) bool { return b != 0 })
			return false, off + done + int64(at), nil
		}
		done += int64(len(part))
		if progress != nil {
			progress(done)
		}
	}
	return true, -1, nil
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
