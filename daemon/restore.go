package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
)

// Restart: a bakeryd that is started again within the lease goes on with the
// incarnation of the one before, by the journal that it left. Holds and places
// are restored before any client is served; then their clients come back.

// minReturn is the least that the clients of those who waited get to come back.
const minReturn = 2 * time.Second

// errAbsent ends the wait of a client that did not come back after a restart.
var errAbsent = fmt.Errorf("%w: it did not come back after a restart", api.ErrLost)

// predecessor is a bakeryd of this boot that has ended without leaving.
type predecessor struct {
	mu       sync.Mutex // of abandon
	stopped  bool       // abandon is done
	journal  *handover.File
	term     handover.Term
	sessions []handover.Session
	ended    time.Duration          // it had by then
	heir     atomic.Pointer[member] // goes on with its lease; nil: nobody, or not yet
}

// expires is when its lease ends, or that of who goes on with it.
func (p *predecessor) expires(t lease.Times) time.Duration {
	if heir := p.heir.Load(); heir != nil {
		return heir.moments().deadline
	}
	return p.term.T0 + t.Lease
}

// findPredecessor looks for a journal to go on with, and takes the lock file
// of its host id: by that the predecessor has ended, and has no write under
// way any more. It waits a little for one that is about to end.
func (d *Daemon) findPredecessor(ctx context.Context, ids *hostid.Identity) *predecessor {
	for _, path := range handover.Find(ids.RuntimeDir, d.sb.UUID) {
		of, err := handover.OwnerOf(path)
		if err != nil || d.cfg.HostID != 0 && of.Host != d.cfg.HostID {
			continue
		}
		if err := d.awaitEnd(ctx, ids, of.Host); err != nil {
			continue // in use, by a bakeryd of another lockspace's socket perhaps
		}
		j, term, sessions, err := handover.Resume(ids.RuntimeDir, d.sb.UUID, of.Host, d.clock.Now())
		if err == nil {
			if err = fits(d.sb.Geometry, term, sessions); err != nil {
				j.Close()
			}
		}
		if err == nil {
			return &predecessor{journal: j, term: term, sessions: sessions, ended: d.clock.Now()}
		}
		d.log.Warn("the state of the bakeryd before cannot be used, joining anew", "err", err)
		d.disown(ctx, of.Host)
	}
	d.disownForgotten(ctx, ids)
	return nil
}

// disown stops what a bakeryd before has left running under a host id, whose lock file is held: nobody knows what it holds.
func (d *Daemon) disown(ctx context.Context, host int) {
	if err := d.stopStrays(ctx, host, nil); err != nil {
		d.log.Warn("stopping the commands of the bakeryd before failed", "err", err)
	}
	d.ids.Release()
}

// disownForgotten does so where there are commands, and no state: at once, for from the end of that lease others may have
// what they run under, and it may take longer to join.
func (d *Daemon) disownForgotten(ctx context.Context, ids *hostid.Identity) {
	for _, host := range liveness.Hosts(ids.RuntimeDir, d.sb.UUID) {
		_, err := os.Stat(handover.Path(ids.RuntimeDir, d.sb.UUID, host))
		if d.cfg.HostID != 0 && host != d.cfg.HostID || !errors.Is(err, os.ErrNotExist) || ids.Claim(host) != nil {
			continue // another bakeryd's, that runs
		}
		d.log.Warn("commands of a bakeryd before are left, and no state of it", "host_id", host)
		d.disown(ctx, host)
	}
}

// fits tells whether what a journal speaks of is there at all.
func fits(g layout.Geometry, term handover.Term, sessions []handover.Session) error {
	if term.HostID > g.Hosts {
		return fmt.Errorf("it is of host id %d, and there are %d", term.HostID, g.Hosts)
	}
	for _, s := range sessions {
		if s.Lock > g.Locks {
			return fmt.Errorf("it has session %s in lock %d, and there are %d", s.ID, s.Lock, g.Locks)
		}
	}
	return nil
}

// awaitEnd takes the lock file of a host id, which another process may still
// have. Where no id was given that may as well be one that goes on.
func (d *Daemon) awaitEnd(ctx context.Context, ids *hostid.Identity, host int) error {
	give := time.Now().Add(4 * joinAgain)
	if d.cfg.HostID != 0 {
		give = time.Now().Add(d.times().Renew())
	}
	for {
		err := ids.Claim(host)
		if err == nil || !errors.Is(err, hostid.ErrTaken) || time.Now().After(give) {
			return err
		}
		select {
		case <-time.After(joinAgain):
		case <-ctx.Done():
			return err
		}
	}
}

