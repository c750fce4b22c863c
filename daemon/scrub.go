package daemon

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// A slot that cannot be read is in everybody's way, and only its owner may write it; a directory entry, only who knows
// it. An idle host does not read its own slots for that: who is held up complains in its host record (package lease,
// complain.go), and whom it concerns looks there. What this host holds or waits for it looks at by itself, now and
// then, and at all of its slots once, a while after it has joined: they may have gone bad while nobody was there.

// scanInstead is how many directory entries are read one by one, rather than all of the directory.
const scanInstead = 32

// keepSlots looks at own slots and directory entries when there is a reason to.
func (d *Daemon) keepSlots() {
	first := time.NewTimer(d.sb.Lease / 2)
	defer first.Stop()
	looked := d.clock.Now()
	for {
		select {
		case <-first.C:
			if !d.scrub() {
				first.Reset(d.sb.Lease / 2)
			}
		case all := <-d.mem.complaints:
			d.heed(all)
		case <-d.mem.renewals:
			if now := d.clock.Now(); now-looked >= d.sb.Lease/2 {
				looked = now
				d.lookAtBusy()
			}
		case <-d.stop:
			return
		case <-d.mem.lost:
			return
		}
	}
}

// scrub looks at the own slot in every lock, and has it rewritten if it has gone bad. Slots of removed locks count too. It
// tells whether that was all: what a bakeryd before this one has left where the entry is damaged is let go once somebody
// has restored that.
func (d *Daemon) scrub() (all bool) {
	s, err := d.dir.scan()
	if err != nil {
		d.log.Warn("reading the lock directory failed, retrying", "err", err)
		return false
	}
	for _, e := range append(s.entries, lockspace.DirectoryEntry) {
		if d.stopping() {
			break
		}
		if !e.Blank() {
			d.scrubOne(e, false)
		}
	}
	d.mendEntries(s.bad)
	left := slices.DeleteFunc(s.bad, func(number int) bool { return !d.leftIn(number) })
	d.complainOfEntries(left, true)
	return len(left) == 0
}

// leftIn tells whether this host takes part in a lock that it does not know of.
func (d *Daemon) leftIn(lock int) bool {
	d.mu.Lock()
	known := d.locks[lock] != nil
	d.mu.Unlock()
	if known {
		return false
	}
	v, err := d.ownSlotIn(d.dev, lock)
	return err == nil && v.Readable && v.Slot.Incarnation == d.mem.incarnation() && v.Slot.Phase != layout.Idle
}

func (d *Daemon) ownSlotIn(dev blockdev.Device, lock int) (bakery.View, error) {
	return newArea(dev, d.sb.Space(), lock, d.mem.id()).readOne(d.mem.id())
}

// heed looks at what others cannot read. What they say costs a read or two for each complaint, and no more.
func (d *Daemon) heed(complaints []layout.Complaint) {
	var entries []int
	for _, c := range complaints {
		switch {
		case c.Host == 0:
			entries = append(entries, c.Lock)
			continue
		case c.Lock == lockspace.DirectoryLock:
			d.scrubOne(lockspace.DirectoryEntry, true)
		default:
			d.scrubNumber(c.Lock)
		}
		d.refill(c.Lock)
	}
	d.mendEntries(d.damagedAmong(entries))
}

// scrubNumber looks at the own slot in a lock of which only the number is known.
func (d *Daemon) scrubNumber(lock int) {
	d.mu.Lock()
	lk := d.locks[lock]
	d.mu.Unlock()
	if lk != nil {
		lk.lookAtBlocking()
		return
	}
	if e, err := d.dir.read(lock); err == nil && !e.Blank() {
		d.scrubOne(e, true)
	}
}

// refill writes the own slot if it is all zeroes where nothing is wanted of the lock. Somebody is held up by it, so it was
// seen written: it was zeroed since, and does not count as idle for who knows that (area.view).
func (d *Daemon) refill(number int) {
	v, err := d.ownSlotIn(d.awaited(number, ""), number)
	if err != nil || !v.Readable || v.Slot != (bakery.Slot{}) {
		return
	}
	d.mu.Lock()
	lk := d.locks[number]
	d.mu.Unlock()
	if lk == nil {
		e := lockspace.DirectoryEntry
		if number != lockspace.DirectoryLock {
			if e, err = d.dir.read(number); err != nil || e.Blank() {
				return
			}
		}
		if lk, err = d.attachTo(e, true); err != nil {
			return
		}
	}
	d.drivers.Go(func() {
		_ = lk.do(func() error {
			if lk.m.Attached() && lk.m.OwnSlot().Phase != layout.Idle {
				return nil // others may have passed by that: see intact
			}
			return lk.publish(func(*layout.Slot) {})
		})
	})
}

