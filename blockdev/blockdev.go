// Package blockdev reads and writes whole sectors of a disk that other hosts write too.
//
// It opens a block device or a file so that every write is one request and durable when it
// returns. It reports the block sizes and the duration of each request. It never knows the meaning
// of a sector or which host may write it. Package mirror makes one device of several disks, and
// test/disktest simulates disks for tests.
//
// Begin with [Device], the interface that the other packages use. [Open] returns the real one.
// One contract suite (contract_test.go) runs over every implementation.
package blockdev

import (
	"errors"
	"fmt"
)

// Device is a disk that several hosts may have open. All methods may be called concurrently.
//
// Buffers must begin in memory at a multiple of the logical block size, and of 4096 if blocks are
// larger. [Alloc] and [Pool] return such buffers. Many drivers accept less. Requiring it always
// keeps a program that passed its tests from failing on a stricter driver.
type Device interface {
	// Read fills p from offset off in one request. A read that overlaps a write may return the
	// old blocks, the new ones or garbage.
	//
	// It returns ErrAlignment, ErrRange, ErrClosed, or wraps the system's error, usually an
	// errno. After an error the contents of p are undefined.
	Read(p []byte, off int64) error

	// Write writes p at off in one request and returns when it is durable.
	//
	// ErrAlignment, ErrRange, ErrReadOnly and ErrClosed leave the disk unchanged. Any other error
	// wraps the system's. It is then unknown which part of p landed, if any. If the fabric lost
	// track of the request, it may still land later.
	Write(p []byte, off int64) error

	// Zero sets the n bytes at off to zero and returns when that is durable, in the most efficient
	// way that the device has. It returns the errors of Write. After one, any part of the range
	// may be zero.
	Zero(off, n int64) error

	// Info returns the properties of the device at the time when it was opened.
	Info() Info

	// Stats returns statistics since the device was opened.
	Stats() Stats

	// Close refuses further requests, waits for those under way, then closes the device. It waits
	// without limit: a request in the kernel cannot be cancelled. It returns ErrClosed if called
	// again.
	Close() error
}

// Info holds the properties of a device.
type Info struct {
	Path    string // as given to Open
	Members int    // number of member disks of a mirror.Set; 0 if the device is one disk

	// LogicalBlock divides every offset and length.
	LogicalBlock int

	// PhysicalBlock is the unit that the disk writes, and therefore may damage; at least
	// LogicalBlock. A regular file does not show the disk below it: for a file, this is its
	// filesystem's block, but at least 4096.
	PhysicalBlock int

	Size         int64  // in bytes, a multiple of LogicalBlock
	Regular      bool   // a regular file, not a block device
	ReadOnly     bool   // opened for reading only
	Major, Minor uint32 // of a block device: the key of its directory in /sys/dev/block
}

var (
	// ErrAlignment is returned when an offset, a length or a buffer's place in memory is not a
	// multiple of the logical block size, or a length is zero.
	ErrAlignment = errors.New("not aligned to the blocks of the device")

	// ErrRange is returned when a request is partly or wholly outside the device, also when the
	// device has shrunk since it was opened.
	ErrRange = errors.New("outside the device")

	// ErrReadOnly is returned by a write to a device that is read-only or was opened for reading.
	ErrReadOnly = errors.New("device is read-only")

	// ErrClosed is returned when a device is used after Close was called.
	ErrClosed = errors.New("device is closed")

	// ErrNoDirectIO is returned when a file's filesystem cannot write it past the page cache to a
	// disk.
	ErrNoDirectIO = errors.New("no direct IO on this filesystem")

	// ErrBusy is returned when a device is mounted, part of another device, held exclusively, or
	// locked.
	ErrBusy = errors.New("device is in use")

	// ErrNotDevice is returned when the opened path is neither a block device nor a regular file.
	ErrNotDevice = errors.New("not a block device or regular file")

	// ErrTooSmall is returned when a device is smaller than one physical block.
	ErrTooSmall = errors.New("device is too small")

	// ErrDirectory is returned when this process is not permitted to create a file in its directory.
	ErrDirectory = errors.New("cannot create a file in its directory")
)

// Op is a kind of request.
type Op uint8

// The kinds of request. OpAny stands for all of them.
const (
	OpAny Op = iota
	OpRead
	OpWrite
	OpZero
	opCount
)

func (op Op) String() string {
	if op < opCount {
		return [...]string{"any", "read", "write", "zero"}[op]
	}
	return fmt.Sprintf("op %d", uint8(op))
}
