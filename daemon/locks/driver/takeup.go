package driver

import (
	"errors"
	"fmt"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
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
		v, err := lk.readOwn(lk.persist)
		if err != nil || !v.Readable || v.Slot.Incarnation != lk.host.Member.Incarnation() || v.Slot.Phase == layout.Idle {
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
	a, err := lk.protocol(a, lk.wants(p.slot.Mode, false))
	if err != nil {
		return err
	}
	// A slot that shows a hold has granted it, whatever the handover file says.
	return lk.finishAcquire(a, 0, p.entered || p.slot.Phase == layout.Held)
}

// readOwn reads the own slot. An unreadable slot is an error for the first store.SlotTries: a rewrite
// destroys its contents, so a passing fault must not count as a loss.
func (lk *Lock) readOwn(persist func(message string, at int64, try func() error) error) (v bakery.View, err error) {
	tries := 0
	err = persist("reading the own slot failed, retrying", lk.slots.At(lk.host.ID), func() (err error) {
		v, err = lk.slots.ReadOne(lk.host.ID)
		if tries++; err == nil && !v.Readable && tries < store.SlotTries {
			err = fmt.Errorf("own slot in lock %d: %w", lk.Entry.Lock, api.ErrUnreadable)
		}
		return err
	})
	return v, err
}

// Complete completes the write of the own slot that the previous process noted (NOTE-FIRST). It is called
// before anything is read of the slot: a read may return what the write replaces, or what it wrote,
// and both prove nothing. It does nothing once the lease is lost.
func (lk *Lock) Complete(note []byte) error {
	err := lk.persist("completing a write of a slot failed, retrying", lk.slots.At(lk.host.ID), func() error { return lk.slots.Complete(note) })
	if errors.Is(err, api.ErrLeaseLost) {
		return nil // the drivers end the sessions
	}
	return err
}

// Resume makes the driver continue from its own slot and from what the previous process recorded. It
// reports whether that process left the lock in use. It is called before Drive, and blocks until the
// slot is read (see Read).
func (lk *Lock) Resume(records []handover.Session) (bool, error) {
	own, err := lk.readOwn(lk.Read)
	if err == nil {
		lk.past = lk.judge(own, lk.host.Member.Incarnation(), records)
	}
	return lk.past != nil, err
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

// Resumes reports whether a record is of this lock, and whether the own slot shows its ticket as
// granted.
func (lk *Lock) Resumes(r handover.Session) (same, granted bool) {
	same = r.Creation == lk.Entry.Creation
	return same, same && lk.past != nil && lk.past.entered && r.Ticket() == lk.past.slot.Ticket
}

// Restore puts a client back where a record has it: in the queue, holding the lock, or releasing it.
func (lk *Lock) Restore(req queue.Request, r handover.Session) *Hold {
	h := lk.NewHold(req, false)
	lk.Queue.Restore(&h.Item, r)
	return h
}
