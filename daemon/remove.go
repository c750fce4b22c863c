package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Removal: the remover waits for the lock like any other client. When it is its
// turn the driver does not grant a hold, but has the machine remove the lock
// (bakery/remove.go), and ends. The entry is cleared under the internal lock,
// with an intent before it; a host that dies in between may have cleared the
// entry or not, or clear it at any time. So who comes upon its mark does not go
// on with the lock before the removal is completed.

// errIntended is returned when an entry cannot be cleared, for it may be written again.
var errIntended = fmt.Errorf("%w: a host that could not write its entry may yet do so", api.ErrUnavailable)

// Remove removes a lock, when it is its turn to hold it; at once or not at all
// with try. Whoever waits for the lock then, or asks for it later, makes it
// anew. It returns ErrNoLock, ErrBusy, ErrInvalid, ErrUnavailable, ErrDamaged,
// or the cause of ctx's end; by then the removal may be past stopping.
func (d *Daemon) Remove(ctx context.Context, name string, try bool) (err error) {
	req := Request{Name: name, Mode: layout.Exclusive, Try: try, remove: true, Command: "remove the lock"}
	if err := d.validate(&req); err != nil {
		return err
	}
	since := time.Now()
	req.asked = d.note(req.event(events.Request))
	defer func() { d.noteRefused(&req, nil, since, err) }()
	for n := 0; ; n++ {
		if n > 1 {
			select {
			case <-time.After(d.retry()):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := d.removeOnce(ctx, req); !errors.Is(err, errSuperseded) {
			return err
		}
	}
}

func (d *Daemon) removeOnce(ctx context.Context, req Request) error {
	lk, err := patiently(ctx, d, func() (*lock, error) {
		e, err := d.removable(ctx, req.Name)
		if err != nil {
			return nil, err
		}
		return d.attach(e)
	})
	if err != nil {
		return err
	}
	w, err := lk.enqueue(req)
	if err == nil {
		err = lk.awaitRemoval(ctx, w)
	}
	if err == nil || errors.Is(err, errSuperseded) {
		d.dir.forget(lk.entry)
	}
	return err
}

// removable returns the entry of a lock that can be removed. While a dead host
// may yet write the entry as it is, a cleared one could come back. That is told
// before anybody has to wait, and looked at again when it is cleared: who
// restores an entry that has become unreadable intends it too.
func (d *Daemon) removable(ctx context.Context, name string) (e layout.Entry, err error) {
	err = d.guarded(ctx, "remove a lock", func(guard *lock) error {
		if err := d.carryOut(guard); err != nil {
			return err
		}
		s, err := d.dir.on(guard.dev).scan()
		if err != nil {
			return err
		}
		var found bool
		if e, found = s.find(name); !found && s.damaged != nil {
			d.complainOfEntries(s.bad, true)
			return fmt.Errorf("%w: lock %q is not in its readable part: %w", api.ErrDamaged, name, s.damaged)
		} else if !found {
			return fmt.Errorf("%w: %q", api.ErrNoLock, name)
		}
		intents, err := d.intents(guard.dev)
		if err != nil {
			return err
		}
		for _, i := range intents {
			if layout.Entry(i) == e {
				return fmt.Errorf("%w: a host that died while it created lock %q may yet write its entry; start bakeryd there, then remove it",
					api.ErrUnavailable, name)
			}
		}
		return nil
	})
	return e, err
}

// awaitRemoval waits until a lock was removed.
func (lk *lock) awaitRemoval(ctx context.Context, w *waiter) error {
	var err error
	select {
	case r := <-w.result:
		return r.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-lk.d.mem.lost:
		err = fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	}
	if lk.withdraw(w) {
		return err
	}
	return (<-w.result).err
}

// tryDrain is how long who would not wait waits for those who came in the very
// moment to notice.
const tryDrain = time.Second

// remove removes the lock for the client whose turn it is. The hold is over
// then, unless the client is refused before anything was begun.
func (t *tenure) remove() (over bool, err error) {
	lk, w := t.lk, t.remover
	t.remover = nil
	is := func(x *waiter) bool { return x == w }
	if w.req.Try {
		wanted, err := t.elsewhere()
		if err != nil || wanted {
			lk.refuse(api.ErrBusy, is)
			return false, err
		}
	}
	began := time.Now()
	a, err := lk.removal(func() bool {
		return lk.front() == w && (!w.req.Try || time.Since(began) < tryDrain)
	})
	switch {
	case err != nil:
		return true, err
	case a.Outcome == bakery.Removed:
		lk.refuse(nil, is)
		return true, errSuperseded
	case w.req.Try:
		lk.refuse(api.ErrBusy, is)
	}
	return true, nil
}

// completeRemoval removes the lock, which nobody is let into any more: a host
// that died in the midst of removing it may yet clear its entry. Whoever waits
// makes it anew.
func (lk *lock) completeRemoval() error {
	if lk.m.Mode() != layout.Exclusive { // two who share it would be in each other's way
		_, err := lk.protocol(lk.m.Release(), func() bool { return true })
		return err
	}
	if lk.warn.Allow() {
		lk.d.log.Warn("completing the removal of a lock, which a host that is dead had begun", "lock", lk.entry.Name, "number", lk.entry.Lock)
	}
	began := time.Now()
	a, err := lk.removal(func() bool {
		w := lk.front()
		return w != nil && (!w.req.Try || time.Since(began) < tryDrain)
	})
	switch {
	case err != nil:
		return err
	case a.Outcome != bakery.Removed:
		lk.refuse(api.ErrBusy, func(w *waiter) bool { return w.req.Try })
		if !lk.pause(lk.d.retry()) { // the entry may have to be written by somebody else first
			return api.ErrLeaseLost
		}
		return nil
	}
	if w := lk.front(); w != nil && w.req.remove {
		lk.refuse(nil, func(x *waiter) bool { return x == w })
	}
	return errSuperseded
}

// removal has the machine remove the lock, which nobody of this host is inside
// of any more. After it the machine does not hold.
func (lk *lock) removal(wanted func() bool) (bakery.Action, error) {
	lk.letGo() // who was inside before: the remover has it now
	a, err := lk.protocol(lk.m.Remove(), wanted)
	switch {
	case err != nil:
	case a.Outcome == bakery.Removed:
		lk.d.note(events.Event{Kind: events.Removed, Lock: lk.entry.Name})
		lk.d.log.Info("lock removed", "lock", lk.entry.Name, "number", lk.entry.Lock)
	case a.Outcome == bakery.Busy && !lk.pause(rand.N(lk.d.retry())): // two removers who gave way are not to meet again
		err = api.ErrLeaseLost
	}
	return a, err
}

// condemned tells whether a host that shows a removal, or whose slot may hide
// one, has made it known that it clears the entry. If it is dead the write may
// land at any time. Such an intent comes after the mark, and goes before it. One
// that stays unreadable may be such a one: to remove the lock is always safe.
func (lk *lock) condemned() (found bool, err error) {
	if lk.entry == lockspace.DirectoryEntry {
		return false, nil // which nobody removes
	}
	for n, v := range lk.area.views {
		if n+1 == lk.area.host || v.Readable && v.Slot.Creation <= lk.entry.Creation {
			continue
		}
		tries := 0
		var unreadable error
		err := lk.persist("reading an intent failed, retrying", lk.d.sb.Geometry.Slot(lockspace.DirectoryLock, n+1), func() error {
			i, ok, err := lk.d.intentOf(lk.dev, n+1)
			if unreadable = err; lockspace.IsBadSector(err) || undecodable(err) {
				lk.d.mem.heldUp(layout.Complaint{Host: n + 1, Lock: lockspace.DirectoryLock}, false)
			}
			if tries++; err != nil && tries < slotTries || err != nil && !lockspace.IsBadSector(err) && !undecodable(err) {
				return err
			}
			found = found || ok && i.Lock == lk.entry.Lock && i.Creation > lk.entry.Creation
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

// mayClear reports whether a host whose intent is unreadable may be about to clear the entry. Of one that is gone
// nothing is under way (see [member.gone]); but it may have left half of the entry.
func (lk *lock) mayClear(host int, unreadable error) (bool, error) {
	gone, err := lk.d.mem.gone(host, unreadable)
	if err != nil || !gone {
		return true, err
	}
	var whole bool
	err = lk.persist("reading a directory entry failed, retrying", lk.d.sb.Geometry.Entry(lk.entry.Lock), func() (err error) {
		whole, err = lk.d.dir.on(lk.dev).readable(lk.entry.Lock)
		return err
	})
	return !whole, err
}

// stale tells whether the entry is older than what this very incarnation has
// left in its slot by removing the lock. The machine does not judge its own slot.
func (lk *lock) stale() bool {
	own := lk.area.own
	return lk.area.known && own.Incarnation == lk.area.mine && own.Creation > lk.m.OwnSlot().Creation
}

// clearEntry clears the directory entry, until that is durable. The driver
// goes on with what others have for it to do.
func (lk *lock) clearEntry(creation uint64) error {
	done := make(chan error, 1)
	lk.d.drivers.Go(func() { done <- lk.clear(creation) })
	for {
		select {
		case err := <-done:
			return err
		case t := <-lk.tasks:
			if err := t.run(); err != nil {
				return err
			}
		case <-lk.d.mem.lost:
			return api.ErrLeaseLost
		}
	}
}

// clear makes an entry a free one, under the internal lock.
func (lk *lock) clear(creation uint64) error {
	d, e := lk.d, lk.entry
	failing := lk.dev.series(d.sb.Geometry.Entry(e.Lock))
	defer failing.end()
	for {
		err := d.guarded(context.Background(), "remove a lock", func(guard *lock) error {
			if err := d.carryOut(guard); err != nil {
				return err
			}
			// One that cannot be read is this lock's: its remover holds it.
			if now, err := d.dir.on(guard.dev).read(e.Lock); err == nil && now != e {
				return nil // cleared already, by the host that died removing it
			}
			// Who restored it while this host waited for the lock may yet write it.
			intents, err := d.intents(guard.dev)
			if err != nil {
				return err
			}
			for _, i := range intents {
				if layout.Entry(i) == e {
					return fmt.Errorf("%w: lock %q", errIntended, e.Name)
				}
			}
			return d.put(guard, layout.Entry{Lock: e.Lock, Creation: creation})
		})
		switch {
		case err == nil, errors.Is(err, errIntended), errors.Is(err, api.ErrStuck):
			return err
		case d.stopping():
			return errStopped
		case !errors.Is(err, api.ErrDamaged) && !errors.Is(err, api.ErrUnavailable): // of the device
			failing.begin() // the time that the try waited for other hosts does not count
			failing.failed(err)
		}
		d.log.Warn("clearing a directory entry failed, retrying", "lock", e.Name, "number", e.Lock, "err", err)
		select {
		case <-time.After(d.retry()):
		case <-d.mem.lost:
			return api.ErrLeaseLost
		}
	}
}
