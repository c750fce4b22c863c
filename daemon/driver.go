package daemon

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// errSuperseded is returned when the lock's directory entry is no longer the
// one that was looked up.
var errSuperseded = errors.New("the directory entry is another one")

// errStopped ends a driver whose daemon closes.
var errStopped = fmt.Errorf("%w: shutting down", api.ErrUnavailable)

// drive serves the queue until the lock is superseded, the lease lost or the
// daemon stopped. Only who has the role, which it begins with and never gives
// back when it ends, writes this host's slot.
func (lk *lock) drive() {
	defer close(lk.done)
	err := lk.goOn()
	for err == nil {
		w := lk.front()
		switch {
		case lk.trying.on:
			err = lk.pursue()
		case lk.tenure != nil:
			err = lk.occupy()
		case lk.isShut():
			err = errSuperseded
		case w != nil && !w.req.absent():
			err = lk.attempt(w)
		case lk.takeScrub():
			err = lk.heal()
		default:
			lk.shrink()
			err = lk.rest()
		}
	}
	lk.settling.Stop()
	if errors.Is(err, api.ErrLeaseLost) {
		lk.noteLost()
		err = fmt.Errorf("%w: %w", api.ErrUnavailable, err)
	}
	lk.d.drop(lk)
	lk.shut(err)
}

// shrink gives back what a lock has no use for while it is idle: with many
// hosts and many locks that is most of the memory there is.
func (lk *lock) shrink() {
	lk.mu.Lock()
	due := lk.spare
	lk.spare, lk.used = false, lk.used && !due
	lk.mu.Unlock()
	if due {
		lk.m.Forget()
		lk.area.forget()
	}
}

// attempt is how far the lock is being taken on the disk.
type attempt struct {
	on     bool
	mode   layout.Mode // of the client for whom it was begun; its like may have the lock as well
	try    bool
	before uint64        // clients that came before the claim
	action bakery.Action // to be carried out next
	began  time.Time
}

// attempt takes the lock on the disk for the client in front.
func (lk *lock) attempt(w *waiter) error {
	lk.learn() // an attempt that does not wait learns of no death on the way
	lk.mu.Lock()
	before := lk.arrived
	lk.mu.Unlock()
	mode := w.req.Mode
	if lk.doomed {
		mode = layout.Exclusive // to remove it
	}
	now := time.Now()
	lk.trying = attempt{on: true, mode: w.req.Mode, try: w.req.Try, before: before, began: now, action: lk.m.Acquire(bakery.Request{
		Mode:  mode,
		Clock: lk.d.clockNumber(),
		Try:   w.req.Try,
	})}
	return lk.pursue()
}

// pursue carries an attempt on to its end.
func (lk *lock) pursue() error {
	t := &lk.trying
	for t.action.Kind != bakery.Granted && t.action.Kind != bakery.Done {
		if lk.helped && t.action.Kind != bakery.Write && t.action.Kind != bakery.Read {
			return errLeft
		}
		if !lk.tryWanted() {
			lk.m.Cancel()
		}
		a, err := lk.step(t.action, t.began, lk.tryWanted)
		if err != nil {
			return err
		}
		t.action = a
	}
	a, before := t.action, t.before
	lk.trying = attempt{}
	return lk.concluded(a, before, false)
}

// tryWanted tells whether the client in front wants what is being attempted.
func (lk *lock) tryWanted() bool {
	f := lk.front()
	return f != nil && f.req.Mode == lk.trying.mode && f.req.Try == lk.trying.try
}

// concluded carries on from where an attempt has ended.
func (lk *lock) concluded(a bakery.Action, before uint64, used bool) error {
	switch {
	case a.Kind == bakery.Granted && lk.doomed:
		var err error
		if lk.doomed, err = lk.condemned(); err != nil { // that host may be back since
			return err
		}
		if lk.doomed {
			return lk.completeRemoval()
		}
		creation, err := lk.creation() // it may have cleared the entry before it came back
		if err != nil {
			return err
		}
		if creation != lk.entry.Creation {
			if _, err := lk.protocol(lk.m.Release(), always); err != nil {
				return err
			}
			return errSuperseded
		}
		lk.hold(before, used)
		return nil
	case a.Kind == bakery.Granted:
		lk.hold(before, used)
		return nil
	}
	switch a.Outcome {
	case bakery.Busy:
		lk.noteBusy()
		lk.refuse(api.ErrBusy, func(x *waiter) bool { return x.req.Try })
	case bakery.Superseded, bakery.Removed: // the latter by the bakeryd before this one
		return errSuperseded
	case bakery.Exhausted:
		lk.refuse(lk.exhausted(), everybody)
	}
	return nil
}

func (lk *lock) exhausted() error {
	return fmt.Errorf("%w: the numbers of lock %q are used up; use another name", api.ErrDamaged, lk.entry.Name)
}

// protocol carries out what the machine asks for, until it has ended or
// entered. Once nobody wants what was asked for, it gives up.
func (lk *lock) protocol(a bakery.Action, wanted func() bool) (bakery.Action, error) {
	began := time.Now()
	for {
		if a.Kind == bakery.Granted || a.Kind == bakery.Done {
			return a, nil
		}
		if !wanted() {
			lk.m.Cancel()
		}
		var err error
		if a, err = lk.step(a, began, wanted); err != nil {
			return a, err
		}
	}
}

