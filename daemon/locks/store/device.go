package store

import (
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/stall"
)

// A lease says that a host is live, not that its locks make progress. If only the sectors of one
// lock hang, other hosts would wait for a host that never leaves. Therefore IO of a lock that other
// hosts may wait for ends the lease after timing.Times.Stuck. Long before that, it delays the
// renewals, as a hanging renewal would. b is when the IO begins:
//
//	b            the IO begins
//	b + L/6      the last renewal is written, at the latest; later ones wait for the IO
//	b + 5/6 L    the lease is lost: holders are told to stop, unless they were already
//	b + 7/6 L    the last term is over, at the latest: holders are killed
//	b + 41/30 L  other hosts have seen the host record unchanged for L + margin, and continue
//
// A renewal that hangs from b on takes 6/5 L. Delaying a renewal is a slow write of it, which the
// lease tolerates.
//
// An own slot that stays unreadable after it was written counts as IO that does not succeed. Other
// hosts wait for it while this host is live. Therefore the host joins again only to leave, and then
// stays away during the pause of that lock, unless the slot becomes readable.
//
// IO that other hosts do not wait for does not count: reads while the own slot is certainly idle,
// and those for the scrub, the status, values and inspections, which are not part of a driver's
// work. A look for other hosts counts only while the driver waits for it. The lease itself reads the
// host table.

// Device is the device for the driver of a lock, and for work under the directory's lock.
// Disk.Stalls records the IO that other hosts may wait for.
type Device struct {
	blockdev.Device
	disk *Disk
	lock int
	name string
	// the own slot may show that this host takes part in the lock, or is unreadable
	part *atomic.Bool
}

func (d Device) io(at int64, since time.Duration) stall.IO {
	return stall.IO{Lock: d.lock, Name: d.name, Offset: at, Since: since}
}

// Read implements blockdev.Device.
func (d Device) Read(p []byte, off int64) error {
	if !d.part.Load() {
		return d.Device.Read(p, off)
	}
	defer d.disk.Stalls.End(d.disk.Stalls.Begin(d.io(off, d.disk.Clock.Now())))
	return d.Device.Read(p, off)
}

// All implements directory.Copies.
func (d Device) All() mirror.Positions { return d.Device.(directory.Copies).All() }

// ReadCopies implements directory.Copies. It counts as Read does.
func (d Device) ReadCopies(p []byte, off int64, need mirror.Positions, visit func(mirror.Copy)) error {
	if d.part.Load() {
		defer d.disk.Stalls.End(d.disk.Stalls.Begin(d.io(off, d.disk.Clock.Now())))
	}
	return d.Device.(directory.Copies).ReadCopies(p, off, need, visit)
}

// Write counts whatever the slot shows: until it returns, the sector may show anything.
func (d Device) Write(p []byte, off int64) error {
	defer d.disk.Stalls.End(d.disk.Stalls.Begin(d.io(off, d.disk.Clock.Now())))
	return d.Device.Write(p, off)
}

// Await records that the driver waits for IO at an offset that another goroutine has begun, until the
// caller calls done.
func (d Device) Await(at int64) (done func()) {
	number := d.disk.Stalls.Begin(d.io(at, d.disk.Clock.Now()))
	return func() { d.disk.Stalls.End(number) }
}

// Series is IO that is retried until it succeeds. From the first failure on, Disk.Stalls has it as one IO
// that began with the first try.
type Series struct {
	dev    Device
	at     int64
	began  time.Duration
	number uint64
}

// Series returns the IO at an offset.
func (d Device) Series(at int64) Series { return Series{dev: d, at: at} }

// Begin records the first try.
func (s *Series) Begin(now time.Duration) {
	if s.began == 0 {
		s.began = now
	}
}

// Failed records a failed try. A damaged record does not count: it is damaged for all hosts, so
// leaving would not help.
func (s *Series) Failed(err error) {
	if s.number == 0 && s.dev.part.Load() && !directory.Undecodable(err) {
		s.number = s.dev.disk.Stalls.Begin(s.dev.io(s.at, s.began))
	}
}

// End records the end of the tries.
func (s *Series) End() { s.dev.disk.Stalls.End(s.number) }

// device returns the device for the IO of a lock. part says whether other hosts may wait for it.
func (d *Disk) device(lock int, name string, part bool) Device {
	dev := Device{Device: d.Dev, disk: d, lock: lock, name: name, part: new(atomic.Bool)}
	dev.part.Store(part)
	return dev
}

// Awaited returns the device for IO of a lock that another host waits for. name may be empty.
func (d *Disk) Awaited(lock int, name string) Device { return d.device(lock, name, true) }
