package daemon

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// maxUnderWay is the limit of concurrent requests of locks to the device. Each request occupies a
// thread, and the number of threads of a process is limited. On a hung device, every lock that a
// client waits for would occupy one more. No disk needs more requests either. A request that waits
// for its turn is like one on a slow device: the lease handles it.
const maxUnderWay = 256

// purposeDevice is a device for one purpose. It meters the requests, without the time that they
// wait for their turn.
type purposeDevice struct {
	blockdev.Device
	io    *tally.IO
	turns chan struct{} // has room for the requests under way; nil if these are not limited
	// refused is called for each write that the device refuses because of a reservation: another host may
	// have fenced this one, or one path may have no registration. nil: none
	refused func(error)
}

func (d purposeDevice) Read(p []byte, off int64) error {
	return d.request(d.Device.Read, &d.io.Reads, p, off)
}

func (d purposeDevice) Write(p []byte, off int64) error {
	return d.request(d.Device.Write, &d.io.Writes, p, off)
}

func (d purposeDevice) request(do func([]byte, int64) error, of *tally.Requests, p []byte, off int64) error {
	if d.turns != nil {
		d.turns <- struct{}{}
		defer func() { <-d.turns }()
	}
	began := time.Now()
	err := do(p, off)
	of.Add(time.Since(began), err)
	if of == &d.io.Writes && d.refused != nil && errors.Is(err, unix.EBADE) {
		d.refused(err)
	}
	return err
}

// memberSet is the device of a lockspace on several disks: see [lockspace.Disks].
type memberSet interface {
	membership.Set
	All() mirror.Positions
}

// purposeSet is purposeDevice for a lockspace on several disks.
type purposeSet struct {
	memberSet
	by purposeDevice
}

func (s purposeSet) Read(p []byte, off int64) error { return s.by.Read(p, off) }

func (s purposeSet) Write(p []byte, off int64) error { return s.by.Write(p, off) }

func (s purposeSet) ReadCopies(p []byte, off int64, need mirror.Positions, visit func(mirror.Copy)) error {
	return s.by.request(func(p []byte, off int64) error { return s.memberSet.ReadCopies(p, off, need, visit) }, &s.by.io.Reads, p, off)
}

func (s purposeSet) WriteCount(p []byte, off int64) (acked mirror.Positions, err error) {
	err = s.by.request(func(p []byte, off int64) (err error) {
		acked, err = s.memberSet.WriteCount(p, off)
		return err
	}, &s.by.io.Writes, p, off)
	return acked, err
}

// forPurpose returns a device for one purpose.
func forPurpose(dev blockdev.Device, io *tally.IO, turns chan struct{}, refused func(error)) blockdev.Device {
	by := purposeDevice{dev, io, turns, refused}
	if set, several := dev.(memberSet); several {
		return purposeSet{set, by}
	}
	return by
}

// Devices are the same device for each purpose.
type Devices struct{ Opened, Lease, Locks, Report blockdev.Device }

// DevicesOn returns them. refused is called for each write of the lease and of locks that is refused
// because of a reservation; nil: none.
func DevicesOn(dev blockdev.Device, t *tally.Tally, refused func(error)) Devices {
	turns := make(chan struct{}, maxUnderWay)
	return Devices{Opened: dev, Lease: forPurpose(dev, &t.IO[tally.Lease], nil, refused), Locks: forPurpose(dev, &t.IO[tally.Lock], turns, refused),
		Report: forPurpose(dev, &t.IO[tally.Report], turns, nil)}
}
