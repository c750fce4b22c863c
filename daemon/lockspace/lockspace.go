// Package lockspace finds and reads a lockspace on one disk or several without joining it: superblock,
// host table, directory, slots. It knows the format (package layout) and bad sectors, and never writes.
// Start reading at Inspect.
package lockspace

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// The size and the lease of a lockspace that is formatted without options.
const (
	DefaultHosts = 64
	DefaultLocks = 256
	DefaultLease = 30 * time.Second
)

// The internal lock guards the directory and has no entry on the disk.
const (
	DirectoryLock     = 0 // its number
	DirectoryCreation = 1 // its creation id
)

// DirectoryEntry is the entry that the internal lock would have.
var DirectoryEntry = layout.Entry{Lock: DirectoryLock, Permits: 1, Creation: DirectoryCreation}

var (
	// ErrNoLockspace is returned when a device holds no lockspace that this program can use.
	ErrNoLockspace = errors.New("no lockspace")

	// ErrInterrupted is returned with ErrNoLockspace when formatting was interrupted: the old
	// lockspace is gone, and the new one is not complete.
	ErrInterrupted = errors.New("formatting was interrupted")

	// ErrStride is returned when the stride is smaller than a block of the device, so that
	// records share blocks.
	ErrStride = errors.New("stride does not fit the device")

	// ErrDeviceSize is returned when a device is too small for a lockspace.
	ErrDeviceSize = errors.New("device is too small")

	// ErrDisks is returned when the disks given are not those of one lockspace, or no majority of
	// them. The text has what was found on each, and what to do.
	ErrDisks = errors.New("wrong disks")

	// ErrMajority is the ErrDisks that is returned when enough disks are given, and too few of them can be read.
	ErrMajority error = disksError("no majority of the member disks")

	// ErrSilent is the ErrDisks that is returned when no disk answers.
	ErrSilent error = disksError("no member disk answers")

	// ErrNoAnswer is the error of a disk that does not answer in time.
	ErrNoAnswer = errors.New("no answer")
)

type disksError string

func (e disksError) Error() string { return string(e) }

func (disksError) Is(target error) bool { return target == ErrDisks }

// FindLockspace finds the lockspace on a device that is open, as OpenDisks does. It refuses a single
// disk of several. On a set of them, or a device over one, it returns the newest superblock.
func FindLockspace(dev blockdev.Device) (sb layout.Superblock, copyUsed int, err error) {
	sb, copyUsed, err = FindSuperblock(dev)
	if err != nil || !sb.Members.Several() {
		return sb, copyUsed, err
	}
	if info := dev.Info(); info.Members == 0 {
		return layout.Superblock{}, 0, fmt.Errorf("%w; %s is member %d", tooFew(sb), info.Path, sb.Position)
	}
	sb.Position = sb.Members.First() // that of any member was read
	return sb, copyUsed, nil
}

// FindSuperblock does what FindLockspace does, also on a single disk of several.
func FindSuperblock(dev blockdev.Device) (sb layout.Superblock, copyUsed int, err error) {
	info := dev.Info()
	head, err := ReadHead(dev)
	if err != nil {
		return sb, 0, fmt.Errorf("read superblock: %w", err)
	}
	sb, copyUsed, err = layout.FindSuperblock(head)
	if err != nil {
		if old, ok := FindFormatMark(head); ok {
			return layout.Superblock{}, 0, fmt.Errorf("%w on %s: %w over lockspace %s",
				ErrNoLockspace, info.Path, ErrInterrupted, DescribeSuperblock(old))
		}
		return layout.Superblock{}, 0, fmt.Errorf("%w on %s: %w", ErrNoLockspace, info.Path, err)
	}
	// Only formatting refuses a stride below the physical block: a lockspace that was moved to
	// another disk must stay readable.
	if sb.Geometry.Stride < info.LogicalBlock {
		return layout.Superblock{}, 0, fmt.Errorf("lockspace on %s: %w: stride %d bytes, logical block %d bytes",
			info.Path, ErrStride, sb.Geometry.Stride, info.LogicalBlock)
	}
	if need := sb.Geometry.Size(); info.Size < need {
		return layout.Superblock{}, 0, fmt.Errorf("lockspace on %s: %w: it needs %v, the device has %v",
			info.Path, ErrDeviceSize, text.Bytes(need), text.Bytes(info.Size))
	}
	// A change of the list of member disks may have been interrupted between the two.
	if at := sb.Geometry.Stride; sb.Members.Several() && len(head) >= at+layout.RecordSize {
		if other, err := layout.DecodeSuperblock(head[at:], 1); err == nil && SameSuperblock(other, sb) && other.Members.Epoch > sb.Members.Epoch &&
			other.Members.Has(sb.Position, diskOf(sb)) {
			sb.Members = other.Members
		}
	}
	return sb, copyUsed, nil
}

// ReadHead returns the beginning of a device, as far as a superblock or its copy can lie there. A
// bad sector reads as bytes 0xff, which are no record, so that it hides nothing but itself. If no
// sector can be read, as when no path to the device is left, ReadHead returns the error: such a
// device may hold a lockspace.
func ReadHead(dev blockdev.Device) ([]byte, error) {
	block := BlockSize(dev)
	p := Pool.Get(int(min(layout.HeadSize, dev.Info().Size)))
	defer Pool.Put(p)
	errs, err := ReadRecords(dev, p, 0, block)
	if err != nil {
		return nil, err
	}
	for i, sectorErr := range errs {
		if sectorErr != nil {
			copy(p[i*block:], bytes.Repeat([]byte{0xff}, block))
		}
	}
	return bytes.Clone(p), nil
}

// BlockSize returns the size of the smallest read or write of a device, in bytes.
func BlockSize(dev blockdev.Device) int { return max(layout.RecordSize, dev.Info().LogicalBlock) }

// DescribeSuperblock returns the name and uuid of a lockspace for a message.
func DescribeSuperblock(sb layout.Superblock) string {
	if sb.Name == "" {
		return sb.UUID.String()
	}
	return fmt.Sprintf("%q (%v)", sb.Name, sb.UUID)
}

// FindFormatMark returns the superblock of the old lockspace if head begins with the mark of an
// interrupted format.
func FindFormatMark(head []byte) (old layout.Superblock, ok bool) {
	old, err := layout.DecodeSuperblock(head, 1)
	return old, err == nil
}
