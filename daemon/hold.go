package daemon

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// tenure is one hold of the lock on the disk, which may serve several local
// clients: readers together, writers one after the other.
type tenure struct {
	lk     *lock
	mode   layout.Mode
	before uint64 // clients that came before the claim
	grants int    // made so far; each gets the next token of the ticket
	row    int    // since it was last seen that nobody else wants the lock
	closed bool   // somebody else wants it: no more grants
	used   bool   // made by a predecessor: nobody knows how many there were, so no more
	settle *time.Timer

	remover *waiter // it is the turn of this one, who is to remove the lock
}

// hold serves local clients from a ticket that was granted, then lets it go.
// No more are served from a ticket that is used.
func (lk *lock) hold(before uint64, used bool) error {
	lk.lookout = lookout{next: time.Now().Add(lookForRequests(lk.d.sb.Lease))}
	t := &tenure{lk: lk, mode: lk.m.Mode(), before: before, closed: used, used: used, settle: time.NewTimer(settleAfter)}
	lk.tenure = t
	defer func() { lk.tenure = nil; t.settle.Stop() }()
	for {
		granted, err := t.next()
		if err != nil {
			return err
		}
		if granted {
			continue
		}
		if t.remover != nil {
			if over, err := t.remove(); over || err != nil {
				return err
			}
			continue
		}
		if lk.holders() == 0 && !t.waitsForClient() {
			break
		}
		lk.passedOn() // who shared the lock with those who stay
		lk.refuseTries()
		lk.told(0)
		if err := t.wait(); err != nil {
			return err
		}
	}
	_, err := lk.protocol(lk.m.Release(), func() bool { return true })
	lk.letGo()
	return err
}

// next grants the lock to the client in front if it may have it from this ticket.
func (t *tenure) next() (bool, error) {
	lk := t.lk
	w, held := lk.front(), lk.holders()
	if w == nil || t.closed || w.req.absent() || w.req.Mode != t.mode || t.grants >= layout.MaxGrants {
		return false, nil
	}
	if held > 0 && t.mode != layout.Shared {
		return false, nil
	}
	// A reader that came after the claim may have come after a writer, whom it
	// must not overtake; a writer may, but only so often in a row.
	// Who removes the lock lets go first all who wait elsewhere.
	late := t.mode == layout.Shared && w.nth > t.before || w.req.remove
	if t.grants > 0 && (late || t.row >= lk.d.cfg.Handoff) {
		wanted, err := t.elsewhere()
		if err != nil || wanted {
			t.closed = wanted
			return false, err
		}
		t.row = 0
	}
	if w.req.remove {
		t.remover = w
		return false, nil
	}
	if ok, changed := lk.d.mem.mayGrant(); !ok {
		select { // until renewed, or lost
		case <-changed:
			return true, nil
		case <-lk.d.mem.lost:
			return false, ErrLost
		}
	}
	if lk.grant(w, lk.m.Token().Grant(t.grants)) {
		t.grants++
		t.row++
		t.settle.Reset(settleAfter)
		lk.passedOn() // from the one before
	}
	return true, nil
}

// waitsForClient tells whether the ticket is kept for a client that is yet to
// come back after a restart of bakeryd: it waits no longer than for that.
func (t *tenure) waitsForClient() bool {
	w := t.lk.front()
	return t.grants == 0 && !t.closed && w != nil && w.req.absent() && w.req.Mode == t.mode
}

// elsewhere tells whether another host wants the lock in a way that ours
// stands in the way of.
func (t *tenure) elsewhere() (bool, error) {
	views, err := t.lk.readAll()
	if err != nil {
		return false, err
	}
	t.lk.learn()
	exclusive, shared := t.lk.m.Others(views)
	return exclusive > 0 || shared > 0 && t.mode == layout.Exclusive, nil
}

// wait waits for a client to come or go, and shows a hold that lasts on the disk.
func (t *tenure) wait() error {
	lk := t.lk
	look, stop := lk.nextLook()
	defer stop()
	select {
	case <-lk.wake:
	case <-look:
		lk.look()
	case <-t.settle.C:
		_, err := lk.protocol(lk.m.Settle(), func() bool { return true })
		return err
	case todo := <-lk.tasks:
		return todo.run()
	case <-lk.d.mem.lost:
		return ErrLost
	}
	if lk.takeScrub() {
		return lk.rewrite()
	}
	return nil
}

// holders counts the clients inside.
func (lk *lock) holders() int {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	return len(lk.holds)
}

// passedOn lets go who released, if the lock still has somebody inside. Who
// came last may have released as well: then the disk has to have it first.
func (lk *lock) passedOn() {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if len(lk.holds) > 0 {
		lk.freed()
	}
}

// letGo tells those who released that others can have the lock.
func (lk *lock) letGo() {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	lk.freed()
}

func (lk *lock) freed() {
	for _, h := range lk.leaving {
		if s := h.req.session; s != nil {
			s.unkeep()
		}
		close(h.released)
	}
	lk.leaving = nil
}

// refuseTries ends the wait of those who would not wait.
func (lk *lock) refuseTries() {
	lk.mu.Lock()
	blocked := lk.blocked(layout.Exclusive)
	lk.mu.Unlock()
	if blocked {
		lk.refuse(ErrBusy, func(w *waiter) bool { return w.req.Try })
	}
}
