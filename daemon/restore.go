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
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
)

// Restart: a bakeryd that is restarted within the lease continues the incarnation of the previous
// one, from the handover file that it left. It restores holds and places in queues before it serves
// any client. Then their clients reconnect.

// minReturn is the minimum time for waiting clients to reconnect.
const minReturn = 2 * time.Second

// errAbsent ends the wait of a client that did not reconnect after a restart.
var errAbsent = fmt.Errorf("%w: its client did not come back after a restart", api.ErrLost)

// previousProcess is a bakeryd of this boot that has ended without leaving the lockspace.
type previousProcess struct {
	mu       sync.Mutex // serializes abandon
	stopped  bool       // abandon is done
	journal  *handover.File
	term     handover.Term
	sessions []handover.Session
	ended    time.Duration                     // time by which it had ended
	heir     atomic.Pointer[membership.Member] // continues its lease; nil if none, or not yet
}

// expires returns when its lease ends, or the lease of the process that continues it.
func (p *previousProcess) expires(t lease.Times) time.Duration {
	if heir := p.heir.Load(); heir != nil {
		return heir.Moments().Deadline
	}
	return p.term.T0 + t.Lease
}

// findPreviousProcess looks for a handover file to continue from, and takes the lock file of its host
// id. With that lock file, the previous process has ended and has no write in flight. It waits for
// a process that is about to end, as long as awaitEnd does.
func (d *Daemon) findPreviousProcess(ctx context.Context, ids *hostid.Identity) *previousProcess {
	for _, path := range handover.Find(ids.RuntimeDir, d.sb.UUID) {
		of, err := handover.ParsePath(path)
		if err != nil || d.cfg.HostID != 0 && of.Host != d.cfg.HostID {
			continue
		}
		if err := d.awaitEnd(ctx, ids, of.Host); err != nil {
			// in use, possibly by a bakeryd with another socket
			continue
		}
		j, term, sessions, err := handover.Resume(ids.RuntimeDir, d.sb.UUID, of.Host, d.clock.Now())
		if err == nil {
			if err = fits(d.sb.Geometry, term, sessions); err != nil {
				j.Close()
			}
		}
		if err == nil {
			return &previousProcess{journal: j, term: term, sessions: sessions, ended: d.clock.Now()}
		}
		d.log.Warn("handover file not usable, joining as a new incarnation", "err", err)
		d.disown(ctx, of.Host)
	}
	d.disownForgotten(ctx, ids)
	return nil
}

// disown stops the commands that a previous bakeryd left under a host id: it is not known which
// locks they hold. Called with the id's lock file held.
func (d *Daemon) disown(ctx context.Context, host int) {
	if err := d.stopStrays(ctx, host, nil); err != nil {
		d.log.Warn("stopping the commands of the previous bakeryd failed", "err", err)
	}
	d.ids.ReleaseLockFiles()
}

// disownForgotten does that for ids that have commands and no handover file. It does so
// immediately: other hosts may have their locks when that lease ends, and joining may take longer.
func (d *Daemon) disownForgotten(ctx context.Context, ids *hostid.Identity) {
	for _, host := range liveness.Hosts(ids.RuntimeDir, d.sb.UUID) {
		_, err := os.Stat(handover.Path(ids.RuntimeDir, d.sb.UUID, host))
		if d.cfg.HostID != 0 && host != d.cfg.HostID || !errors.Is(err, os.ErrNotExist) || ids.TakeLockFile(host) != nil {
			continue // of another running bakeryd
		}
		d.log.Warn("a previous bakeryd left commands and no state, stopping them", "host_id", host)
		d.disown(ctx, host)
	}
}

// fits returns an error if a handover file names a host id or a lock that does not exist.
func fits(g layout.Geometry, term handover.Term, sessions []handover.Session) error {
	if term.HostID > g.Hosts {
		return fmt.Errorf("it is of host id %d, want 1 to %d", term.HostID, g.Hosts)
	}
	for _, s := range sessions {
		if s.Lock > g.Locks {
			return fmt.Errorf("it has session %s in lock %d, want at most %d", s.ID, s.Lock, g.Locks)
		}
	}
	return nil
}