// past is what a predecessor left of one lock.
type past struct {
	slot    bakery.Slot
	entered bool // the slot's ticket was granted to somebody
	shared  bool // and is noted as held by who shares it
	rewrite bool // the slot cannot be read: what it has to show is known from the grants
}

// goOn carries on from where the predecessor stood in this lock.
func (lk *lock) goOn() error {
	p := lk.past
	if p == nil {
		var v bakery.View
		tries := 0
		err := lk.persist("reading the own slot failed, retrying", lk.area.slotAt(lk.area.host), func() (err error) {
			v, err = lk.ownSlot(&tries)
			return err
		})
		if err != nil || !v.Readable || v.Slot.Incarnation != lk.area.mine || v.Slot.Phase == layout.Idle {
			return err
		}
		p = &past{slot: v.Slot} // left by a predecessor, who could not be told by the entry
	}
	lk.past = nil
	a := lk.m.Resume(p.slot, p.entered)
	// A change of mode was under way. Others may be inside who share the lock.
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
		f := lk.front()
		return f != nil && f.req.Mode == p.slot.Mode && !f.req.Try
	})
	if err != nil {
		return err
	}
	// A hold that the slot shows has granted, whatever the journal says.
	return lk.concluded(a, 0, p.entered || p.slot.Phase == layout.Held)
}

// ownSlot reads the own slot. One that cannot be read is an error for the first
// slotTries: what it has is lost when it is written anew, so it is not taken
// for lost because of a fault that passes.
func (lk *lock) ownSlot(tries *int) (bakery.View, error) {
	v, err := lk.area.readOne(lk.area.host)
	if *tries++; err == nil && !v.Readable && *tries < slotTries {
		err = fmt.Errorf("own slot in lock %d: %w", lk.entry.Lock, api.ErrUnreadable)
	}
	return v, err
}

// restore gives every lock of the predecessor's back to its clients. Slots
// that nobody wants any more are let go.
func (d *Daemon) restore(p *predecessor) error {
	p.heir.Store(d.mem)
	byLock := map[int][]handover.Session{}
	for _, r := range p.sessions {
		byLock[r.Lock] = append(byLock[r.Lock], r)
	}
	entries, err := d.scanEntries()
	if err != nil {
		return err
	}
	for _, r := range p.sessions {
		if _, ok := entries[r.Lock]; !ok { // the entry is damaged
			entries[r.Lock] = layout.Entry{Lock: r.Lock, Name: r.Name, Creation: r.Creation, Permits: max(r.LockPermits, r.Permits, 1)}
		}
	}
	// By then they have stopped who were told of the latest end of the lease, which the journal may not have had yet.
	until := p.ended + d.times().Dead()
	for _, e := range entries {
		if e.Free() && e.Lock != lockspace.DirectoryLock && len(byLock[e.Lock]) == 0 {
			continue
		}
		if err := d.restoreLock(e, byLock[e.Lock], until); err != nil {
			return err
		}
	}
	return nil
}

// scanEntries returns all entries that can be read, free ones and that of the
// internal lock too.
func (d *Daemon) scanEntries() (map[int]layout.Entry, error) {
	entries := map[int]layout.Entry{lockspace.DirectoryLock: lockspace.DirectoryEntry}
	part := new(atomic.Bool) // the bakeryd before this one may have left any slot in use
	part.Store(true)
	dev := lockDevice{Device: d.dev, watch: d.stalls, clock: d.clock, lock: lockspace.DirectoryLock, part: part}
	err := d.untilLost("reading the lock directory failed, retrying", dev.series(d.sb.Geometry.Entry(1)), func() error {
		s, err := d.dir.on(dev).scan()
		if err != nil {
			return err
		}
		for _, e := range s.entries {
			entries[e.Lock] = e
		}
		return nil
	})
	return entries, err
}

// untilLost tries until it succeeds or the lease is lost.
func (d *Daemon) untilLost(message string, s series, try func() error) error {
	defer s.end()
	for {
		s.begin()
		err := try()
		if err == nil {
			return nil
		}
		s.failed(err)
		d.log.Warn(message, "err", err)
		select {
		case <-time.After(d.retry()):
		case <-d.mem.lost:
			return api.ErrLeaseLost
		}
	}
}

