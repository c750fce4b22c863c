package session

import (
	"context"
	"time"

	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
)

// KeepPlace has the place among the clients put into the handover file. A client that does not wait
// requests it again.
func (s *Session) KeepPlace(w *queue.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all.cfg.Handover != nil && !s.kept && !s.req.Try && !s.forgotten && w == s.item {
		s.unkept = true // written before its place is sent; most clients do not wait that long
		s.tellSoon()
	}
}

// KeepRelease puts into the handover file that the client has released the lock.
func (s *Session) KeepRelease() {
	s.keep(func() handover.State {
		s.releases = true
		return handover.Released
	})
}

// KeepGrant puts a new grant into the handover file. It must be there before any client is sent it: a
// next process that did not know of it would give the ticket to another client.
func (s *Session) KeepGrant() {
	s.keep(func() handover.State {
		s.unconfirmed = s.attached != nil && s.attached.confirms
		return handover.Granted
	})
}

// keep calls change with mu held, and puts the session into the handover file in the state that
// change returns; none if it is empty. If that fails, the file is void. The store may block if the
// file is on a disk. Therefore mu, which status and guard need, is not held then, but keeping is,
// which orders the changes.
func (s *Session) keep(change func() handover.State) {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	var r handover.Session
	file := s.all.cfg.Handover
	s.mu.Lock()
	state := change()
	if state != "" && file != nil {
		s.kept, s.unkept = true, false
		r = s.record(state)
	}
	s.mu.Unlock()
	switch {
	case state == "" || file == nil:
	case state == handover.Released:
		file.Release(s.ID)
	default:
		file.Put(r)
	}
}

// record returns the record of the session. Called with mu held.
func (s *Session) record(state handover.State) handover.Session {
	lk, token := s.item.Queue(), layout.Ticket(0)
	if state != handover.Waiting {
		token = s.item.Token()
	}
	return handover.Session{
		ID: s.ID, Nth: s.item.Nth(), State: state, Name: s.req.Name, Lock: lk.Entry.Lock, Creation: lk.Entry.Creation,
		Mode: s.req.Mode, Permits: s.req.Permits, LockPermits: lk.Entry.Permits, PID: s.req.PID, Command: s.req.Command,
		Peer: s.Peer.PID, PeerStarted: s.Peer.Started, PeerUID: s.UID, Token: token, Since: s.since, Witness: s.FIFO != nil, Cgroup: s.CgroupDir(),
		Unconfirmed: s.unconfirmed,
	}
}

// Forget removes the session from the handover file, once no client holds by its ticket, or the
// slot shows the state itself.
func (s *Session) Forget() {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	s.mu.Lock()
	before := s.forgotten
	s.kept, s.unkept, s.forgotten = false, false, true
	s.mu.Unlock()
	if file := s.all.cfg.Handover; file != nil && !before {
		file.Remove(s.ID)
	}
}

// Restart: a bakeryd that is restarted within the lease continues the incarnation of the previous
// one, from the handover file that it left. It restores holds and places in queues before it serves
// any client. Then their clients reconnect.

// MinReturn is the minimum time for waiting clients to reconnect.
const MinReturn = 2 * time.Second

// waitOn continues to wait in the old place, as long as the client may reconnect.
func (s *Session) waitOn(ctx context.Context, h *locks.Hold) {
	ss := s.all
	ss.tasks.Go(func() {
		var give time.Duration // counted from when clients are served
		for s.poll(ctx) && s.Detached() {
			if give == 0 && ss.serving.Load() {
				give = ss.cfg.Clock.Now() + max(MinReturn, ss.cfg.Times.Renew())
			}
			if s.clientGone() || give != 0 && ss.cfg.Clock.Now() > give {
				const stay = 0 // no client has connected yet
				if s.endStay(stay, false) {
					s.cancel(locks.ErrAbsent)
				}
			}
		}
	})
	s.finish(ss.cfg.Locks.AwaitResumed(ctx, h))
}

// awaitReturn waits until the client of a restored hold has reconnected. A client that is gone has
// released the hold, unless its command runs. A client that is not back when the lease that it was
// told of is over counts as gone, too: it must have stopped its command by then. A client that is
// stopped itself has stopped nothing: then a command that does not hold the lock is killed before
// the release.
func (s *Session) awaitReturn(until time.Duration) {
	const stay = 0 // no client has connected yet
	for s.poll(context.Background()) && s.Detached() {
		if !s.clientGone() && s.all.cfg.Clock.Now() < until {
			continue
		}
		switch {
		case s.running():
			s.outlive(stay)
		case !s.clientGone() && s.Remains():
			s.killAndRelease(stay, "its client did not come back after a restart")
		default:
			s.all.cfg.Log.Info("holder did not come back, releasing its lock", "lock", s.req.Name, "token", s.hold.Token(), "pid", s.req.PID)
			s.release(stay, "its client did not come back after a restart")
		}
		return
	}
}

// poll waits 20 ms. It returns false if the wait is over.
func (s *Session) poll(ctx context.Context) bool {
	select {
	case <-time.After(20 * time.Millisecond):
		return true
	case <-ctx.Done():
	case <-s.all.cfg.Ending.Ended:
	}
	return false
}

// Restore creates the session of a record, in the queue or with its hold. A hold that the slot does
// not show is over.
func (ss *Table) Restore(lk *locks.Lock, r handover.Session, until time.Duration) {
	s := ss.make(r.ID)
	s.since, s.kept, s.awaitingClient = r.Since, true, true
	s.Peer, s.UID = process.ID{PID: r.Peer, Started: r.PeerStarted}, r.PeerUID
	s.Regroup(r)
	s.unconfirmed, s.Alone = r.Unconfirmed, !r.Witness
	// Its record does not say whether it is a wrapper's.
	s.request(locks.Request{Name: r.Name, Mode: r.Mode, Permits: r.Permits, PID: r.PID, Command: r.Command, NoLinger: true})
	if r.Witness && r.State != handover.Released {
		var err error
		if s.FIFO, err = liveness.Open(ss.fifoPath(s.ID), r.PeerUID); err != nil {
			ss.cfg.Log.Warn("opening the liveness FIFO of a hold failed", "lock", r.Name, "err", err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	same, granted := lk.Resumes(r)
	switch {
	case r.State == handover.Waiting && same:
		s.noteResumed(lk, 0)
		h := lk.Restore(s.req, r)
		ss.add(s)
		ss.tasks.Go(func() { s.waitOn(ctx, h) })
	case r.State == handover.Granted && granted:
		s.noteResumed(lk, r.Token)
		s.hold = lk.Restore(s.req, r)
		close(s.done)
		ss.add(s)
		ss.tasks.Go(func() { s.awaitReturn(until) })
	case granted: // released, but not on the disk
		lk.Restore(s.req, r)
	default:
		if r.State == handover.Granted {
			ss.cfg.Log.Error("the disk does not show a recorded hold, stopping its command", "lock", r.Name, "token", r.Token)
			ss.tasks.Go(func() { _ = s.Stop(ctx) })
		} else if s.FIFO != nil {
			// of another lock by now: the waiting client requests it again
			_ = s.FIFO.Remove()
		}
		s.Forget()
	}
}