// awaitEnd takes the lock file of a host id, which another process may still hold. If no id is
// configured, that may be a process that continues to run.
func (d *Daemon) awaitEnd(ctx context.Context, ids *hostid.Identity, host int) error {
	give := time.Now().Add(4 * joinAgain)
	if d.cfg.HostID != 0 {
		give = time.Now().Add(d.times().Renew())
	}
	for {
		err := ids.TakeLockFile(host)
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

// resumeState is what the previous process left of one lock.
type resumeState struct {
	slot    bakery.Slot
	entered bool // the slot's ticket was granted to a client
	shared  bool // and a shared hold was recorded for it
	rewrite bool // the slot is unreadable: its contents are known from the grants
}

// goOn continues from the state in which the previous process left the lock.
func (lk *lock) goOn() error {
	p := lk.past
	if p == nil {
		var v bakery.View
		tries := 0
		err := lk.persist("reading the own slot failed, retrying", lk.slots.slotAt(lk.slots.host), func() (err error) {
			v, err = lk.ownSlot(&tries)
			return err
		})
		if err != nil || !v.Readable || v.Slot.Incarnation != lk.slots.mine || v.Slot.Phase == layout.Idle {
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
	a, err := lk.protocol(a, func() bool {
		f := lk.front()
		return f != nil && f.req.Mode == p.slot.Mode && !f.req.Try
	})
	if err != nil {
		return err
	}
	// A slot that shows a hold has granted it, whatever the handover file says.
	return lk.finishAcquire(a, 0, p.entered || p.slot.Phase == layout.Held)
}

// ownSlot reads the own slot. An unreadable slot is an error for the first slotTries: a rewrite
// destroys its contents, so a passing fault must not count as a loss.
func (lk *lock) ownSlot(tries *int) (bakery.View, error) {
	v, err := lk.slots.readOne(lk.slots.host)
	if *tries++; err == nil && !v.Readable && *tries < slotTries {
		err = fmt.Errorf("own slot in lock %d: %w", lk.entry.Lock, api.ErrUnreadable)
	}
	return v, err
}

// restore returns every lock of the previous process to its clients. It releases slots that no
// client wants any more.
func (d *Daemon) restore(p *previousProcess) error {
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
	// By then all clients have stopped that were told the latest deadline, which the handover file
	// may not have had yet.
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

// scanEntries returns all readable entries, including free ones and that of the directory's lock.
func (d *Daemon) scanEntries() (map[int]layout.Entry, error) {
	entries := map[int]layout.Entry{lockspace.DirectoryLock: lockspace.DirectoryEntry}
	part := new(atomic.Bool) // the previous bakeryd may have left any slot in use
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

// untilLost calls try until it succeeds or the lease is lost.
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
		case <-d.mem.Lost():
			return api.ErrLeaseLost
		}
	}
}

// restoreLock starts a lock in the state in which the previous process left it, if it left any.
func (d *Daemon) restoreLock(e layout.Entry, records []handover.Session, until time.Duration) error {
	lk := d.newLock(e)
	var v bakery.View
	tries := 0
	err := d.untilLost("reading an own slot failed, retrying", lk.dev.series(lk.slots.slotAt(lk.slots.host)), func() (err error) {
		v, err = lk.ownSlot(&tries)
		return err
	})
	if err != nil {
		return err
	}
	p := lk.judge(v, d.mem.Incarnation(), records)
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

// judge returns the state of the own slot, nil if it is not in use. Only the handover file shows
// whether its ticket was granted: after the fast path a holder's slot shows choosing. A process
// that was removing the lock had no more holders by that ticket.
func (lk *lock) judge(v bakery.View, incarnation uint64, records []handover.Session) *resumeState {
	if v.Readable {
		removal := v.Slot.Creation > lk.entry.Creation
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
		if r.State == handover.Granted && r.Creation == lk.entry.Creation {
			return &resumeState{entered: true, rewrite: true, slot: bakery.Slot{
				Incarnation: incarnation, Creation: r.Creation, Ticket: r.Ticket(), Phase: layout.Held, Mode: r.Mode,
			}}
		}
	}
	return nil // repaired like any other
}

// restore creates the session of a record, in the queue or with its hold. A hold that the slot does
// not show is over.
func (ss *sessions) restore(lk *lock, r handover.Session, until time.Duration) {
	s := ss.make(r.ID)
	s.since, s.nth, s.kept, s.awaitingClient, s.lk = r.Since, r.Nth, true, true, lk
	s.peer, s.uid = process.ID{PID: r.Peer, Started: r.PeerStarted}, r.PeerUID
	s.regroup(r)
	s.unconfirmed, s.alone = r.Unconfirmed, !r.Witness
	s.req = Request{
		Name: r.Name, Mode: r.Mode, Permits: r.Permits, PID: r.PID, Command: r.Command,
		Gone: s.gone, OnWaiting: s.waiting, OnRequest: s.requested, client: s,
	}
	if r.Witness && r.State != handover.Released {
		var err error
		if s.fifo, err = liveness.Open(filepath.Join(ss.d.ids.RuntimeDir, liveness.Name(ss.d.sb.UUID, ss.d.mem.ID(), s.id)), r.PeerUID); err != nil {
			ss.d.log.Warn("opening the liveness FIFO of a hold failed", "lock", r.Name, "err", err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	lk.mu.Lock() // sessions restored before may already be ending
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
	case ok: // released, but not on the disk
		lk.leaving = append(lk.leaving, &Hold{lk: lk, req: s.req, token: r.Token, released: make(chan struct{})})
	default:
		if r.State == handover.Granted {
			ss.d.log.Error("the disk does not show a recorded hold, stopping its command", "lock", r.Name, "token", r.Token)
			ss.tasks.Go(func() { s.stopCommand(ctx) })
		} else if s.fifo != nil {
			// of another lock by now: the waiting client requests it again
			_ = s.fifo.Remove()
		}
		s.forget()
	}
}

func (ss *sessions) add(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.put(s)
}

// waitOn continues to wait in the old place, as long as the client may reconnect.
func (s *session) waitOn(ctx context.Context, w *waiter) {
	d := s.all.d
	s.all.tasks.Go(func() {
		var give time.Duration // counted from when clients are served
		for s.poll(ctx) && s.detached() {
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
		d.reportRefused(&s.req, s.lk, w.since, err)
	}
	s.finish(h, err)
}

// awaitReturn waits until the client of a restored hold has reconnected. A client that is gone has
// released the hold, unless its command runs. A client that is not back when the lease that it was
// told of is over counts as gone, too: it must have stopped its command by then. A client that is
// stopped itself has stopped nothing: then a command that does not hold the lock is killed before
// the release.
func (s *session) awaitReturn(until time.Duration) {
	const stay = 0 // no client has connected yet
	for s.poll(context.Background()) && s.detached() {
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

// poll waits 20 ms. It returns false if the wait is over.
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

// mind stops the commands of a previous process when its lease ends, unless its lease is continued
// before.
func (d *Daemon) mind(ctx context.Context, p *previousProcess) {
	alarm, err := d.clock.NewAlarm()
	if err != nil {
		d.log.Error("no timer, commands of the previous bakeryd are stopped only after the host has joined", "err", err)
		return
	}
	defer alarm.Close()
	defer context.AfterFunc(ctx, alarm.Close)()
	// the deadline moves once the lease is continued
	for at := p.expires(d.times()); d.clock.Now() < at; at = p.expires(d.times()) {
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
		d.log.Error("stopping the commands of the previous bakeryd failed", "err", err)
	}
}

// abandon stops the commands of a previous process that cannot be continued, and blocks until they
// have ended. From the end of its lease, other hosts may have its locks.
func (d *Daemon) abandon(ctx context.Context, p *previousProcess) error {
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
		// else its cgroup has a process that waits to become the command
		if r.State == handover.Granted {
			s.regroup(r)
		}
		if r.Witness {
			s.fifo, _ = liveness.Open(filepath.Join(d.ids.RuntimeDir, liveness.Name(p.term.UUID, p.term.HostID, r.ID)), r.PeerUID)
		}
		if s.remains() {
			d.log.Warn("stopping a command of the previous bakeryd, its lease is over", "lock", r.Name, "pid", r.PID, "command", r.Command)
		}
		left = append(left, s)
	}
	// All are stopped at the same time, because one may not end.
	table, _ := process.Table() // stopCommand reads it again, and reports errors
	for _, s := range left {
		_, _ = s.killGroup(table) // stopCommand retries it
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
