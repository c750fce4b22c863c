// Package lockspace finds and reads a lockspace on a device without joining it: superblock, host table, directory, slots.
// It knows the format (package layout) and bad sectors, and never writes.
package lockspace

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

var (
	// ErrNoLockspace is returned when a device holds no lockspace that this program can use.
	ErrNoLockspace = errors.New("no lockspace")

	// ErrInterrupted is returned, beside ErrNoLockspace, when formatting was interrupted: the lockspace that was
	// there is gone, and the new one is not there yet.
	ErrInterrupted = errors.New("formatting was interrupted")

	// ErrStride is returned when records a stride apart would share blocks of the device.
	ErrStride = errors.New("stride does not fit the device")

	// ErrDeviceSize is returned when a device is too small for a lockspace.
	ErrDeviceSize = errors.New("device is too small")
)

// OpenLockspace opens the device at path and finds the lockspace on it. copyUsed is 1 if the superblock at byte 0
// is damaged and its copy had to be used, which is worth a warning: only [Repair] and formatting write it again.
//
// It returns ErrNoLockspace (beside it the errors of [layout.FindSuperblock] or ErrInterrupted), ErrStride,
// ErrDeviceSize, or the errors of [blockdev.Open] and of reading.
func OpenLockspace(path string, readOnly bool) (dev blockdev.Device, sb layout.Superblock, copyUsed int, err error) {
	disk, err := blockdev.Open(path, blockdev.Options{ReadOnly: readOnly})
	if err != nil {
		return nil, layout.Superblock{}, 0, err
	}
	sb, copyUsed, err = FindLockspace(disk)
	if err != nil {
		return nil, layout.Superblock{}, 0, errors.Join(err, disk.Close())
	}
	return disk, sb, copyUsed, nil
}

// FindLockspace is OpenLockspace for a device that is open.
func FindLockspace(dev blockdev.Device) (sb layout.Superblock, copyUsed int, err error) {
	info := dev.Info()
	head, err := ReadHead(dev)
	if err != nil {
		return sb, 0, fmt.Errorf("read superblock: %w", err)
	}
	sb, copyUsed, err = layout.FindSuperblock(head)
	if err != nil {
		if old, ok := FindMark(head); ok {
			return layout.Superblock{}, 0, fmt.Errorf("%w on %s: %w over lockspace %s",
				ErrNoLockspace, info.Path, ErrInterrupted, DescribeSuperblock(old))
		}
		return layout.Superblock{}, 0, fmt.Errorf("%w on %s: %w", ErrNoLockspace, info.Path, err)
	}
	// A stride below the physical block is for formatting to refuse: moved to another disk, a lockspace must
	// still be readable.
	if sb.Geometry.Stride < info.LogicalBlock {
		return layout.Superblock{}, 0, fmt.Errorf("lockspace on %s: %w: it has a stride of %d bytes, the device blocks of %d",
			info.Path, ErrStride, sb.Geometry.Stride, info.LogicalBlock)
	}
	if need := sb.Geometry.Size(); info.Size < need {
		return layout.Superblock{}, 0, fmt.Errorf("lockspace on %s: %w: it needs %v, the device has %v",
			info.Path, ErrDeviceSize, text.Bytes(need), text.Bytes(info.Size))
	}
	return sb, copyUsed, nil
}

// ReadHead reads as much of the beginning of a device as can hold a superblock or its copy. A bad sector there
// reads as bytes that are no record, so that it hides nothing but itself. Of a device of which nothing can be read, as
// when no path to it is left, it returns the error: that is no device without a lockspace.
func ReadHead(dev blockdev.Device) ([]byte, error) {
	block := BlockSize(dev)
	p := Pool.Get(int(min(layout.HeadSize, dev.Info().Size)))
	defer Pool.Put(p)
	err := dev.Read(p, 0)
	if err != nil && !IsBadSector(err) {
		return nil, err
	}
	readable := err == nil
	for at := 0; err != nil && at < len(p); at += block {
		switch sectorErr := dev.Read(p[at:at+block], int64(at)); {
		case sectorErr == nil:
			readable = true
		case IsBadSector(sectorErr):
			copy(p[at:], bytes.Repeat([]byte{0xff}, block))
		default:
			return nil, sectorErr
		}
	}
	if !readable {
		return nil, err
	}
	return bytes.Clone(p), nil
}

// BlockSize is the least that can be read or written of a device.
func BlockSize(dev blockdev.Device) int { return max(layout.RecordSize, dev.Info().LogicalBlock) }

// DescribeSuperblock names a lockspace in a message.
func DescribeSuperblock(sb layout.Superblock) string {
	if sb.Name == "" {
		return sb.UUID.String()
	}
	return fmt.Sprintf("%q (%v)", sb.Name, sb.UUID)
}

// FindMark returns the superblock of the lockspace that was being formatted over.
func FindMark(head []byte) (old layout.Superblock, ok bool) {
	old, err := layout.DecodeSuperblock(head, 1)
	return old, err == nil
}
