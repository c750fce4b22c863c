// Package store is what the locks of a host have on the disk: it reads and writes slots and reads
// intents, and reports the IO that other hosts may wait for. It never knows the lock protocol, which
// decides what the own slot shows, or a client. Start reading at [Slots].
package store

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/layout"
)

// SlotTries is how often an unreadable slot is read, because it may be being written.
const SlotTries = 10

// Disk is the lockspace on its device, for the locks of one host.
type Disk struct {
	Dev        blockdev.Device
	SB         layout.Superblock
	Clock      clock.Clock
	Stalls     *stall.Watch      // IO that other hosts may wait for
	Quarantine *stall.Quarantine // locks with IO that made the lease end
}

// Several reports whether the lockspace is on several disks.
func (d *Disk) Several() bool { return d.SB.Members.Several() }

// Times returns the times of the lease.
func (d *Disk) Times() timing.Times { return timing.Of(d.SB) }

// Retry returns the pause after a failed IO.
func (d *Disk) Retry() time.Duration { return d.Times().LockRetry() }

// ReadSlots reads the slots of hosts 1..n in a lock, for the fields that the protocol does not need.
// The slot of host i is slots[i-1]; bad[i-1] is the error if it is unreadable.
func (d *Disk) ReadSlots(dev blockdev.Device, lock, n int) (slots []layout.Slot, bad []error, err error) {
	g := d.SB.Geometry
	buf := lockspace.Pool.Get(n * g.Stride)
	defer lockspace.Pool.Put(buf)
	if bad, err = lockspace.ReadRecords(dev, buf, g.Slot(lock, 1), g.Stride); err != nil {
		return nil, nil, fmt.Errorf("read the slots of %s: %w", lockName(lock), err)
	}
	slots = make([]layout.Slot, n)
	for i := range slots {
		if bad[i] == nil {
			slots[i], bad[i] = d.SB.Space().DecodeSlot(buf[i*g.Stride:(i+1)*g.Stride], lock, i+1)
		}
	}
	return slots, bad, nil
}

func (d *Disk) readSlot(dev blockdev.Device, lock, host int) (s layout.Slot, err error) {
	buf := lockspace.Pool.Get(d.SB.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	if err := dev.Read(buf, d.SB.Geometry.Slot(lock, host)); err != nil {
		return s, fmt.Errorf("read the slot of host %d in %s: %w", host, lockName(lock), err)
	}
	return d.SB.Space().DecodeSlot(buf, lock, host)
}

// Damaged reports whether an error is that of a damaged record: reading it again does not help.
func Damaged(err error) bool { return lockspace.IsBadSector(err) || directory.Undecodable(err) }

func lockName(lock int) string {
	if lock == lockspace.DirectoryLock {
		return "the directory's lock"
	}
	return fmt.Sprintf("lock %d", lock)
}

// View reads one slot as the protocol sees it. It returns an error only if that is not one of the
// slot's.
func (d *Disk) View(dev blockdev.Device, lock, host int) (bakery.View, error) {
	switch s, err := d.readSlot(dev, lock, host); {
	case err == nil:
		return bakery.View{Readable: true, Slot: protocolSlot(s)}, nil
	case Damaged(err):
		return bakery.View{}, nil
	default:
		return bakery.View{}, err
	}
}

// HostName returns the name of a host, for display; empty if its record is unreadable.
func (d *Disk) HostName(id int) string {
	if id == 0 {
		return ""
	}
	record, err := d.hostRecord(id)
	if err != nil {
		return ""
	}
	return record.Name
}

// HasLeft reports whether the record of a host id shows that its last incarnation left.
func (d *Disk) HasLeft(host int) bool {
	r, err := d.hostRecord(host)
	return err == nil && r.State == layout.StateLeft
}

func (d *Disk) hostRecord(id int) (layout.HostRecord, error) {
	buf := lockspace.Pool.Get(d.SB.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	if err := d.Dev.Read(buf, d.SB.Geometry.Host(id)); err != nil {
		return layout.HostRecord{}, err
	}
	return d.SB.Space().DecodeHost(buf, id)
}

// Quarantined returns the reason why this host does not use a lock for now, nil if it does.
func (d *Disk) Quarantined(lock int) error {
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
		v, err := d.View(d.Awaited(lock, ""), lock, host)
		if err == nil && v.Readable {
			continue
		}
		d.Quarantine.Start(now)
		left, why := d.Quarantine.Of(now, lock)
		return fmt.Errorf("this host stays away for another %v: its slot is still unreadable: %w", left.Round(time.Second), why)
	}
	return nil
}
