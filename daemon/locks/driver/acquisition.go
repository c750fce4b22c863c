package driver

import (
	"errors"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/layout"
)

// A hold on the disk serves clients of this host one after the other, readers together, without IO.
// Its states, and what leads from one to the next:
//
//	served      a client holds the lock.
//	            The last one releases: lingers if the host may keep the hold (mayLinger), else ending.
//	lingering   no client holds the lock, the disk still shows the hold, and the client that released
//	            has been answered. lingerUntil is set.
//	            A client comes: served, with the next token of the ticket.
//	            Its time is over, a look finds another host, a client comes that the ticket cannot serve
//	            or that removes the lock, another client requests the lock, the host stops: ending.
//	ending      idle is being written. ending has the next action of the machine.
//
// The goroutine of a client executes served and lingering inline, without IO and without a timer of its
// own: lk.alarm, armed only if it would fire too late, wakes the driver at lingerUntil. A look for other
// hosts runs next to both (store.Looks). If it finds one while no client comes, it wakes the driver.
//
// A lingering hold has no record in the handover file. A next process finds its slot choosing, and writes
// it idle, or held, and releases it (bakery.Machine.Resume). It is not lent to the directory's lock, which
// no client waits for, and not to readers, which would keep writers of their own host waiting.

// acquisition is one hold of the lock on the disk. It serves one or more local clients: readers
// together, writers one after the other.
type acquisition struct {
	lk     *Lock
	mode   layout.Mode
	before uint64        // number of clients that had arrived before the claim
	grants bakery.Grants // made by this ticket

	lookedAt    time.Time // when the last look for other hosts began
	asked       bool      // a client has requested the lock from its holders
	lingerUntil time.Time // end of the time without a client; zero while one holds the lock

	settleAt time.Time      // when a grant must be shown on the disk; zero if it is
	ending   *bakery.Action // next action of the release; nil while the lock is kept
	remover  *queue.Item    // the client in front, if it is to remove the lock
}

// hold begins to serve local clients from a granted ticket. If the ticket is used, no more clients
// are granted it.
func (lk *Lock) hold(before uint64, used bool) {
	now := time.Now()
	lk.requestWatch = requestWatch{next: now.Add(LookForRequests(lk.host.Disk.SB.Lease))}
	lk.acquisition = &acquisition{lk: lk, mode: lk.m.Mode(), before: before, grants: bakery.NewGrants(lk.host.Handoff, used), lookedAt: now}
	lk.acquisition.settleSoon(now)
	lk.looks.Drop()
	lk.asked.Store(false)
	if lk.m.OwnSlot().Phase == layout.Choosing && !used { // no other host was there
		lk.again++
	} else {
		lk.again = 0
	}
}

// settleSoon schedules the write that shows the hold on the disk, if it lasts for SettleAfter.
func (t *acquisition) settleSoon(now time.Time) {
	t.settleAt = now.Add(SettleAfter)
	t.lk.wakeAt(now, t.settleAt)
}

// wakeAt has the driver wake at a time, or before: then it calls rearm. A timer that is reset by every
// client would cost more than a wake-up every few milliseconds.
func (lk *Lock) wakeAt(now, at time.Time) {
	if !lk.alarmAt.After(now) || at.Before(lk.alarmAt) {
		lk.alarmAt = at
		lk.alarm.Reset(at.Sub(now))
	}
}

// rearm sets the alarm for what is due next.
func (t *acquisition) rearm(now time.Time) {
	for _, at := range []time.Time{t.settleAt, t.lingerUntil} {
		if !at.IsZero() {
			t.lk.wakeAt(now, at)
		}
	}
}

// serveHold serves the clients of the hold on the disk, executes what is due, and rests.
func (lk *Lock) serveHold() error {
	t := lk.acquisition
	if err := t.serve(); err != nil || lk.acquisition != t {
		return err
	}
	now := time.Now()
	if !t.settleAt.IsZero() && !now.Before(t.settleAt) {
		t.settleAt = time.Time{}
		if _, err := lk.protocol(lk.m.Settle(), always); err != nil {
			return err
		}
	}
	t.rearm(now)
	if lk.scrub.Swap(false) {
		return lk.rewrite()
	}
	return lk.idle()
}

