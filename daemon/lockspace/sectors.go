package lockspace

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
)

// Pool has the buffers of this package and the packages below it.
var Pool blockdev.Pool

// ReadRecords fills buf with the consecutive records at off, in one read. If a bad sector makes
// that fail, it reads the records one by one. errs has an element for each record, nil if it could
// be read; err is set if none could be read.
func ReadRecords(dev blockdev.Device, buf []byte, off int64, stride int) (errs []error, err error) {
	if err = dev.Read(buf, off); err == nil {
		return make([]error, len(buf)/stride), nil
	}
	return ReadOneByOne(dev, buf, off, stride, err)
}

// ReadOneByOne continues ReadRecords after its read of all records failed with err.
func ReadOneByOne(dev blockdev.Device, buf []byte, off int64, stride int, err error) ([]error, error) {
	n := len(buf) / stride
	if !IsBadSector(err) || n == 1 {
		return nil, err
	}
	errs := make([]error, n)
	for i := range n {
		errs[i] = dev.Read(buf[i*stride:(i+1)*stride], off+int64(i*stride))
		if errs[i] != nil && !IsBadSector(errs[i]) {
			return nil, errs[i]
		}
	}
	if !slices.Contains(errs, nil) {
		return nil, err
	}
	return errs, nil
}

// IsBadSector reports whether err is an error of a part of the medium, not one of the path to it.
func IsBadSector(err error) bool {
	numbers := []unix.Errno{unix.EIO, unix.EBADMSG, unix.ENODATA, unix.EILSEQ, unix.EREMOTEIO}
	return slices.ContainsFunc(numbers, func(no unix.Errno) bool { return errors.Is(err, no) })
}
