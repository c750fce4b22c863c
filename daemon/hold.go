package daemon

import (
	"errors"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
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

	unsettled bool           // a grant is not shown on the disk yet
	settleAt  time.Time      // when it is to be
	ending    *bakery.Action // what is left to be done to let go; nil: it is kept

	remover *waiter // it is the turn of this one, who is to remove the lock
}

// hold begins to serve local clients from a ticket that was granted. No more
// are served from a ticket that is used.
func (lk *lock) hold(before uint64, used bool) {
	lk.lookout = lookout{next: time.Now().Add(lookForRequests(lk.d.sb.Lease))}
	lk.tenure = &tenure{lk: lk, mode: lk.m.Mode(), before: before, closed: used, used: used}
	lk.tenure.settleSoon()
}

// settleSoon has the hold shown on the disk, if it lasts.
func (t *tenure) settleSoon() {
	t.unsettled, t.settleAt = true, time.Now().Add(settleAfter)
	t.lk.settling.Reset(settleAfter)
}

// occupy does what there is to do under the hold on the disk, and rests then.
func (lk *lock) occupy() error {
	t := lk.tenure
	if err := t.serve(); err != nil || lk.tenure != t {
		return err
	}
	if t.unsettled && !time.Now().Before(t.settleAt) {
		t.unsettled = false
		if _, err := lk.protocol(lk.m.Settle(), always); err != nil {
			return err
		}
	}
	if lk.takeScrub() {
		return lk.rewrite()
	}
	return lk.rest()
}

// serve grants the lock to the clients whose turn it is. The tenure ends when
// nobody of them is left.
func (t *tenure) serve() error {
	lk := t.lk
	for t.ending == nil {
		held := lk.holders()
		granted, err := t.next(held)
		if err != nil {
			return err
		}
		if granted {
			continue
		}
		if t.remover != nil {
			if lk.helped {
				t.remover = nil // who is in front may be another one when the driver looks
				return errLeft
			}
			over, err := t.remove()
			if over || err != nil {
				lk.tenure = nil
				return err
			}
			continue
		}
		// Not if the last one has let go since next looked: it wakes the driver, and the client in front has its turn.
		if held == 0 && !t.waitsForClient() {
			t.ending = new(lk.m.Release())
			break
		}
		lk.passedOn() // who shared the lock with those who stay
		lk.refuseTries()
		lk.tell(0)
		return nil
	}
	return t.end()
}

// end lets go of the lock on the disk.
func (t *tenure) end() error {
	lk := t.lk
	for t.ending.Kind != bakery.Done {
		a, err := lk.step(*t.ending, time.Time{}, always)
		if err != nil {
			if !errors.Is(err, errLeft) {
				lk.letGo()
			}
			return err
		}
		*t.ending = a
	}
	lk.tenure = nil
	lk.letGo()
	return nil
}

// next grants the lock to the client in front if it may have it from this ticket
// beside so many that hold it.
func (t *tenure) next(held int) (bool, error) {
	lk := t.lk
	w := lk.front()
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
		if lk.helped {
			return false, errLeft // it is for another client than the one whose goroutine this is
		}
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
		if lk.helped {
			return false, errLeft
		}
		select { // until renewed, or lost
		case <-changed:
			return true, nil
		case <-lk.d.mem.lost:
			return false, api.ErrLeaseLost
		}
	}
	if lk.grant(w, lk.m.Token().Grant(t.grants)) {
		t.grants++
		t.row++
		t.settleSoon()
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
	tries := func(w *waiter) bool { return w.req.Try }
	lk.mu.Lock()
	blocked := slices.ContainsFunc(lk.queue, tries) && lk.blocked(layout.Exclusive) // which asks the system
	lk.mu.Unlock()
	if blocked {
		lk.refuse(api.ErrBusy, tries)
	}
}
