package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// resumeState is what the previous process left of one lock.
type resumeState struct {
	slot    bakery.Slot
	entered bool // the slot's ticket was granted to a client
	shared  bool // and a shared hold was recorded for it
	rewrite bool // the slot is unreadable: its contents are known from the grants
}

// takeUp continues from the state in which the previous process left the lock.
func (lk *Lock) takeUp() error {
	p := lk.past
	if p == nil {
		var v bakery.View
		tries := 0
		err := lk.persist("reading the own slot failed, retrying", lk.slots.At(lk.mgr.mem.ID()), func() (err error) {
			v, err = lk.ownSlot(&tries)
			return err
		})
		if err != nil || !v.Readable || v.Slot.Incarnation != lk.mgr.mem.Incarnation() || v.Slot.Phase == layout.Idle {
			return err
		}
		p = &resumeState{slot: v.Slot} // left by a previous process; restore could not read the entry
	}
	lk.past = nil
	a := lk.m.Resume(p.slot, p.entered)
	// A change of mode was in progress. Other hosts may hold the lock shared.
	if a.Kind == bakery.Granted && p.shared && lk.m.Mode() == layout.Exclusive {
		var err error
		if a, err = lk.protocol(lk.m.Downgrade(), always); err != nil {
			return err
		}
	}
	if p.rewrite {
		if err := lk.write(lk.m.OwnSlot()); err != nil {
			return err
		}
	}
	a, err := lk.protocol(a, func() bool {
		f := lk.q.Front()
		return f != nil && f.Request.Mode == p.slot.Mode && !f.Request.Try
	})
	if err != nil {
		return err
	}
	// A slot that shows a hold has granted it, whatever the handover file says.
	return lk.finishAcquire(a, 0, p.entered || p.slot.Phase == layout.Held)
}

// ownSlot reads the own slot. An unreadable slot is an error for the first slotTries: a rewrite
// destroys its contents, so a passing fault must not count as a loss.
func (lk *Lock) ownSlot(tries *int) (bakery.View, error) {
	v, err := lk.slots.ReadOne(lk.mgr.mem.ID())
	if *tries++; err == nil && !v.Readable && *tries < slotTries {
		err = fmt.Errorf("own slot in lock %d: %w", lk.Entry.Lock, api.ErrUnreadable)
	}
	return v, err
}

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
		m.observer.Trouble(message, lockspace.DirectoryEntry, "err", err)
		select {
		case <-time.After(m.disk.Retry()):
		case <-m.mem.Lost():
			return api.ErrLeaseLost
		}
	}
}

// judge returns the state of the own slot, nil if it is not in use. Only the handover file shows
// whether its ticket was granted: after the fast path a holder's slot shows choosing. A process
// that was removing the lock had no more holders by that ticket.
func (lk *Lock) judge(v bakery.View, incarnation uint64, records []handover.Session) *resumeState {
	if v.Readable {
		removal := v.Slot.Creation > lk.Entry.Creation
		if v.Slot.Incarnation != incarnation || v.Slot.Phase == layout.Idle && !removal {
			return nil
		}
		p := &resumeState{slot: v.Slot}
		for _, r := range records {
			entered := r.Ticket() == v.Slot.Ticket && !removal
			p.entered = p.entered || entered
			p.shared = p.shared || entered && r.State == handover.Granted && r.Mode == layout.Shared
		}
		return p
	}
	for _, r := range records {
		if r.State == handover.Granted && r.Creation == lk.Entry.Creation {
			return &resumeState{entered: true, rewrite: true, slot: bakery.Slot{
				Incarnation: incarnation, Creation: r.Creation, Ticket: r.Ticket(), Phase: layout.Held, Mode: r.Mode,
			}}
		}
	}
	return nil // repaired like any other
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
	lk := m.newLock(e)
	var v bakery.View
	tries := 0
	err := m.untilLost("reading an own slot failed, retrying", lk.slots.Dev.Series(lk.slots.At(lk.mgr.mem.ID())), func() (err error) {
		v, err = lk.ownSlot(&tries)
		return err
	})
	if err != nil {
		return err
	}
	p := lk.judge(v, m.mem.Incarnation(), records)
	if p == nil && len(records) == 0 {
		return nil
	}
	lk.past = p
	slices.SortFunc(records, func(a, b handover.Session) int { return int(int64(a.Nth - b.Nth)) })
	for _, r := range records {
		restore(lk, r)
	}
	m.mu.Lock()
	m.start(lk)
	m.mu.Unlock()
	return nil
}

// Resumes reports whether a record is of this lock, and whether the own slot shows its ticket as
// granted.
func (lk *Lock) Resumes(r handover.Session) (same, granted bool) {
	same = r.Creation == lk.Entry.Creation
	return same, same && lk.past != nil && lk.past.entered && r.Ticket() == lk.past.slot.Ticket
}

// Restore puts a client back where a record has it: in the queue, holding the lock, or releasing it.
func (lk *Lock) Restore(req Request, r handover.Session) *Hold {
	h := lk.newHold(req, nil)
	lk.q.Restore(&h.Item, r)
	return h
}

// AwaitResumed blocks until a client that was restored in the queue is served or refused, or ctx
// ends.
func (h *Hold) AwaitResumed(ctx context.Context) (*Hold, error) {
	err := h.await(ctx)
	if errors.Is(err, errSuperseded) {
		return h.lk.mgr.Acquire(ctx, h.Request)
	}
	h.lk.mgr.clients.ReportRefused(&h.Request, h.lk.q, h.Queued(), err)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Queue returns the clients of the lock.
func (lk *Lock) Queue() *queue.Queue { return lk.q }