// restoreLock starts a lock where the predecessor has left it, if it has left
// anything of it.
func (d *Daemon) restoreLock(e layout.Entry, records []handover.Session, until time.Duration) error {
	lk := d.newLock(e)
	var v bakery.View
	tries := 0
	err := d.untilLost("reading an own slot failed, retrying", lk.dev.series(lk.area.slotAt(lk.area.host)), func() (err error) {
		v, err = lk.ownSlot(&tries)
		return err
	})
	if err != nil {
		return err
	}
	p := lk.judge(v, d.mem.incarnation(), records)
	if p == nil && len(records) == 0 {
		return nil
	}
	lk.past = p
	slices.SortFunc(records, func(a, b handover.Session) int { return int(int64(a.Nth - b.Nth)) })
	for _, r := range records {
		d.sessions.restore(lk, r, until)
	}
	d.mu.Lock()
	d.start(lk)
	d.mu.Unlock()
	return nil
}

// judge says where the own slot stands; nil: nowhere. Whether its ticket was
// granted only the journal tells: by the fast path a holder shows choosing.
// Who was removing the lock had no more holders by that ticket.
func (lk *lock) judge(v bakery.View, incarnation uint64, records []handover.Session) *past {
	if v.Readable {
		removal := v.Slot.Creation > lk.entry.Creation
		if v.Slot.Incarnation != incarnation || v.Slot.Phase == layout.Idle && !removal {
			return nil
		}
		p := &past{slot: v.Slot}
		for _, r := range records {
			entered := r.Ticket() == v.Slot.Ticket && !removal
			p.entered = p.entered || entered
			p.shared = p.shared || entered && r.State == handover.Granted && r.Mode == layout.Shared
		}
		return p
	}
	for _, r := range records {
		if r.State == handover.Granted && r.Creation == lk.entry.Creation {
			return &past{entered: true, rewrite: true, slot: bakery.Slot{
				Incarnation: incarnation, Creation: r.Creation, Ticket: r.Ticket(), Phase: layout.Held, Mode: r.Mode,
			}}
		}
	}
	return nil // healed like any other
}

