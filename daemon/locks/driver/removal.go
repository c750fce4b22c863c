package driver

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Remove removes the lock when the request is next in the queue. It blocks until then, or until ctx
// ends.
func (lk *Lock) Remove(ctx context.Context, req queue.Request) error {
	h := lk.NewHold(req, false)
	h.Removes = true
	return h.Acquire(ctx)
}

// tryDrain is how long a removal with try waits for hosts that claimed the lock at the same moment
// to see the mark and withdraw.
const tryDrain = time.Second

// remove removes the lock for the client in front. over reports that the hold has ended. It has not
// if the client was refused before anything was written.
func (t *acquisition) remove() (over bool, err error) {
	lk, w := t.lk, t.remover
	t.remover = nil
	if w.Request.Try {
		wanted, err := t.elsewhere()
		if err != nil || wanted {
			lk.Queue.Refuse(api.ErrBusy, queue.Only(w))
			return false, err
		}
	}
	if w.Request.Removable != nil {
		if err := w.Request.Removable(); err != nil {
			lk.Queue.Refuse(err, queue.Only(w))
			return false, nil
		}
	}
	a, err := lk.removal(w)
	switch {
	case err != nil:
		return true, err
	case a.Outcome == bakery.Removed:
		return true, ErrSuperseded
	case w.Request.Try:
		lk.Queue.Refuse(api.ErrBusy, queue.Only(w))
	}
	return true, nil
}

// completeRemoval removes a lock whose entry a dead host may still clear. No client is granted it
// any more. Clients that wait create it again.
func (lk *Lock) completeRemoval() error {
	if lk.m.Mode() != layout.Exclusive { // two shared holders would wait for each other
		_, err := lk.protocol(lk.m.Release(), always)
		return err
	}
	if lk.warn.Allow() {
		lk.host.Observer.Trouble("completing the removal of a lock that a dead host began", lk.Entry)
	}
	a, err := lk.removal(nil)
	switch {
	case err != nil:
		return err
	case a.Outcome == bakery.Removed:
		return ErrSuperseded
	}
	lk.Queue.Refuse(api.ErrBusy, queue.Tries)
	if !lk.host.Pause(lk.host.Disk.Retry()) { // another host may have to write the entry first
		return api.ErrLeaseLost
	}
	return nil
}

// removal has the machine remove the lock, which no local client holds, as long as the remover is in
// front; nil: any client. After it the machine does not hold the lock.
func (lk *Lock) removal(remover *queue.Item) (bakery.Action, error) {
	lk.Queue.ReleasesDone() // the holders before: the remover has the lock now
	began := time.Now()
	a, err := lk.protocol(lk.m.Remove(), func() bool {
		w := lk.Queue.Front()
		return w != nil && (remover == nil || w == remover) && (!w.Request.Try || time.Since(began) < tryDrain)
	})
	switch {
	case err != nil:
	case a.Outcome == bakery.Removed:
		lk.host.Observer.Noted("lock removed", lk.Entry)
		w := cmp.Or(remover, lk.Queue.Front())
		lk.Queue.ReportRemoved(w)
		if w != nil && w.Removes {
			lk.Queue.Refuse(nil, queue.Only(w))
		}
	// two removers that gave way must not collide again
	case a.Outcome == bakery.Busy && !lk.host.Pause(rand.N(lk.host.Disk.Retry())):
		err = api.ErrLeaseLost
	}
	return a, err
}

// readRemovalPending reports whether a host that shows a removal, or whose slot may hide one, intends to
// clear the entry. If it is dead, that write may land at any time. Such an intent is written after
// the mark and removed before it. An intent that stays unreadable may be such a one: removing the
// lock is always safe.
func (lk *Lock) readRemovalPending() (found bool, err error) {
	if lk.Entry == lockspace.DirectoryEntry {
		return false, nil // which is never removed
	}
	for n, v := range lk.slots.Views {
		if n+1 == lk.host.ID || v.Readable && v.Slot.Creation <= lk.Entry.Creation {
			continue
		}
		tries := 0
		var unreadable error
		err := lk.persist("reading an intent failed, retrying", lk.host.Disk.SB.Geometry.Slot(lockspace.DirectoryLock, n+1), func() error {
			intents, bad, err := lk.host.Disk.Intents(lk.slots.Dev, n+1, n+1)
			if unreadable = cmp.Or(err, bad[n+1]); store.Damaged(unreadable) {
				lk.host.Member.HeldUp(layout.Complaint{Host: n + 1, Lock: lockspace.DirectoryLock}, false)
			}
			if tries++; unreadable != nil && (tries < store.SlotTries || !store.Damaged(unreadable)) {
				return unreadable
			}
			for _, i := range intents[n+1] {
				found = found || i.Lock == lk.Entry.Lock && i.Creation > lk.Entry.Creation
			}
			return nil
		})
		if err == nil && unreadable != nil && !found {
			found, err = lk.mayClear(n+1, unreadable)
		}
		if err != nil {
			return false, err
		}
	}
	return found, nil
}

// mayClear reports whether a host with an unreadable intent may be about to clear the entry. A host
// that is gone has no write in flight (see [membership.Member.Gone]), but it may have torn the entry.
func (lk *Lock) mayClear(host int, unreadable error) (bool, error) {
	if lk.host.Disk.Several() {
		return true, nil // the entry may be half written, which no read of it excludes
	}
	gone, err := lk.host.Member.Gone(host, unreadable)
	if err != nil || !gone {
		return true, err
	}
	var whole bool
	err = lk.persist("reading a directory entry failed, retrying", lk.host.Disk.SB.Geometry.Entry(lk.Entry.Lock), func() (err error) {
		whole, err = lk.host.Dir.On(lk.slots.Dev).Readable(lk.Entry.Lock)
		return err
	})
	return !whole, err
}

// stale reports whether the entry is older than what this incarnation left in its own slot by a
// removal. The machine does not judge its own slot.
func (lk *Lock) stale() bool {
	return lk.slots.Removed(lk.m.OwnSlot().Creation)
}

// clearEntry clears the directory entry and retries until that is durable. Meanwhile it runs the
// driver's tasks.
func (lk *Lock) clearEntry(creation uint64) error {
	done := lk.host.Clear(lk, creation)
	for {
		select {
		case err := <-done:
			return err
		case task := <-lk.tasks:
			if err := task(); err != nil {
				return err
			}
		case <-lk.host.Lost:
			return api.ErrLeaseLost
		}
	}
}
