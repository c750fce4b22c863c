package locks

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/layout"
)

// A lease says that a host is live, not that its locks make progress. If only the sectors of one
// lock hang, other hosts would wait for a host that never leaves. Therefore IO of a lock that other
// hosts may wait for ends the lease after lease.Times.Stuck. Long before that, it delays the
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
// work. The lease itself reads the host table.

// lockDevice is the device for the driver of a lock, and for work under the directory's lock. watch
// records the IO that other hosts may wait for.
type lockDevice struct {
	blockdev.Device
	watch *stall.Watch
	clock clock.Clock
	lock  int
	name  string
	part  *atomic.Bool // the own slot may show that this host takes part
}

func (d lockDevice) io(at int64, since time.Duration) stall.IO {
	return stall.IO{Lock: d.lock, Name: d.name, Offset: at, Since: since}
}

func (d lockDevice) Read(p []byte, off int64) error {
	if !d.part.Load() {
		return d.Device.Read(p, off)
	}
	defer d.watch.End(d.watch.Begin(d.io(off, d.clock.Now())))
	return d.Device.Read(p, off)
}

// Write counts whatever the slot shows: until it returns, the sector may show anything.
func (d lockDevice) Write(p []byte, off int64) error {
	defer d.watch.End(d.watch.Begin(d.io(off, d.clock.Now())))
	return d.Device.Write(p, off)
}

// series is IO that is retried until it succeeds. From the first failure on, watch has it as one IO
// that began with the first try.
type series struct {
	dev    lockDevice
	at     int64
	began  time.Duration
	number uint64
}

func (d lockDevice) series(at int64) series { return series{dev: d, at: at} }

// begin records the first try.
func (s *series) begin() {
	if s.began == 0 {
		s.began = s.dev.clock.Now()
	}
}

// failed records a failed try. A damaged record does not count: it is damaged for all hosts, so
// leaving would not help.
func (s *series) failed(err error) {
	if s.number == 0 && s.dev.part.Load() && !directory.Undecodable(err) {
		s.number = s.dev.watch.Begin(s.dev.io(s.at, s.began))
	}
}

func (s *series) end() { s.dev.watch.End(s.number) }

// quarantined returns the reason why this host does not use a lock for now, nil if it does.
func (d *Disk) quarantined(lock int) error {
	left, why := d.Quarantine.Of(d.Clock.Now(), lock)
	if why == nil {
		return nil
	}
	return fmt.Errorf("not used by this host for another %v, because it made the lease end: %w", left.Round(time.Second), why)
}

// StayAway returns the reason why the host must not be live for now: its slot in a lock in
// quarantine is unreadable. All other hosts would wait for that slot. Once this host has left, the
// slot counts as idle.
func (d *Disk) StayAway(host int) error {
	now := d.Clock.Now()
	for _, lock := range d.Quarantine.Locks(now) {
		v, err := newSlotStore(d.awaited(lock, ""), d.SB.Space(), lock, host).readOne(host)
		if err == nil && v.Readable {
			continue
		}
		d.Quarantine.Start(now)
		left, why := d.Quarantine.Of(now, lock)
		return fmt.Errorf("this host stays away for another %v: its slot is still unreadable: %w", left.Round(time.Second), why)
	}
	return nil
}

// HasLeft reports whether the record of a host id shows that its last incarnation left.
func (d *Disk) HasLeft(host int) bool {
	r, err := d.hostRecord(host)
	return err == nil && r.State == layout.StateLeft
}

// awaited returns the device for IO of a lock that another host waits for. name may be empty.
func (d *Disk) awaited(lock int, name string) blockdev.Device {
	part := new(atomic.Bool)
	part.Store(true)
	return lockDevice{Device: d.Dev, watch: d.Stalls, clock: d.Clock, lock: lock, name: name, part: part}
}