// restore makes a session of a record, in the queue or with its hold. A hold
// that the slot does not show is over.
func (ss *sessions) restore(lk *lock, r handover.Session, until time.Duration) {
	s := ss.make(r.ID)
	s.since, s.nth, s.kept, s.limbo, s.lk = r.Since, r.Nth, true, true, lk
	s.peer, s.uid = process.ID{PID: r.Peer, Started: r.PeerStarted}, r.PeerUID
	s.regroup(r)
	s.unconfirmed, s.alone = r.Unconfirmed, !r.Witness
	s.req = Request{
		Name: r.Name, Mode: r.Mode, Permits: r.Permits, PID: r.PID, Command: r.Command,
		Gone: s.gone, OnWaiting: s.waiting, OnRequest: s.requested, session: s,
	}
	if r.Witness && r.State != handover.Released {
		var err error
		if s.fifo, err = liveness.Open(filepath.Join(ss.d.ids.RuntimeDir, liveness.Name(ss.d.sb.UUID, ss.d.mem.id(), s.id)), r.PeerUID); err != nil {
			ss.d.log.Warn("the witness of a hold cannot be used", "lock", r.Name, "err", err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	lk.mu.Lock() // those restored before may be about to go
	defer lk.mu.Unlock()
	lk.arrived = max(lk.arrived, r.Nth)
	same := r.Creation == lk.entry.Creation
	switch ok := same && lk.past != nil && lk.past.entered && r.Ticket() == lk.past.slot.Ticket; {
	case r.State == handover.Waiting && same:
		s.noteResumed(lk, 0)
		w := newWaiter(s.req)
		w.nth, w.since = r.Nth, r.Since
		lk.queue = append(lk.queue, w)
		ss.add(s)
		ss.tasks.Go(func() { s.waitOn(ctx, w) })
	case r.State == handover.Granted && ok:
		s.noteResumed(lk, r.Token)
		s.hold = &Hold{lk: lk, req: s.req, token: r.Token, since: r.Since, released: make(chan struct{})}
		lk.holds = append(lk.holds, s.hold)
		close(s.done)
		ss.add(s)
		ss.tasks.Go(func() { s.awaitReturn(until) })
	case ok: // let go, but the disk did not have it
		lk.leaving = append(lk.leaving, &Hold{lk: lk, req: s.req, token: r.Token, released: make(chan struct{})})
	default:
		if r.State == handover.Granted {
			ss.d.log.Error("the disk does not show a hold that was kept, stopping its command", "lock", r.Name, "token", r.Token)
			ss.tasks.Go(func() { s.stopCommand(ctx) })
		} else if s.fifo != nil {
			_ = s.fifo.Remove() // of a lock that is another one now: who waited asks anew
		}
		s.unkeep()
	}
}

func (ss *sessions) add(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.put(s)
}

// waitOn goes on waiting, in the old place, for as long as the client may come
// back.
func (s *session) waitOn(ctx context.Context, w *waiter) {
	d := s.all.d
	s.all.tasks.Go(func() {
		var give time.Duration // counted from when clients are served
		for s.poll(ctx) && s.absent() {
			if give == 0 && d.hasJoined() {
				give = d.clock.Now() + max(minReturn, d.times().Renew())
			}
			if s.clientGone() || give != 0 && d.clock.Now() > give {
				s.giveUp(errAbsent)
			}
		}
	})
	h, err := s.lk.await(ctx, w)
	if errors.Is(err, errSuperseded) {
		h, err = d.Acquire(ctx, s.req)
	} else {
		d.noteRefused(&s.req, s.lk, w.since, err)
	}
	s.finish(h, err)
}

// awaitReturn waits until the client of a restored hold has come back. One
// that is gone has let go by that, unless its command lives; so has one that
// is not back when the lease is over that it was told of, and what it can be
// expected to have stopped by then. One that is stopped itself has stopped
// nothing: then a command that does not hold the lock is killed before.
func (s *session) awaitReturn(until time.Duration) {
	const stay = 0 // nobody has come yet
	for s.poll(context.Background()) && s.absent() {
		if !s.clientGone() && s.all.d.clock.Now() < until {
			continue
		}
		switch {
		case s.running():
			s.outlive(stay)
		case !s.clientGone() && s.remains():
			s.killAndRelease(stay, "its client did not come back after a restart")
		default:
			s.all.d.log.Info("holder did not come back, releasing its lock", "lock", s.req.Name, "token", s.hold.token, "pid", s.req.PID)
			s.release(stay, "its client did not come back after a restart")
		}
		return
	}
}

// poll waits a little; false: no use any more.
func (s *session) poll(ctx context.Context) bool {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.all.d.ended:
	}
	return false
}

// mind stops the commands of a predecessor when its lease ends, unless it is
// gone on with before.
func (d *Daemon) mind(ctx context.Context, p *predecessor) {
	alarm, err := d.clock.NewAlarm()
	if err != nil {
		d.log.Error("no timer: commands of the bakeryd before are stopped when the host has joined", "err", err)
		return
	}
	defer alarm.Close()
	defer context.AfterFunc(ctx, alarm.Close)()
	for at := p.expires(d.times()); d.clock.Now() < at; at = p.expires(d.times()) { // it moves, once there is an heir
		if alarm.Set(at) != nil || alarm.Wait() != nil {
			return
		}
	}
	if d.left.Load() == nil {
		return
	}
	switch err := d.abandon(ctx, p); {
	case err == nil:
		d.left.CompareAndSwap(p, nil)
	case ctx.Err() == nil:
		d.log.Error("stopping the commands of the bakeryd before failed", "err", err)
	}
}

// abandon ends what a predecessor left when it cannot be gone on with: its
// commands are stopped, and it returns when they are gone. From the end of its
// lease others may have its locks.
func (d *Daemon) abandon(ctx context.Context, p *predecessor) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	left := make([]*session, 0, len(p.sessions))
	for _, r := range p.sessions {
		s := d.sessions.make(r.ID)
		s.req.Name, s.req.PID = r.Name, r.PID
		s.peer = process.ID{PID: r.Peer, Started: r.PeerStarted}
		if r.State == handover.Granted { // else its group has a process that waits to become the command
			s.regroup(r)
		}
		if r.Witness {
			s.fifo, _ = liveness.Open(filepath.Join(d.ids.RuntimeDir, liveness.Name(p.term.UUID, p.term.HostID, r.ID)), r.PeerUID)
		}
		if s.remains() {
			d.log.Warn("stopping a command of the bakeryd before: its lease is over", "lock", r.Name, "pid", r.PID, "command", r.Command)
		}
		left = append(left, s)
	}
	// All are stopped at the same time: one may not end.
	table, _ := process.Table() // stopCommand reads it again, and reports errors
	for _, s := range left {
		_, _ = s.killGroup(table) // tried again
	}
	errs := make([]error, len(left))
	var all sync.WaitGroup
	for i, s := range left {
		all.Go(func() { errs[i] = s.stopCommand(ctx) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.stopped = true
	return p.journal.Discard()
}
