package format

import (
	"context"
	"fmt"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Occupancy is what is on a device.
type Occupancy struct {
	What       string             // in words; empty: nothing
	Lockspace  *layout.Superblock // nil: there is no usable one
	CopyUsed   int                // 1 if its superblock at byte 0 is damaged
	FormatGets int                // the stride that format would take, 0: the device has none that fits
	Fits       string             // what would fit on it
	Room       bool               // whether anything would
}

// Occupied finds out what is on a device, as formatting it does, and what could be. It only reads. It returns the
// errors of reading, ErrForeignVersion, or the cause of ctx's end.
func Occupied(ctx context.Context, dev blockdev.Device) (Occupancy, error) {
	o := Occupancy{}
	info := dev.Info()
	if stride, err := chooseStride(info, 0); err == nil {
		o.FormatGets = stride
		g := layout.Geometry{Stride: stride, Hosts: lockspace.DefaultHosts, Locks: lockspace.DefaultLocks}
		o.Room, o.Fits = true, fmt.Sprintf("a lockspace of %d hosts and %d locks fits", g.Hosts, g.Locks)
		if g.Size() > info.Size {
			o.Fits = fitting(g, info.Size)
			o.Room = layout.Geometry{Stride: stride, Hosts: 1, Locks: 1}.Size() <= info.Size
		}
	}
	if sb, copyUsed, err := lockspace.FindLockspace(dev); err == nil {
		o.Lockspace, o.CopyUsed = &sb, copyUsed
		o.What = "lockspace " + lockspace.DescribeSuperblock(sb)
		return o, nil
	}
	found, err := newSurveyor(dev).survey(ctx)
	if err != nil {
		return o, err
	}
	if found.kind != deviceVacant {
		o.What = found.what
	}
	return o, nil
}

// newSurveyor looks at as much of a device as a lockspace that is formatted without more would take.
func newSurveyor(dev blockdev.Device) *formatter {
	info := dev.Info()
	area := info.Size
	if stride, err := chooseStride(info, 0); err == nil {
		area = min(area, layout.Geometry{Stride: stride, Hosts: lockspace.DefaultHosts, Locks: lockspace.DefaultLocks}.Size())
	}
	return &formatter{dev: dev, area: area}
}
