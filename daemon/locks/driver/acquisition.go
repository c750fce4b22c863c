package driver

import (
	"errors"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/layout"
)

// acquisition is one hold of the lock on the disk. It serves one or more local clients: readers
// together, writers one after the other.
type acquisition struct {
	lk     *Lock
	mode   layout.Mode
	before uint64 // number of clients that had arrived before the claim
	grants int    // number of grants so far; each gets the next token of the ticket
	row    int    // grants since another host was last seen not to request the lock
	closed bool   // another host requests the lock, so no more grants are made
	// begun by a previous bakeryd: the number of its grants is not known, so no more are made
	used bool

	settleAt time.Time      // when a grant must be shown on the disk; zero if it is
	ending   *bakery.Action // next action of the release; nil while the lock is kept
	remover  *queue.Item    // the client in front, if it is to remove the lock
}

// hold begins to serve local clients from a granted ticket. If the ticket is used, no more clients
// are granted it.
func (lk *Lock) hold(before uint64, used bool) {
	lk.requestWatch = requestWatch{next: time.Now().Add(LookForRequests(lk.host.Disk.SB.Lease))}
	lk.acquisition = &acquisition{lk: lk, mode: lk.m.Mode(), before: before, closed: used, used: used}
	lk.acquisition.settleSoon()
}

// settleSoon schedules the write that shows the hold on the disk, if it lasts for SettleAfter.
func (t *acquisition) settleSoon() {
	t.settleAt = time.Now().Add(SettleAfter)
	t.lk.publishTimer.Reset(SettleAfter)
}

// serveHold serves the clients of the hold on the disk, executes what is due, and rests.
func (lk *Lock) serveHold() error {
	t := lk.acquisition
	if err := t.serve(); err != nil || lk.acquisition != t {
		return err
	}
	if !t.settleAt.IsZero() && !time.Now().Before(t.settleAt) {
		t.settleAt = time.Time{}
		if _, err := lk.protocol(lk.m.Settle(), always); err != nil {
			return err
		}
	}
	if lk.scrub.Swap(false) {
		return lk.rewrite()
	}
	return lk.idle()
}

// serve grants the lock to the clients that are next. It ends the acquisition when none of them is left.
func (t *acquisition) serve() error {
	lk := t.lk
	for t.ending == nil {
		held := lk.Queue.Holders()
		granted, err := t.next(held)
		if err != nil {
			return err
		}
		if granted {
			continue
		}
		if t.remover != nil {
			if lk.inline {
				t.remover = nil // the driver may find another client in front
				return errLeft
			}
			over, err := t.remove()
			if over || err != nil {
				lk.acquisition = nil
				return err
			}
			continue
		}
		// The acquisition does not end if the last holder has released since held was counted. That
		// release wakes the driver, which then serves the client in front.
		if held == 0 && !t.waitsForClient() {
			t.ending = new(lk.m.Release())
			break
		}
		lk.Queue.CompleteReleases() // those that shared the lock with the remaining holders
		lk.Queue.RefuseTries()
		lk.Queue.Tell(0)
		return nil
	}
	return t.end()
}

// end releases the lock on the disk.
func (t *acquisition) end() error {
	lk := t.lk
	var err error
	if *t.ending, err = lk.protocolSince(time.Time{}, *t.ending, always); errors.Is(err, errLeft) {
		return err
	}
	if err == nil {
		lk.acquisition = nil
	}
	lk.Queue.ReleasesDone()
	return err
}

// next grants the lock to the client in front if this ticket permits it while held clients hold the
// lock.
func (t *acquisition) next(held int) (bool, error) {
	lk := t.lk
	w := lk.Queue.Front()
	if w == nil || t.closed || w.Absent() || w.Request.Mode != t.mode || t.grants >= layout.MaxGrants ||
		held > 0 && t.mode != layout.Shared {
		return false, nil
	}
	// A reader that came after the claim may have come after a writer of another host, which it
	// must not overtake. A writer may overtake it, but at most Handoff times in a row. A client
	// that removes the lock lets all waiters of other hosts go first.
	late := t.mode == layout.Shared && w.Nth() > t.before || w.Removes
	if t.grants > 0 && (late || t.row >= lk.host.Handoff) {
		if lk.inline {
			return false, errLeft // for another client than the one that this goroutine serves
		}
		wanted, err := t.elsewhere()
		if err != nil || wanted {
			t.closed = wanted
			return false, err
		}
		t.row = 0
	}
	if w.Removes {
		t.remover = w
		return false, nil
	}
	if ok, changed := lk.host.Member.MayGrant(); !ok {
		if lk.inline {
			return false, errLeft
		}
		select { // until the lease is renewed or lost
		case <-changed:
			return true, nil
		case <-lk.host.Lost:
			return false, api.ErrLeaseLost
		}
	}
	if lk.Queue.Grant(w, lk.m.Token().Grant(t.grants), t.grants > 0) {
		t.grants++
		t.row++
		t.settleSoon()
		lk.Queue.CompleteReleases() // the holder before
	}
	return true, nil
}

// waitsForClient reports whether the ticket is kept for a client that has not yet returned after a
// restart of bakeryd. It is kept no longer than such clients may take.
func (t *acquisition) waitsForClient() bool {
	w := t.lk.Queue.Front()
	return t.grants == 0 && !t.closed && w != nil && w.Absent() && w.Request.Mode == t.mode
}

// elsewhere reports whether another host requests the lock in a conflicting mode.
func (t *acquisition) elsewhere() (bool, error) {
	views, err := t.lk.readAll()
	if err != nil {
		return false, err
	}
	t.lk.applyHostTable()
	exclusive, shared := t.lk.m.Others(views)
	return exclusive > 0 || shared > 0 && t.mode == layout.Exclusive, nil
}

// SettleAfter is how long a hold lasts before it is shown on the disk.
const SettleAfter = 50 * time.Millisecond
