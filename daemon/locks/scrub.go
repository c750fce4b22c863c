package locks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// An unreadable slot blocks all hosts, and only its owner may rewrite it: the slot may show a hold,
// or a last ticket that no other host has seen. A directory entry is rewritten by a host that knows it. An idle host does not read its own slots for that. Instead a blocked host
// complains in its host record (package lease/complaints), and the host concerned checks that
// slot. A host checks what it holds or waits for by itself, every half lease. It checks all of its
// slots once, half a lease after it has joined, because they may have become unreadable while it
// was away.

// scanInstead is the number of directory entries above which the whole directory is read instead.
const scanInstead = 32

// keepSlots checks own slots and directory entries when there is a reason to.
func (m *Manager) keepSlots() {
	first := time.NewTimer(m.disk.SB.Lease / 2)
	defer first.Stop()
	looked := m.disk.Clock.Now()
	for {
		select {
		case <-first.C:
			if !m.scrub() {
				first.Reset(m.disk.SB.Lease / 2)
			}
		case all := <-m.mem.Complaints():
			m.handleComplaints(all)
		case <-m.mem.Renewals():
			if now := m.disk.Clock.Now(); now-looked >= m.disk.SB.Lease/2 {
				looked = now
				m.lookAtBusy()
			}
		case <-m.stop:
			return
		case <-m.mem.Lost():
			return
		}
	}
}

// scrub checks the own slot in every lock, also in removed ones, and has it rewritten if it is
// unreadable. It reports whether that was all. Where the entry is damaged, a slot that an earlier
// bakeryd of this host left is released once a host has restored the entry.
func (m *Manager) scrub() (all bool) {
	s, err := m.dir.Scan()
	if err != nil {
		m.host.Observer.Trouble("reading the lock directory failed, retrying", lockspace.DirectoryEntry, "err", err)
		return false
	}
	for _, e := range append(s.Entries, lockspace.DirectoryEntry) {
		if m.host.Stopping() {
			break
		}
		if !e.Blank() {
			m.scrubOne(e, false)
		}
	}
	m.restoreEntries(s.Bad)
	left := slices.DeleteFunc(s.Bad, func(number int) bool { return !m.leftIn(number) })
	m.complainOfEntries(left, true)
	return len(left) == 0
}

// leftIn reports whether this host takes part in a lock that is not in Manager.locks.
func (m *Manager) leftIn(lock int) bool {
	if m.attached(lock) != nil {
		return false
	}
	v, err := m.disk.View(m.disk.Dev, lock, m.mem.ID())
	return err == nil && v.Readable && v.Slot.Incarnation == m.mem.Incarnation() && v.Slot.Phase != layout.Idle
}

// handleComplaints checks the records that other hosts complain of. Each complaint costs a read or two, and no
// more.
func (m *Manager) handleComplaints(complaints []layout.Complaint) {
	var entries []int
	for _, c := range complaints {
		if c.Host == 0 {
			entries = append(entries, c.Lock)
			continue
		}
		if e, err := m.entryOf(c.Lock); err == nil {
			m.scrubOne(e, true)
		}
		m.repairSlot(c.Lock)
		if c.Lock == lockspace.DirectoryLock && m.disk.Several() {
			m.checkIntent() // the slot may be unsettled: EARLIER
		}
	}
	m.restoreEntries(m.damagedAmong(entries))
}

// entryOf returns the entry of a lock of which only the number is known. It returns an error if the
// lock was never created.
func (m *Manager) entryOf(lock int) (layout.Entry, error) {
	if lock == lockspace.DirectoryLock {
		return lockspace.DirectoryEntry, nil
	}
	if lk := m.attached(lock); lk != nil {
		return lk.Entry, nil
	}
	e, err := m.dir.Read(lock)
	if err == nil && e.Blank() {
		err = fmt.Errorf("%w: number %d", api.ErrNoLock, lock)
	}
	return e, err
}

