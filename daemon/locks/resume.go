package locks

import (
	"context"
	"errors"
	"slices"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// scanEntries returns all readable entries, including free ones and that of the directory's lock.
func (m *Manager) scanEntries() (map[int]layout.Entry, error) {
	entries := map[int]layout.Entry{lockspace.DirectoryLock: lockspace.DirectoryEntry}
	dev := m.disk.Awaited(lockspace.DirectoryLock, "") // the previous bakeryd may have left any slot in use
	err := m.untilLost("reading the lock directory failed, retrying", dev.Series(m.disk.SB.Geometry.Entry(1)), func() error {
		s, err := m.dir.On(dev).Scan()
		if err != nil {
			return err
		}
		for _, e := range s.Entries {
			entries[e.Lock] = e
		}
		return nil
	})
	return entries, err
}

// untilLost calls try until it succeeds or the lease is lost.
func (m *Manager) untilLost(message string, s store.Series, try func() error) error {
	defer s.End()
	for {
		s.Begin()
		err := try()
		if err == nil {
			return nil
		}
		s.Failed(err)
		m.host.Trouble(message, lockspace.DirectoryEntry, "err", err)
		if !m.host.Pause(m.disk.Retry()) {
			return api.ErrLeaseLost
		}
	}
}

// Resume gives every lock that a previous process left a driver. restore is called before, with
// each record of that lock, in the order of arrival.
func (m *Manager) Resume(records []handover.Session, restore func(*Lock, handover.Session)) error {
	byLock := map[int][]handover.Session{}
	for _, r := range records {
		byLock[r.Lock] = append(byLock[r.Lock], r)
	}
	entries, err := m.scanEntries()
	if err != nil {
		return err
	}
	for _, r := range records {
		if _, ok := entries[r.Lock]; !ok { // the entry is damaged
			entries[r.Lock] = layout.Entry{Lock: r.Lock, Name: r.Name, Creation: r.Creation, Permits: max(r.LockPermits, r.Permits, 1)}
		}
	}
	for _, e := range entries {
		if e.Free() && e.Lock != lockspace.DirectoryLock && len(byLock[e.Lock]) == 0 {
			continue
		}
		if err := m.resumeLock(e, byLock[e.Lock], restore); err != nil {
			return err
		}
	}
	return nil
}

// resumeLock starts a lock in the state in which the previous process left it, if it left any.
func (m *Manager) resumeLock(e layout.Entry, records []handover.Session, restore func(*Lock, handover.Session)) error {
	lk := driver.New(m.host, e)
	var v bakery.View
	tries := 0
	err := m.untilLost("reading an own slot failed, retrying", lk.Dev().Series(m.disk.SB.Geometry.Slot(e.Lock, m.mem.ID())), func() (err error) {
		v, err = lk.ReadOwn(&tries)
		return err
	})
	if err != nil {
		return err
	}
	if !lk.Resume(v, records) && len(records) == 0 {
		return nil
	}
	slices.SortFunc(records, func(a, b handover.Session) int { return int(int64(a.Nth - b.Nth)) })
	for _, r := range records {
		restore(lk, r)
	}
	m.mu.Lock()
	m.start(lk)
	m.mu.Unlock()
	return nil
}

// AwaitResumed blocks until a client that was restored in the queue is served or refused, or ctx
// ends.
func (m *Manager) AwaitResumed(ctx context.Context, h *Hold) (*Hold, error) {
	err := h.Await(ctx)
	if errors.Is(err, driver.ErrSuperseded) {
		return m.Acquire(ctx, h.Request)
	}
	m.host.ReportRefused(&h.Request, h.Lock().Queue, h.Queued(), err)
	if err != nil {
		return nil, err
	}
	return h, nil
}
