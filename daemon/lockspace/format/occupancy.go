package format

import (
	"context"
	"fmt"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Occupancy describes the contents of a device and the lockspace that would fit on it.
type Occupancy struct {
	What      string             // contents in words, "" if the device is empty
	Lockspace *layout.Superblock // nil if there is no usable one
	CopyUsed  int                // 1 if the superblock at byte 0 is damaged
	Stride    int                // stride that format would choose, 0 if none fits the device
	Fits      string             // size of the lockspace that would fit, in words
	HasRoom   bool               // whether any lockspace fits
}

// ReadOccupancy returns the contents of a device, as formatting finds them. It never writes. It
// returns the errors of reading, ErrForeignVersion, or the cause of ctx's end.
func ReadOccupancy(ctx context.Context, dev blockdev.Device) (Occupancy, error) {
	o := Occupancy{}
	info := dev.Info()
	if stride, err := chooseStride(info, 0); err == nil {
		g := defaultGeometry(stride)
		o.Stride, o.HasRoom, o.Fits = stride, true, fmt.Sprintf("a lockspace of %d hosts and %d locks fits", g.Hosts, g.Locks)
		if g.Size() > info.Size {
			o.Fits = fitting(g, info.Size)
			o.HasRoom = layout.Geometry{Stride: stride, Hosts: 1, Locks: 1}.Size() <= info.Size
		}
	}
	if sb, copyUsed, err := lockspace.FindLockspace(dev); err == nil {
		o.Lockspace, o.CopyUsed = &sb, copyUsed
		o.What = "lockspace " + lockspace.DescribeSuperblock(sb)
		return o, nil
	}
	found, err := surveyorOf(dev).survey(ctx)
	if err != nil {
		return o, err
	}
	if found.kind != deviceVacant {
		o.What = found.what
	}
	return o, nil
}

// surveyorOf returns a formatter that surveys as much of a device as a lockspace of the default
// size needs.
func surveyorOf(dev blockdev.Device) *formatter {
	info := dev.Info()
	area := info.Size
	if stride, err := chooseStride(info, 0); err == nil {
		area = min(area, defaultGeometry(stride).Size())
	}
	return &formatter{dev: dev, area: area}
}

func defaultGeometry(stride int) layout.Geometry {
	return layout.Geometry{Stride: stride, Hosts: lockspace.DefaultHosts, Locks: lockspace.DefaultLocks}
}
