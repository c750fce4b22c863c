// Package driver drives the protocol of one lock on the disk (package bakery) for the clients in its
// queue. It knows the manager of a host's locks by the two functions in [Host], and neither the
// directory's intents nor a client.
//
// Start reading with [Lock.Drive] in this file, and lock.go for what the driver owns. The other files:
//
//   - acquiring: inline.go runs the driver in a client's goroutine, poll.go waits for other hosts
//   - a hold: hold.go is that of one client, acquisition.go serves many from one ticket, looks
//     for other hosts meanwhile, and lingers; mode.go changes it, requests.go asks for it
//   - removing: removal.go
//   - damage and restart: intact.go judges an own slot that was overwritten, takeup.go continues what
//     the previous process left
//   - others: task.go runs work of other goroutines, happenings.go reports to the observer
package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/layout"
)

// ErrSuperseded is returned when the lock's directory entry is not the one that was looked up.
var ErrSuperseded = errors.New("the directory entry is another one")

// Drive serves the queue until the lock is superseded, the lease is lost or the daemon stops. Only
// the goroutine that holds the driver mutex writes this host's slot. Drive is called with it held,
// and does not release it when it returns.
func (lk *Lock) Drive() {
	defer lk.looks.Wait() // a look that hangs delays only the end of its device
	defer close(lk.done)
	err := lk.takeUp()
	for err == nil {
		w := lk.Queue.Front()
		switch {
		case lk.trying.on:
			err = lk.continueAcquire()
		case lk.acquisition != nil:
			err = lk.serveHold()
		case lk.Queue.Closed() != nil:
			err = ErrSuperseded
		case w != nil && !w.Absent():
			err = lk.acquireOnDisk(w)
		case lk.scrub.Swap(false):
			err = lk.heal()
		default:
			lk.freeMemory()
			err = lk.idle()
		}
	}
	lk.alarm.Stop()
	if errors.Is(err, api.ErrLeaseLost) {
		lk.Queue.HoldsLost()
		err = fmt.Errorf("%w: %w", api.ErrUnavailable, err)
	}
	lk.host.Ended(lk)
	lk.Queue.Close(err)
}

// freeMemory frees the buffers of an idle lock. With many hosts and many locks they are most of the
// memory in use.
func (lk *Lock) freeMemory() {
	if lk.Queue.Idle() {
		lk.m.Forget()
		lk.slots.Forget()
		lk.looks.Take() // its hold has ended, too
		lk.looks.Spare = nil
	}
}

// tryState is the progress of taking the lock on the disk.
type tryState struct {
	on bool
	// requested by the client in front; other clients of this mode may be served, too
	mode   layout.Mode
	try    bool
	before uint64        // number of clients that had arrived before the claim
	action bakery.Action // to execute next
	began  time.Time
}

// acquireOnDisk begins to take the lock on the disk for the client in front.
func (lk *Lock) acquireOnDisk(w *queue.Item) error {
	lk.applyHostTable() // applies deaths now: an attempt that does not wait reads no host table
	before, mode := lk.Queue.Arrived(), w.Request.Mode
	if lk.removalPending {
		mode = layout.Exclusive // to remove it
	}
	now := time.Now()
	if now.Sub(lk.releasedAt) > lk.host.Linger {
		lk.again = -1
	}
	lk.trying = tryState{on: true, mode: w.Request.Mode, try: w.Request.Try, before: before, began: now, action: lk.m.Acquire(bakery.Request{
		Mode:  mode,
		Clock: lk.host.ClockNumber(),
		Try:   w.Request.Try,
	})}
	return lk.continueAcquire()
}

// continueAcquire continues an attempt until it ends.
func (lk *Lock) continueAcquire() error {
	t := &lk.trying
	var err error
	if t.action, err = lk.protocolSince(t.began, t.action, lk.wants(t.mode, t.try)); err != nil {
		return err
	}
	a, before := t.action, t.before
	lk.trying = tryState{}
	return lk.finishAcquire(a, before, false)
}

// wants returns a function that reports whether the client in front has a mode and Try.
func (lk *Lock) wants(mode layout.Mode, try bool) func() bool {
	return func() bool {
		f := lk.Queue.Front()
		return f != nil && f.Request.Mode == mode && f.Request.Try == try
	}
}

