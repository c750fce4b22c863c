package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/layout"
)

// When a host dies, its write of the directory in flight may land at any time, over what other
// hosts have written there since. Therefore an intent precedes each write: see [layout.Intent].
// Intents are read and written under the directory's lock.

// carryOut writes the entry that this host intended and did not write. This must precede the next
// intent, because a slot has room for one.
func (m *Manager) carryOut(guard *Lock) error {
	if m.kept.Load() != 0 {
		if err := m.returned(0); err != nil {
			return err
		}
		return m.intended(guard)
	}
	i, former, found, err := guard.OwnIntent()
	switch {
	case err != nil || !found:
		return err
	case m.disk.Several():
		return m.resolve(guard, i, former)
	}
	if err := m.writeEntry(guard.Dev(), layout.Entry(i)); err != nil {
		return err
	}
	return guard.Intended()
}

// resolve makes the entry of an intent settled. An intent of this incarnation is carried out (CARRIED).
// One that an earlier incarnation left is not, because another host may have written the place before
// that intent landed: the entry is rewritten as its newest copy shows it (RESOLVE), unless the intent is
// of such a rewriting, and of a later version (BINDING).
func (m *Manager) resolve(guard *Lock, i layout.Intent, former bool) error {
	e := layout.Entry(i)
	if former {
		now, err := m.dir.On(guard.Dev()).ReadVersion(i.Lock)
		switch {
		case m.repairs && err != nil && !errors.Is(err, directory.ErrUnsettled) && store.Damaged(err):
			return m.flying(i.Lock, 0) // else the repair writes that entry
		case store.Damaged(err) && !errors.Is(err, directory.ErrUnsettled):
			return fmt.Errorf("%w: this host has an intent of an earlier bakeryd: %w", api.ErrDamaged, err)
		case err != nil && !errors.Is(err, directory.ErrUnsettled):
			return err
		case cmp.Or(cmp.Compare(i.Token, now.Token), cmp.Compare(i.Sequence, now.Sequence)) <= 0:
			// Blank cannot be written. No host has used the intended creation id if no copy shows it.
			if e = now; e.Blank() {
				e.Creation = i.Creation
			}
		}
	}
	return m.put(guard, e, true)
}

// awaitCarriedOut blocks until no intent of this host is of the lock's entry. An earlier process may have
// half written what its removal intended: the entry shows whether it took effect only after that is
// carried out (CARRIED).
func (m *Manager) awaitCarriedOut(lk *Lock) error {
	id := m.mem.ID()
	for {
		found, bad, err := m.disk.Intents(lk.Dev(), id, id)
		switch {
		case err == nil && len(bad) == 0 && !slices.ContainsFunc(found[id], func(i layout.Intent) bool { return i.Lock == lk.Entry.Lock }):
			return nil
		case m.host.Stopping():
			return queue.ErrStopped
		case !m.host.Pause(m.disk.Retry()):
			return api.ErrLeaseLost
		}
	}
}

// returned returns ErrInFlight if a copy of the entry whose intent was kept is in flight after a wait, also
// of an earlier term: RETURNED. Then this host writes no entry. It does not wait longer: a member may
// hang for minutes.
func (m *Manager) returned(most time.Duration) error {
	if lock := int(m.kept.Load()); lock != 0 {
		return m.flying(lock, most)
	}
	return nil
}

// flying returns ErrInFlight if a copy of an entry is in flight after a wait.
func (m *Manager) flying(lock int, most time.Duration) error {
	g := m.disk.SB.Geometry
	flying := m.disk.Dev.(interface {
		Finish(off, n int64, most time.Duration) mirror.Positions
	}).Finish(g.Entry(lock), int64(g.Stride), most)
	if flying != 0 {
		return fmt.Errorf("%w: entry of lock %d", api.ErrInFlight, lock)
	}
	return nil
}