// serve grants the lock to the clients that are next. It ends the acquisition when none of them is
// left, and it does not linger.
func (t *acquisition) serve() error {
	lk := t.lk
	for t.ending == nil {
		t.finishLook()
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
			if t.lingers() {
				return nil
			}
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

// lingers reports whether the host keeps its hold, which no client has. When that begins, it unblocks
// the client that has released.
func (t *acquisition) lingers() bool {
	lk := t.lk
	if !t.mayLinger() {
		return false
	}
	now := time.Now()
	if !t.lingerUntil.IsZero() {
		return now.Before(t.lingerUntil)
	}
	if !lk.Queue.Linger(lk.m.Token()) {
		return false
	}
	t.lingerUntil = now.Add(lk.host.Linger)
	t.settleAt = time.Time{} // there is no holder to show
	lk.wakeAt(now, t.lingerUntil)
	if now.Sub(t.lookedAt) >= lookEvery {
		t.lookForOthers(now)
	}
	return true
}

// lingerAfter is how often in a row a host must take a lock again within its time to linger before it
// keeps a hold for the next client.
const lingerAfter = 2

// wouldLinger reports whether the host keeps this hold for the next client, unless mayLinger rules it
// out.
func (t *acquisition) wouldLinger() bool {
	return t.lk.host.Linger > 0 && t.lk.again >= lingerAfter && t.mode == layout.Exclusive && !t.grants.Wanted()
}

func (t *acquisition) mayLinger() bool {
	lk := t.lk
	w := lk.Queue.Front()
	t.asked = lk.asked.Swap(false) || t.asked
	return t.wouldLinger() && lk.m.MayLinger(&t.grants) && (w == nil || t.mayServe(w)) && !t.asked && !lk.removalPending &&
		lk.Queue.Observed() && lk.Queue.Closed() == nil && lk.host.MayLinger()
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
	lk.releasedAt = time.Now()
	if t.grants.Closed() || t.grants.Wanted() || !t.lingerUntil.IsZero() && lk.releasedAt.After(t.lingerUntil) {
		lk.again = 0 // another host came, or no client
	}
	lk.Queue.ReleasesDone()
	return err
}

// mayServe reports whether the client may be served by this ticket.
func (t *acquisition) mayServe(w *queue.Item) bool {
	return t.grants.Open() && !w.Absent() && w.Request.Mode == t.mode
}

// next grants the lock to the client in front if this ticket permits it while held clients hold the
// lock.
func (t *acquisition) next(held int) (bool, error) {
	lk := t.lk
	w := lk.Queue.Front()
	if w == nil || !t.mayServe(w) || held > 0 && t.mode != layout.Shared {
		return false, nil
	}
	// A reader that came after the claim may have come after a writer of another host, which it
	// must not overtake. A writer may overtake it, but at most Handoff times in a row. A client
	// that removes the lock lets all waiters of other hosts go first.
	late := t.mode == layout.Shared && w.Nth() > t.before || w.Removes
	if t.grants.Made() > 0 && (late || t.grants.MustLook()) {
		if lk.inline {
			return false, errLeft // for another client than the one that this goroutine serves
		}
		if !late {
			if looked, err := t.awaitLook(); err != nil || looked {
				return err == nil && t.grants.Open(), err
			}
		}
		made := t.grants.Made()
		wanted, err := t.elsewhere()
		if err != nil {
			return false, err
		}
		if t.grants.Looked(made, wanted); wanted {
			t.grants.Close() // also for one that came late, whatever the bound has left
			return false, nil
		}
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
	again := t.grants.Made() > 0
	if next := t.grants; lk.Queue.Grant(w, next.Next(lk.m.Token()), again) {
		now := w.Since()
		t.grants, t.lingerUntil = next, time.Time{}
		t.settleSoon(now)
		lk.Queue.CompleteReleases() // the holder before
		if again && (t.grants.LookSoon(lk.looks.Early) || t.wouldLinger() && now.Sub(t.lookedAt) >= lookEvery) {
			t.lookForOthers(now)
		}
	}
	return true, nil
}

// waitsForClient reports whether the ticket is kept for a client that has not yet returned after a
// restart of bakeryd. It is kept no longer than such clients may take.
func (t *acquisition) waitsForClient() bool {
	w := t.lk.Queue.Front()
	return t.grants.Made() == 0 && !t.grants.Closed() && w != nil && w.Absent() && w.Request.Mode == t.mode
}

// SettleAfter is how long a hold lasts before it is shown on the disk.
const SettleAfter = 50 * time.Millisecond

// lookEvery is the interval of looks for other hosts while clients come and go for which the host
// lingers. Without that the bound alone determines when to look.
const lookEvery = time.Millisecond

// lookForOthers begins a look, unless one is in progress.
func (t *acquisition) lookForOthers(now time.Time) {
	lk := t.lk
	if lk.looks.Begin(lk.slots.Dev, lk.host.SlotCount(), lk.host.ID, lk.m.OwnSlot(), t.grants.Made(), lk.Queue.Signal) {
		t.lookedAt = now
	}
}

// finishLook applies the result of a look that has ended. Only the machine judges a slot in use: its
// host may be dead.
func (t *acquisition) finishLook() {
	lk := t.lk
	l := lk.looks.Take()
	if l == nil {
		return
	}
	defer func() { lk.looks.Spare = l.Views[:0] }()
	if l.Dropped || l.Err != nil {
		return // the driver looks itself before a grant that needs it
	}
	t.asked = t.asked || l.Asked
	if t.grants.Left() > 0 {
		lk.looks.Early = max(lk.looks.Early-1, 1) // one grant later would have been early enough
	}
	switch {
	case l.Alone:
		t.grants.Looked(l.Made, false)
	case l.Began >= lk.readBegan: // else these are older than the slots that the machine has seen
		lk.slots.Views, l.Views, lk.readBegan, lk.readAt = l.Views, lk.slots.Views, l.Began, l.Ended
		t.grants.Looked(l.Made, t.wanted(lk.slots.Views))
	}
}

// awaitLook waits for a look that is in progress. It returns false if the next grant needs another
// one.
func (t *acquisition) awaitLook() (bool, error) {
	lk := t.lk
	if l := lk.looks.Current(); l != nil {
		defer lk.slots.Dev.Await(lk.slots.At(1))() // other hosts may wait for this hold
		lk.looks.Early = min(lk.looks.Early+1, max(lk.host.Handoff/2, 1))
		select {
		case <-l.Done:
		case <-lk.host.Lost:
			return false, api.ErrLeaseLost
		}
		t.finishLook()
	}
	return !t.grants.Open() || !t.grants.MustLook(), nil
}

// elsewhere reads the slots and reports whether another host requests the lock in a conflicting mode.
func (t *acquisition) elsewhere() (bool, error) {
	t.lookedAt = time.Now()
	views, err := t.lk.readAll()
	if err != nil {
		return false, err
	}
	return t.wanted(views), nil
}

// wanted reports whether the slots as last read show that another host requests the lock in a
// conflicting mode.
func (t *acquisition) wanted(views []bakery.View) bool {
	t.lk.applyHostTable()
	exclusive, shared := t.lk.m.Others(views)
	return exclusive > 0 || shared > 0 && t.mode == layout.Exclusive
}