// finishAcquire handles the end of an attempt. used is set if the ticket may have served grants before.
func (lk *Lock) finishAcquire(a bakery.Action, before uint64, used bool) error {
	if a.Kind == bakery.Granted {
		if lk.removalPending {
			var err error
			if lk.removalPending, err = lk.readRemovalPending(); err != nil { // the dead host may have returned since
				return err
			}
			if lk.removalPending {
				return lk.completeRemoval()
			}
			creation, err := lk.creation() // it may have cleared the entry before it returned
			if err != nil {
				return err
			}
			if creation != lk.Entry.Creation {
				if _, err := lk.protocol(lk.m.Release(), always); err != nil {
					return err
				}
				return ErrSuperseded
			}
		}
		lk.hold(before, used)
		return nil
	}
	switch a.Outcome {
	case bakery.Busy:
		lk.rememberBusy()
		lk.Queue.Refuse(api.ErrBusy, queue.Tries)
	case bakery.Superseded, bakery.Removed: // Removed: by the previous bakeryd of this host
		return ErrSuperseded
	case bakery.Exhausted:
		lk.Queue.Refuse(lk.exhausted(), queue.All)
	}
	return nil
}

func (lk *Lock) exhausted() error {
	return fmt.Errorf("%w: the numbers of lock %q are used up; use another name", api.ErrDamaged, lk.Entry.Name)
}

// protocol executes the machine's actions until it has ended or entered. It cancels once wanted
// returns false. With an error it returns the action to execute next.
func (lk *Lock) protocol(a bakery.Action, wanted func() bool) (bakery.Action, error) {
	return lk.protocolSince(time.Now(), a, wanted)
}

// protocolSince is protocol for a wait that has begun before.
func (lk *Lock) protocolSince(began time.Time, a bakery.Action, wanted func() bool) (_ bakery.Action, err error) {
	for err == nil && a.Kind != bakery.Granted && a.Kind != bakery.Done {
		if lk.inline && a.Kind != bakery.Write && a.Kind != bakery.Read {
			return a, errLeft
		}
		if !wanted() {
			lk.m.Cancel()
		}
		a, err = lk.execute(a, began, wanted)
	}
	return a, err
}

// execute executes one action and reports the result to the machine.
func (lk *Lock) execute(a bakery.Action, began time.Time, wanted func() bool) (bakery.Action, error) {
	switch a.Kind {
	case bakery.Write:
		if err := lk.write(a.Slot); err != nil {
			return a, err
		}
		lk.reportSlot(a.Slot)
		return lk.m.Written(), nil
	case bakery.Read:
		views, err := lk.readAll()
		if err != nil {
			return a, err
		}
		if lk.stale() {
			return a, ErrSuperseded
		}
		own := &views[lk.host.ID-1]
		if !own.Readable && !lk.m.Attached() {
			if *own, err = lk.readOwn(lk.persist); err != nil {
				return a, err
			}
		}
		if err := lk.intact(*own); err != nil {
			return a, err
		}
		return lk.m.SlotsRead(views), nil
	case bakery.Poll:
		return lk.poll(a, began, wanted)
	case bakery.ReadHosts:
		hosts, read, err := lk.host.Member.ReadHosts()
		if err != nil {
			return a, err
		}
		// so that the next poll does not take it for news and read all slots again without a pause
		lk.evaluatedAt = read
		return lk.m.HostsRead(hosts), nil
	case bakery.ReadDirectory:
		if lk.host.Disk.Several() && lk.slots.Removed(lk.Entry.Creation) { // a removal that an earlier process began
			if err := lk.host.CarriedOut(lk); err != nil {
				return a, err
			}
		}
		// Read the intents first. An intent that is gone by then was carried out before the entry
		// is read, or will never be.
		pending, err := lk.readRemovalPending()
		if err != nil {
			return a, err
		}
		lk.removalPending = pending
		creation, err := lk.creation()
		if err != nil {
			return a, err
		}
		return lk.m.DirectoryRead(creation), nil
	case bakery.ClearDirectory:
		if err := lk.clearEntry(a.Slot.Creation); errors.Is(err, api.ErrIntended) || errors.Is(err, api.ErrInFlight) || errors.Is(err, api.ErrStuck) {
			lk.Queue.Refuse(err, queue.Removers)
			return lk.m.DirectoryKept(), nil
		} else if err != nil {
			return a, err
		}
		return lk.m.DirectoryCleared(), nil
	}
	panic(fmt.Sprintf("daemon: action %d of lock %q", a.Kind, lk.Entry.Name))
}