// step carries out one action and reports it.
func (lk *lock) step(a bakery.Action, began time.Time, wanted func() bool) (bakery.Action, error) {
	switch a.Kind {
	case bakery.Write:
		if err := lk.write(a.Slot); err != nil {
			return a, err
		}
		lk.noteSlot(a.Slot)
		return lk.m.Written(), nil
	case bakery.Read:
		views, err := lk.readAll()
		if err != nil {
			return a, err
		}
		if lk.stale() {
			return a, errSuperseded
		}
		if err := lk.intact(views[lk.area.host-1]); err != nil {
			return a, err
		}
		return lk.m.SlotsRead(views), nil
	case bakery.Poll:
		return lk.poll(a, began, wanted)
	case bakery.ReadHosts:
		hosts, read, err := lk.d.mem.readHosts()
		if err != nil {
			return a, err
		}
		lk.judgedAt = read // so that it is not news to a poll, which would read all again without a pause
		return lk.m.HostsRead(hosts), nil
	case bakery.ReadDirectory:
		// The intents first: one that is gone by then was carried out before the entry is read, or never is.
		doomed, err := lk.condemned()
		if err != nil {
			return a, err
		}
		lk.doomed = doomed
		creation, err := lk.creation()
		if err != nil {
			return a, err
		}
		return lk.m.DirectoryRead(creation), nil
	case bakery.ClearDirectory:
		if err := lk.clearEntry(a.Slot.Creation); errors.Is(err, errIntended) || errors.Is(err, api.ErrStuck) {
			lk.refuse(err, func(w *waiter) bool { return w.req.remove })
			return lk.m.DirectoryKept(), nil
		} else if err != nil {
			return a, err
		}
		return lk.m.DirectoryCleared(), nil
	}
	panic(fmt.Sprintf("daemon: action %d of lock %q", a.Kind, lk.entry.Name))
}

// write writes the own slot until that is durable. A slot is only ever
// written by this goroutine, so never while a write of it is under way.
func (lk *lock) write(s bakery.Slot) error {
	return lk.persist("writing a slot failed, retrying", lk.area.slotAt(lk.area.host), func() error {
		return lk.area.write(s, lk.holder(s.Phase))
	})
}

// holder is what the slot tells people of who holds the lock.
func (lk *lock) holder(p layout.Phase) layout.Holder {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if p != layout.Held || len(lk.holds) == 0 {
		return lk.nesting(p)
	}
	h := lk.holds[0]
	return layout.Holder{PID: h.req.PID, Since: h.since, Command: h.req.Command}
}

func (lk *lock) readAll() (views []bakery.View, err error) {
	err = lk.persist("reading slots failed, retrying", lk.area.slotAt(1), func() error {
		lk.readAt = lk.d.clock.Now()
		views, err = lk.area.read(lk.d.mem.highest())
		return err
	})
	return views, err
}

// creation is that of the lock's directory entry now, 0 if it is another's.
func (lk *lock) creation() (creation uint64, err error) {
	if lk.entry == lockspace.DirectoryEntry {
		return lockspace.DirectoryCreation, nil
	}
	stopping, tries := false, 0
	err = lk.persist("reading a directory entry failed, retrying", lk.d.sb.Geometry.Entry(lk.entry.Lock), func() error {
		e, err := lk.d.dir.on(lk.dev).read(lk.entry.Lock)
		if err == nil && e.Name == lk.entry.Name {
			creation = e.Creation
		}
		if lockspace.IsBadSector(err) || undecodable(err) {
			lk.d.complainOfEntries([]int{lk.entry.Lock}, false)
		}
		if stopping = err != nil && lk.d.stopping(); stopping {
			return nil
		}
		// Torn by who died clearing it, perhaps: nobody is let in, the removal is completed, and writes it anew.
		if tries++; lk.doomed && tries >= slotTries && (lockspace.IsBadSector(err) || undecodable(err)) {
			creation = lk.entry.Creation
			return nil
		}
		return err
	})
	if stopping {
		err = errStopped // nobody is inside, and a host that has left takes no part
	}
	return creation, err
}

// persist tries until it succeeds or the lease is lost. Nothing is begun that
// the lease has no time for. A client's goroutine tries once. at is the first
// byte of the IO.
func (lk *lock) persist(message string, at int64, try func() error) error {
	series := lk.dev.series(at)
	defer series.end()
	for {
		select {
		case <-lk.d.mem.lost:
			return api.ErrLeaseLost
		default:
		}
		if ok, changed := lk.d.mem.mayWrite(); !ok { // about to end, or to be renewed
			if lk.helped {
				return errLeft
			}
			select {
			case <-changed:
				continue
			case <-lk.d.mem.lost:
				return api.ErrLeaseLost
			}
		}
		series.begin()
		err := try()
		if err == nil {
			return nil
		}
		series.failed(err)
		if lk.warn.Allow() {
			lk.d.log.Warn(message, "lock", lk.entry.Name, "err", err)
		}
		if lk.helped {
			return errLeft
		}
		if !lk.pause(lk.d.retry()) {
			return api.ErrLeaseLost
		}
	}
}

// retry is how long to wait after an IO that failed.
func (d *Daemon) retry() time.Duration { return d.times().Retry() }

// pause waits; false if the lease was lost meanwhile.
func (lk *lock) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-lk.d.mem.lost:
		return false
	}
}