// awaitReturned is returned for a client that waits, at most for a lease.
func (m *Manager) awaitReturned(ctx context.Context) error {
	until := m.disk.Clock.Now() + m.disk.SB.Lease
	for {
		err := m.returned(m.disk.Times().Budget())
		if err == nil || ctx.Err() != nil || m.host.Stopping() || m.disk.Clock.Now() >= until || !m.host.Pause(m.disk.Times().Poll()) {
			return err
		}
	}
}

// intended removes the intent. The release makes that durable.
func (m *Manager) intended(guard *Lock) error {
	m.kept.Store(0)
	return guard.Intended()
}

// forward rewrites unsettled entries as their newest copies show them, under the directory's lock, and
// reads the directory again: FORWARD. It does nothing if there are none.
func (m *Manager) forward(guard *Lock, s *directory.Scan) (*directory.Scan, error) {
	if len(s.Unsettled) == 0 {
		return s, nil
	}
	intents, err := m.intents(guard.Dev())
	if err != nil {
		return nil, err
	}
	for _, e := range s.Unsettled {
		if slices.ContainsFunc(intents, func(i layout.Intent) bool { return i.Lock == e.Lock && layout.Entry(i) != e }) { // CONFLICT
			return nil, fmt.Errorf("%w: the directory entry of lock %d is half written, and another host intends another entry there; start bakeryd on that host",
				api.ErrUnavailable, e.Lock)
		}
		m.host.Observer.Trouble("directory entry is half written, rewriting it as its newest copy", e)
		if err := m.put(guard, e, false); err != nil {
			return nil, err
		}
	}
	return m.dir.On(guard.Dev()).Scan()
}

// forwardAll is forward for a host that does not hold the directory's lock.
func (m *Manager) forwardAll(ctx context.Context) error {
	return m.guarded(ctx, "settle the directory", m.settle)
}

// settle is forward for all entries.
func (m *Manager) settle(guard *Lock) error {
	s, err := m.dir.On(guard.Dev()).Scan()
	if err == nil {
		_, err = m.forward(guard, s)
	}
	return err
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

// checkIntent has keepIntents check the own slot: an intent may have stayed.
func (m *Manager) checkIntent() {
	select {
	case m.stayed <- struct{}{}:
	default:
	}
}

// takeBackIntent carries out an intent that was left. It reports whether none is left.
func (m *Manager) takeBackIntent() bool {
	id := m.mem.ID()
	found, bad, err := m.disk.Intents(m.disk.Dev, id, id)
	if err == nil && len(found)+len(bad) == 0 {
		return true
	}
	err = m.guarded(context.Background(), "take back an intent", func(*Lock) error { return nil })
	if err != nil && !errors.Is(err, api.ErrUnavailable) && !errors.Is(err, api.ErrInFlight) && !errors.Is(err, api.ErrStuck) {
		m.host.Observer.Trouble("carrying out a directory intent failed, retrying", lockspace.DirectoryEntry, "err", err)
	}
	return err == nil
}

// intents returns the intents of the other hosts: see [Manager.intentsOf].
func (m *Manager) intents(dev blockdev.Device) ([]layout.Intent, error) {
	of, err := m.intentsOf(dev)
	return slices.Concat(slices.Collect(maps.Values(of))...), err
}

// intentsOf returns the intents of the other hosts, by host. A host with an unreadable intent may be about to
// write any entry, so no lock can be created unless that host is gone: see [membership.Member.Gone].
func (m *Manager) intentsOf(dev blockdev.Device) (map[int][]layout.Intent, error) {
	n := m.SlotCount()
	for try := 1; ; try++ {
		found, bad, err := m.disk.Intents(dev, 1, n)
		delete(found, m.mem.ID())
		delete(bad, m.mem.ID())
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
		// With several disks an entry may be half written, which no read of it excludes.
		gone, err := false, error(nil)
		if !m.disk.Several() {
			gone, err = m.mem.Gone(host, unreadable)
		}
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