// write writes the own slot and retries until that is durable. Called by the driver only, so no two
// writes of the slot are in flight at a time.
func (lk *Lock) write(s bakery.Slot) error {
	return lk.persist("writing a slot failed, retrying", lk.slots.At(lk.host.ID), func() error {
		return lk.slots.Write(s, lk.Queue.Holder(s.Phase))
	})
}

func (lk *Lock) readAll() (views []bakery.View, err error) {
	err = lk.persist("reading slots failed, retrying", lk.slots.At(1), func() error {
		lk.readBegan = lk.host.Disk.Clock.Now()
		views, err = lk.slots.ReadAll(lk.host.SlotCount())
		lk.readAt = lk.host.Disk.Clock.Now()
		return err
	})
	return views, err
}

// creation returns the creation id of the lock's directory entry now, 0 if the entry is another
// lock's.
func (lk *Lock) creation() (creation uint64, err error) {
	if lk.Entry == lockspace.DirectoryEntry {
		return lockspace.DirectoryCreation, nil
	}
	stopping, tries := false, 0
	err = lk.persist("reading a directory entry failed, retrying", lk.host.Disk.SB.Geometry.Entry(lk.Entry.Lock), func() error {
		e, err := lk.host.Dir.On(lk.slots.Dev).Read(lk.Entry.Lock)
		if err == nil && e.Name == lk.Entry.Name {
			creation = e.Creation
		}
		if store.Damaged(err) {
			lk.host.Member.HeldUp(layout.Complaint{Lock: lk.Entry.Lock}, false)
		}
		if stopping = err != nil && lk.host.Stopping(); stopping {
			return nil
		}
		// A host that died while it cleared the entry may have torn it. No client is admitted then:
		// the removal is completed, which rewrites the entry. An unsettled one may be of another lock.
		if tries++; lk.removalPending && tries >= store.SlotTries && store.Damaged(err) && !errors.Is(err, directory.ErrUnsettled) {
			creation = lk.Entry.Creation
			return nil
		}
		return err
	})
	if stopping {
		err = queue.ErrStopped // there is no local holder, and a host that has left takes no part
	}
	return creation, err
}

// persist calls try until it succeeds or the lease is lost. It starts no IO for which the lease has
// no time left. In a client's goroutine it tries once. at is the offset of the IO.
func (lk *Lock) persist(message string, at int64, try func() error) error {
	return lk.retry(message, at, lk.awaitLease, try)
}

// awaitLease blocks while the lease is about to end, unless renewed, and returns the time.
func (lk *Lock) awaitLease() (time.Duration, error) {
	for {
		if lk.host.IsLost() {
			return 0, api.ErrLeaseLost
		}
		now := lk.host.Disk.Clock.Now()
		ok, changed := lk.host.Member.MayWrite(now)
		if ok {
			return now, nil
		}
		if lk.inline {
			return 0, errLeft
		}
		select {
		case <-changed:
		case <-lk.host.Lost:
			return 0, api.ErrLeaseLost
		}
	}
}

// Read calls try until it succeeds, or fails after the lease is lost. It is called before Drive: the
// sessions of the previous process end properly only once all locks have drivers, even if the lease
// is lost meanwhile.
func (lk *Lock) Read(message string, at int64, try func() error) error {
	return lk.retry(message, at, func() (time.Duration, error) { return lk.host.Disk.Clock.Now(), nil }, try)
}

// retry calls ready, which returns the time, and try until try succeeds, ready fails, or the lease is
// lost after a failure.
func (lk *Lock) retry(message string, at int64, ready func() (time.Duration, error), try func() error) error {
	series := lk.slots.Dev.Series(at)
	defer series.End()
	for {
		now, err := ready()
		if err != nil {
			return err
		}
		series.Begin(now)
		if err = try(); err == nil {
			return nil
		}
		series.Failed(err)
		if lk.warn.Allow() {
			lk.host.Observer.Trouble(message, lk.Entry, "err", err)
		}
		if lk.inline {
			return errLeft
		}
		if !lk.host.Pause(lk.host.Disk.Retry()) {
			return api.ErrLeaseLost
		}
	}
}

// Pause waits for d. It returns false if the lease was lost meanwhile.
func (h *Host) Pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-h.Lost:
		return false
	}
}
