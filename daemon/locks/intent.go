package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// When a host dies, its write of the directory in flight may land at any time, over what other
// hosts have written there since. Therefore an intent precedes each write: see [layout.Intent].
// Intents are read and written under the directory's lock.

// intend makes an intent durable. From here on the other hosts know which write may land.
func (lk *Lock) intend(e layout.Entry) error {
	return lk.do(func() error {
		lk.slots.own.Value, lk.intends = layout.Intent(e).Value(), true
		_, err := lk.protocol(lk.m.Settle(), func() bool { return true })
		return err
	})
}

// intended removes the intent. The release makes that durable.
func (lk *Lock) intended() error {
	return lk.do(func() error {
		lk.slots.own.Value, lk.intends = nil, false
		return nil
	})
}

// ownIntent returns an intent that this incarnation did not carry out: a failed write of the entry
// may still land. An intent of an earlier process to clear an entry does not count: that process
// has no write in flight, and its removal was taken back (restore.go) unless it was complete.
func (lk *Lock) ownIntent() (i layout.Intent, found bool, err error) {
	err = lk.do(func() error {
		own := &lk.slots.own
		if len(own.Value) == 0 {
			return nil
		}
		i, err = lk.mgr.disk.SB.Space().DecodeIntent(own.Value)
		if err == nil && layout.Entry(i).Free() && !lk.intends {
			own.Value = nil
			return nil
		}
		found = err == nil
		return err
	})
	return i, found, err
}

// carryOut writes the entry that this host intended and did not write. This must precede the next
// intent, because a slot has room for one.
func (m *Manager) carryOut(guard *Lock) error {
	i, found, err := guard.ownIntent()
	if err != nil || !found {
		return err
	}
	if err := m.writeEntry(guard.dev, layout.Entry(i)); err != nil {
		return err
	}
	return guard.intended()
}

// keepIntents removes the intents that earlier bakeryds of this host or this one left. Other hosts
// respect an intent while the slot shows it.
func (m *Manager) keepIntents() {
	for {
		again := m.stayed
		var retry <-chan time.Time
		if !m.takeBackIntent() {
			again, retry = nil, time.After(m.disk.SB.Lease/2)
		}
		select {
		case <-again:
		case <-retry:
		case <-m.stop:
			return
		case <-m.mem.Lost():
			return
		}
	}
}

// takeBackIntent carries out an intent that was left. It reports whether none is left.
func (m *Manager) takeBackIntent() bool {
	_, found, err := m.intentOf(m.disk.Dev, m.mem.ID())
	if err == nil && !found {
		return true
	}
	err = m.guarded(context.Background(), "take back an intent", m.carryOut)
	if err != nil && !errors.Is(err, api.ErrUnavailable) && !errors.Is(err, api.ErrStuck) {
		m.observer.Trouble("carrying out a directory intent failed, retrying", lockspace.DirectoryEntry, "err", err)
	}
	return err == nil
}

// intentOf reads the intent of one host.
func (m *Manager) intentOf(dev blockdev.Device, host int) (i layout.Intent, found bool, err error) {
	g, space := m.disk.SB.Geometry, m.disk.SB.Space()
	buf := lockspace.Pool.Get(g.Stride)
	defer lockspace.Pool.Put(buf)
	if err := dev.Read(buf, g.Slot(lockspace.DirectoryLock, host)); err != nil {
		return i, false, fmt.Errorf("read the slot of host %d in the directory's lock: %w", host, err)
	}
	s, err := space.DecodeSlot(buf, lockspace.DirectoryLock, host)
	if err != nil || len(s.Value) == 0 {
		return i, false, err
	}
	i, err = space.DecodeIntent(s.Value)
	return i, err == nil, err
}

// intents returns the intents of the other hosts. A host with an unreadable intent may be about to
// write any entry, so no lock can be created unless that host is gone: see [member.gone].
func (m *Manager) intents(dev blockdev.Device) ([]layout.Intent, error) {
	g := m.disk.SB.Geometry
	n := max(m.mem.Highest(), m.mem.ID())
	buf := lockspace.Pool.Get(n * g.Stride)
	defer lockspace.Pool.Put(buf)
	for try := 1; ; try++ {
		found, bad, err := m.readIntents(dev, buf)
		if err == nil && (len(bad) == 0 || try == slotTries || m.stayLost(bad)) {
			if err = m.lostIntents(bad); err == nil || try == slotTries {
				return found, err
			}
		}
		for host := range bad {
			m.mem.HeldUp(layout.Complaint{Host: host, Lock: lockspace.DirectoryLock}, false)
		}
		if try == slotTries {
			return nil, err
		}
		select {
		case <-time.After(m.disk.retry()):
		case <-m.mem.Lost():
			return nil, fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
		}
	}
}

// readIntents returns in bad, by host id, why an intent cannot be read.
func (m *Manager) readIntents(dev blockdev.Device, buf []byte) (found []layout.Intent, bad map[int]error, err error) {
	g, space := m.disk.SB.Geometry, m.disk.SB.Space()
	errs, err := lockspace.ReadRecords(dev, buf, g.Slot(lockspace.DirectoryLock, 1), g.Stride)
	if err != nil {
		return nil, nil, fmt.Errorf("read the slots of the directory's lock: %w", err)
	}
	bad = map[int]error{}
	for i := range errs {
		host := i + 1
		if host == m.mem.ID() {
			continue
		}
		var s layout.Slot
		err := errs[i]
		if err == nil {
			s, err = space.DecodeSlot(buf[i*g.Stride:(i+1)*g.Stride], lockspace.DirectoryLock, host)
		}
		if err != nil {
			bad[host] = err
			continue
		}
		if len(s.Value) == 0 {
			continue
		}
		intent, err := space.DecodeIntent(s.Value)
		if err != nil {
			bad[host] = err
			continue
		}
		found = append(found, intent)
	}
	return found, bad, nil
}

// stayLost reports whether all these intents were unreadable the last time, too, after slotTries
// reads, and their hosts gone.
func (m *Manager) stayLost(bad map[int]error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for host := range bad {
		if m.lost[host] == nil {
			return false
		}
	}
	return true
}

// lostIntents returns an error if a host with an unreadable intent may still write into the
// directory.
func (m *Manager) lostIntents(bad map[int]error) (err error) {
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.lost = bad; err != nil {
			m.lost = nil
		}
	}()
	for host, unreadable := range bad {
		gone, err := m.mem.Gone(host, unreadable)
		if err != nil {
			return err
		}
		if !gone {
			return fmt.Errorf("%w: host %d has an unreadable directory intent; no lock can be created until bakeryd is started there: %w",
				api.ErrDamaged, host, unreadable)
		}
	}
	return nil
}
