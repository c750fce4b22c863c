package locks

import (
	"context"
	"errors"
	"slices"

	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Resume gives every lock that a previous process left a driver. restore is called before, with
// each record of that lock, in the order of arrival.
func (m *Manager) Resume(records []handover.Session, restore func(*Lock, handover.Session)) error {
	guard := driver.New(m.host, lockspace.DirectoryEntry)
	entries := map[int]layout.Entry{lockspace.DirectoryLock: lockspace.DirectoryEntry} // and the readable ones, also if free
	err := guard.Read("reading the lock directory failed, retrying", m.disk.SB.Geometry.Entry(1), func() error {
		s, err := m.dir.On(guard.Dev()).Scan()
		if err != nil {
			return err
		}
		for _, e := range s.Entries {
			entries[e.Lock] = e
		}
		return nil
	})
	if err != nil {
		return err
	}
	byLock := map[int][]handover.Session{}
	for _, r := range records {
		byLock[r.Lock] = append(byLock[r.Lock], r)
		if _, ok := entries[r.Lock]; !ok { // the entry is damaged
			entries[r.Lock] = layout.Entry{Lock: r.Lock, Name: r.Name, Creation: r.Creation, Permits: max(r.LockPermits, r.Permits, 1)}
		}
	}
	for lock, note := range m.host.Notes.Left() { // also of a lock whose entry is free or damaged
		e := entries[lock]
		e.Lock = lock
		if err := driver.New(m.host, e).Complete(note); err != nil {
			return err
		}
	}
	for _, e := range entries {
		lk := guard
		if e.Lock != lockspace.DirectoryLock {
			if e.Free() && len(byLock[e.Lock]) == 0 {
				continue
			}
			lk = driver.New(m.host, e)
		}
		if err := m.resumeLock(lk, byLock[e.Lock], restore); err != nil {
			return err
		}
	}
	return nil
}

// resumeLock starts a lock in the state in which the previous process left it, if it left any.
func (m *Manager) resumeLock(lk *Lock, records []handover.Session, restore func(*Lock, handover.Session)) error {
	used, err := lk.Resume(records)
	if err != nil || !used && len(records) == 0 {
		return err
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
