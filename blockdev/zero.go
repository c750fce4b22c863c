package blockdev

import (
	"bytes"
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// chunk is the size of one request of Zero and AllZero if they transfer every byte.
const chunk = 1 << 20

// Zeroer is a Device that can write zeroes more efficiently than by Write.
type Zeroer interface {
	// Zero sets the n bytes at off to zero and returns when that is durable. It returns the
	// errors of Device.Write. After one, any part of the range may be zero.
	Zero(off, n int64) error
}

// Zero sets n bytes at off of a device to zero and returns when that is durable, in the most
// efficient way that the device has. It returns the errors of Device.Write. After one, any part
// of the range may be zero.
func Zero(dev Device, off, n int64) error {
	if z, ok := dev.(Zeroer); ok {
		return z.Zero(off, n)
	}
	r, h := Request{Op: OpZero, N: n, Off: off}, Handle{info: dev.Info()}
	if err := h.info.check(r); err != nil {
		return h.Fail(r, err)
	}
	return writeZeroes(dev.Write, off, n)
}

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
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		err = writeZeroes(d.pwrite, off, n)
	}
	if err != nil {
		return err
	}
	return unix.Fsync(d.fd)
}

func (d *Disk) pwrite(p []byte, off int64) error {
	return d.transfer(unix.Pwrite, Request{Op: OpWrite, N: int64(len(p)), Off: off, Bytes: p})
}

func writeZeroes(write func(p []byte, off int64) error, off, n int64) error {
	p := scratch.Get(int(min(chunk, n)))
	defer scratch.Put(p)
	clear(p)
	for n > 0 {
		part := p[:min(int64(len(p)), n)]
		if err := write(part, off); err != nil {
			return err
		}
		off, n = off+int64(len(part)), n-int64(len(part))
	}
	return nil
}