// scrubOne has the driver of a lock look at the own slot; a lock that is not in use gets one only if the slot is bad.
// blocking says that the slot blocks another host. Only then a lock in quarantine is looked at, and a read that fails or
// hangs counts as stuck: that host would wait for the whole pause.
func (d *Daemon) scrubOne(e layout.Entry, blocking bool) {
	dev := d.dev
	if blocking {
		dev = d.awaited(e.Lock, e.Name)
	} else if d.quarantined(e.Lock) != nil {
		return
	}
	d.mu.Lock()
	lk := d.locks[e.Lock]
	d.mu.Unlock()
	if lk == nil {
		v, err := d.ownSlotIn(dev, e.Lock)
		if err != nil && !blocking || v.Readable && (v.Slot.Incarnation != d.mem.incarnation() || v.Slot.Phase == layout.Idle) {
			return
		}
		if e.Lock != lockspace.DirectoryLock { // it may have been removed since
			if e, err = d.dir.read(e.Lock); err != nil {
				return
			}
		}
		if lk, err = d.attachTo(e, blocking); err != nil {
			return
		}
	}
	if blocking {
		lk.lookAtBlocking()
	} else {
		lk.lookAtOwn()
	}
}

// lookAtBlocking has the driver look at the own slot, for which another host waits until it was read.
func (lk *lock) lookAtBlocking() {
	lk.area.part.Store(true)
	lk.lookAtOwn()
}

// lookAtOwn has the driver look at the own slot.
func (lk *lock) lookAtOwn() {
	lk.mu.Lock()
	lk.scrub = true
	lk.signal()
	lk.mu.Unlock()
}

// lookAtBusy looks at the own slots and the entries of the locks that this host holds or waits for. Who holds a lock
// is the last who is certain to know its entry. The others give back memory.
func (d *Daemon) lookAtBusy() {
	var busy []*lock
	d.mu.Lock()
	for _, lk := range d.locks {
		lk.mu.Lock()
		if len(lk.queue)+len(lk.holds) > 0 {
			busy = append(busy, lk)
		} else if lk.used && len(lk.leaving) == 0 {
			lk.spare = true
			lk.signal()
		}
		lk.mu.Unlock()
	}
	d.mu.Unlock()
	var entries []int
	for _, lk := range busy {
		lk.lookAtOwn()
		if lk.entry != lockspace.DirectoryEntry {
			entries = append(entries, lk.entry.Lock)
		}
	}
	d.mendEntries(d.damagedAmong(entries))
}

// damagedAmong returns those of some locks whose entries this host may know and cannot read.
func (d *Daemon) damagedAmong(numbers []int) (damaged []int) {
	if len(numbers) > scanInstead {
		s, err := d.dir.scan()
		if err != nil {
			return nil
		}
		return s.bad
	}
	for _, number := range numbers {
		if d.knownEntry(number) == nil {
			continue
		}
		if _, err := d.dir.read(number); lockspace.IsBadSector(err) || undecodable(err) {
			damaged = append(damaged, number)
		}
	}
	return damaged
}

// knownEntry returns the lock of a number that this host has used, and whose entry it knows for that; else nil.
func (d *Daemon) knownEntry(number int) *lock {
	d.mu.Lock()
	defer d.mu.Unlock()
	if lk := d.locks[number]; lk != nil && lk.entry.Name != "" {
		return lk
	}
	return nil
}

// complain tells the owner of a slot that somebody here is held up by it; of host 0, the owners of all.
func (lk *lock) complain(host int) {
	for i, v := range lk.area.views {
		if !v.Readable && i+1 != lk.area.host && (host == 0 || host == i+1) {
			lk.d.mem.heldUp(layout.Complaint{Host: i + 1, Lock: lk.entry.Lock}, false)
		}
	}
}

// complainOfEntries tells whoever knows these entries that somebody here is held up by them; certain if nobody can be
// writing them. Of very many it names others each time. Whoever knows them may be this host.
func (d *Daemon) complainOfEntries(numbers []int, certain bool) {
	if len(numbers) == 0 {
		return
	}
	if certain {
		d.mendEntries(numbers)
	}
	first := rand.IntN(len(numbers))
	for i := range min(len(numbers), 4*layout.MaxComplaints) {
		d.mem.heldUp(layout.Complaint{Lock: numbers[(first+i)%len(numbers)]}, certain)
	}
}