// repairSlot writes the own slot if it is all zeroes while no client uses the lock. Another host
// complained of it, so it was seen written and was zeroed since. A host that knows that does not
// take it for idle (store.Slots). With several disks it writes that of the directory's lock in any case: the
// other host may miss one of the disks that have it.
func (m *Manager) repairSlot(lock int) {
	v, err := m.disk.View(m.disk.Awaited(lock, ""), lock, m.mem.ID())
	unsettled := lock == lockspace.DirectoryLock && m.disk.Several()
	if err != nil || !v.Readable || v.Slot != (bakery.Slot{}) && !unsettled {
		return
	}
	if lk, err := m.attachNumber(lock, true); err == nil {
		m.drivers.Go(lk.RewriteIdle)
	}
}

// attachNumber is attachTo for a lock of which only the number is known.
func (m *Manager) attachNumber(lock int, repair bool) (*Lock, error) {
	e, err := m.entryOf(lock)
	if err != nil {
		return nil, err
	}
	return m.attachTo(e, repair)
}

// scrubOne has the driver of a lock check the own slot. A lock that is not in use gets a driver
// only if the slot is bad. blocking says that the slot blocks another host. Only then it checks a
// lock in quarantine, and a read that fails or hangs counts as stuck: that host would wait for the
// whole pause.
func (m *Manager) scrubOne(e layout.Entry, blocking bool) {
	dev := m.disk.Dev
	if blocking {
		dev = m.disk.Awaited(e.Lock, e.Name)
	} else if m.disk.Quarantined(e.Lock) != nil {
		return
	}
	lk := m.attached(e.Lock)
	if lk == nil {
		v, err := m.disk.View(dev, e.Lock, m.mem.ID())
		if err != nil && !blocking || v.Readable && (v.Slot.Incarnation != m.mem.Incarnation() || v.Slot.Phase == layout.Idle) {
			return
		}
		if lk, err = m.attachNumber(e.Lock, blocking); err != nil { // the lock may have been removed since
			return
		}
	}
	lk.CheckOwn(blocking)
}

// lookAtBusy checks the own slots and the entries of the locks that this host holds or waits for. A
// host that holds a lock is the last that knows its entry for certain. The memory of idle locks is
// freed.
func (m *Manager) lookAtBusy() {
	var entries []int
	for _, lk := range m.all() {
		if lk.Queue.MarkIdle() {
			continue
		}
		lk.CheckOwn(false)
		if lk.Entry != lockspace.DirectoryEntry {
			entries = append(entries, lk.Entry.Lock)
		}
	}
	m.restoreEntries(m.damagedAmong(entries))
}

// damagedAmong returns the numbers of the locks with unreadable entries that this host may know.
func (m *Manager) damagedAmong(numbers []int) (damaged []int) {
	if len(numbers) > scanInstead {
		s, err := m.dir.Scan()
		if err != nil {
			return nil
		}
		return s.Bad
	}
	for _, number := range numbers {
		if m.knownEntry(number) == nil {
			continue
		}
		if _, err := m.dir.Read(number); store.Damaged(err) {
			damaged = append(damaged, number)
		}
	}
	return damaged
}

// knownEntry returns the lock of a number if this host has used it and therefore knows its entry;
// else nil.
func (m *Manager) knownEntry(number int) *Lock {
	if lk := m.attached(number); lk != nil && lk.Entry.Name != "" {
		return lk
	}
	return nil
}

// complainOfEntries requests repair of these entries from the hosts that know them, this one
// included. certain means that no host can be writing them. If there are very many, each call names
// others.
func (m *Manager) complainOfEntries(numbers []int, certain bool) {
	if len(numbers) == 0 {
		return
	}
	if certain {
		m.restoreEntries(numbers)
	}
	first := rand.IntN(len(numbers))
	for i := range min(len(numbers), 4*layout.MaxComplaints) {
		m.mem.HeldUp(layout.Complaint{Lock: numbers[(first+i)%len(numbers)]}, certain)
	}
}
