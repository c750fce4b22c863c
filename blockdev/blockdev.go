// Package blockdev reads and writes whole sectors of a disk that other hosts write too.
//
// It knows how to open a block device or a file so that every write is one request and durable when
// it returns, what the sizes of its blocks are, how long each request took, and how disks misbehave:
// [Memory] is a disk in memory with any number of hosts on it, [Faulty] any disk with faults injected.
// It never knows what a sector means, nor who may write it.
//
// Begin reading at [Device], the whole of what the other packages ask of a disk; [Open] is the real one.
// One contract suite (contract_test.go) runs over every implementation.
package blockdev

import (
	"errors"
	"fmt"
	"reflect"
)

// Device is a disk that several hosts may have open. All methods may be called concurrently.
//
// Buffers must begin at a multiple of the logical block size in memory (of 4096, if blocks are larger),
// as those of [Alloc] and [Pool] do. Many drivers take less; requiring it always keeps a program that
// passed its tests from failing on the one that does not.
type Device interface {
	// Read fills p from offset off in one request. A read that overlaps a write may return the old
	// blocks, the new ones or garbage.
	//
	// It returns ErrAlignment, ErrRange, ErrClosed, or wraps what the system said, an errno as a rule.
	// After an error the contents of p are undefined.
	Read(p []byte, off int64) error

	// Write writes p at off in one request and returns when it is durable.
	//
	// It returns ErrAlignment, ErrRange, ErrReadOnly, ErrClosed, all of which leave the disk as it was, or
	// wraps what the system said. Then it is unknown whether, and which part of, p landed; and where the
	// fabric lost track of it, it may yet land later.
	Write(p []byte, off int64) error

	// Info describes the device as it was when opened.
	Info() Info

	// Close refuses further requests, waits for those under way (without limit: a request in the kernel
	// cannot be called back), then closes the device. It returns ErrClosed if called again.
	Close() error
}

// Info is what there is to know of a device.
type Info struct {
	Path string // as given to Open

	// LogicalBlock is what offsets and lengths must be multiples of.
	LogicalBlock int

	// PhysicalBlock is what the disk writes as a whole, and so may damage as a whole; at least LogicalBlock.
	// A regular file does not show the disk beneath it: this is its filesystem's block, but at least 4096.
	PhysicalBlock int

	Size         int64  // in bytes, a multiple of LogicalBlock
	Regular      bool   // a regular file rather than a block device
	ReadOnly     bool   // opened for reading only
	Major, Minor uint32 // of a block device: /sys/dev/block/MAJOR:MINOR says more about it
}

var (
	// ErrAlignment is returned when an offset, a length or a buffer's place in memory is not a multiple of
	// the logical block size, or a length is zero.
	ErrAlignment = errors.New("not aligned to the blocks of the device")

	// ErrRange is returned when a request lies partly or wholly outside the device, also when the device has
	// shrunk since it was opened.
	ErrRange = errors.New("outside the device")

	// ErrReadOnly is returned when a device that cannot be written, or was opened for reading, is to be written.
	ErrReadOnly = errors.New("device is read-only")

	// ErrClosed is returned when a device is used after Close was called.
	ErrClosed = errors.New("device is closed")

	// ErrNoDirectIO is returned when a file's filesystem cannot write it past the page cache to a disk.
	ErrNoDirectIO = errors.New("no direct IO on this filesystem")

	// ErrBusy is returned when a device is mounted, part of another device, or otherwise exclusively held.
	ErrBusy = errors.New("device is in use")

	// ErrNotDevice is returned when what is to be opened is neither a block device nor a regular file.
	ErrNotDevice = errors.New("not a block device or regular file")

	// ErrTooSmall is returned when a device does not hold a single physical block.
	ErrTooSmall = errors.New("device is too small")
)

// Op is a kind of request.
type Op uint8

// The kinds of request. OpAny stands for all of them in a [Fault].
const (
	OpAny Op = iota
	OpRead
	OpWrite
	OpZero
	opCount
)

func (op Op) String() string {
	switch op {
	case OpAny:
		return "any"
	case OpRead:
		return "read"
	case OpWrite:
		return "write"
	case OpZero:
		return "zero"
	}
	return fmt.Sprintf("op %d", uint8(op))
}

// requestError says what was being done to what: "write 4096 bytes at 8192 of /dev/sdb: input/output error".
func requestError(op Op, n, off int64, path string, err error) error {
	return fmt.Errorf("%v %d bytes at %d of %s: %w", op, n, off, path, err)
}

// checkRange refuses a request that no device with this geometry could serve.
func (i *Info) checkRange(op Op, n, off int64) error {
	block := int64(i.LogicalBlock)
	switch {
	case n <= 0 || n%block != 0 || off%block != 0:
		return requestError(op, n, off, i.Path, fmt.Errorf("%w, which are %d bytes", ErrAlignment, block))
	case off < 0 || n > i.Size || off > i.Size-n:
		return requestError(op, n, off, i.Path, fmt.Errorf("%w of %d bytes", ErrRange, i.Size))
	case op != OpRead && i.ReadOnly:
		return requestError(op, n, off, i.Path, ErrReadOnly)
	}
	return nil
}

// check is checkRange for a request with a buffer.
func (i *Info) check(op Op, p []byte, off int64) error {
	if err := i.checkRange(op, int64(len(p)), off); err != nil {
		return err
	}
	if align := min(i.LogicalBlock, pageSize); reflect.ValueOf(&p[0]).Pointer()%uintptr(align) != 0 {
		return requestError(op, int64(len(p)), off, i.Path,
			fmt.Errorf("buffer %w: use one of blockdev.Alloc", ErrAlignment))
	}
	return nil
}
