package lockspace

import (
	"crypto/rand"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
)

// Pool is where all buffers of this package come from and go back to.
var Pool blockdev.Pool

// ReadRecords reads the records that lie in a row at off, in one request. If
// that fails because of a bad sector, they are read one by one: errs, nil if
// all could be read, tells which could not. err tells that none could.
func ReadRecords(dev blockdev.Device, buf []byte, off int64, stride int) (errs []error, err error) {
	if err = dev.Read(buf, off); err == nil {
		return make([]error, len(buf)/stride), nil
	}
	return ReadApart(dev, buf, off, stride, err)
}

// ReadApart goes on after a read of records that has failed.
func ReadApart(dev blockdev.Device, buf []byte, off int64, stride int, err error) ([]error, error) {
	n := len(buf) / stride
	if !IsBadSector(err) || n == 1 {
		return nil, err
	}
	errs := make([]error, n)
	good := 0
	for i := range n {
		errs[i] = dev.Read(buf[i*stride:(i+1)*stride], off+int64(i*stride))
		if errs[i] == nil {
			good++
		} else if !IsBadSector(errs[i]) {
			return nil, errs[i]
		}
	}
	if good == 0 {
		return nil, err
	}
	return errs, nil
}

// IsBadSector tells an error of a part of the medium from one of the path to it.
func IsBadSector(err error) bool {
	for _, no := range []unix.Errno{unix.EIO, unix.EBADMSG, unix.ENODATA, unix.EILSEQ, unix.EREMOTEIO} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// Nonce returns a random number that tells what one process has written from what others have.
func Nonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // which never fails
	return binary.LittleEndian.Uint64(b[:])
}
