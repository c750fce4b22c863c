package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// When a host dies, its write of the directory in flight may land at any time, over what other
// hosts have written there since. Therefore an intent precedes each write: see [layout.Intent].
// Intents are read and written under the directory's lock.

// carryOut writes the entry that this host intended and did not write. This must precede the next
// intent, because a slot has room for one.
func (m *Manager) carryOut(guard *Lock) error {
	i, found, err := guard.OwnIntent()
	if err != nil || !found {
		return err
	}
	if err := m.writeEntry(guard.Dev(), layout.Entry(i)); err != nil {
		return err
	}
	return guard.Intended()
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
	_, found, err := m.disk.Intent(m.disk.Dev, m.mem.ID())
	if err == nil && !found {
		return true
	}
	err = m.guarded(context.Background(), "take back an intent", func(*Lock) error { return nil })
	if err != nil && !errors.Is(err, api.ErrUnavailable) && !errors.Is(err, api.ErrStuck) {
		m.host.Observer.Trouble("carrying out a directory intent failed, retrying", lockspace.DirectoryEntry, "err", err)
	}
	return err == nil
}

// intents returns the intents of the other hosts. A host with an unreadable intent may be about to
// write any entry, so no lock can be created unless that host is gone: see [membership.Member.Gone].
func (m *Manager) intents(dev blockdev.Device) ([]layout.Intent, error) {
	n := m.SlotCount()
	for try := 1; ; try++ {
		found, bad, err := m.disk.Intents(dev, n, m.mem.ID())
		if err == nil && (try == store.SlotTries || m.stayLost(bad)) {
			if err = m.lostIntents(bad); err == nil || try == store.SlotTries {
				return found, err
			}
		}
		for host := range bad {
			m.mem.HeldUp(layout.Complaint{Host: host, Lock: lockspace.DirectoryLock}, false)
		}
		if try == store.SlotTries {
			return nil, err
		}
		if !m.host.Pause(m.disk.Retry()) {
			return nil, fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
		}
	}
}

// stayLost reports whether all these intents were unreadable the last time, too, after store.SlotTries
// reads, and their hosts gone.
func (m *Manager) stayLost(bad map[int]error) bool {
	for host := range bad {
		if m.lost[host] == nil {
			return false
		}
	}
	return true
}

// lostIntents returns an error if a host with an unreadable intent may still write into the
// directory.
func (m *Manager) lostIntents(bad map[int]error) error {
	m.lost = nil
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
	m.lost = bad
	return nil
}
