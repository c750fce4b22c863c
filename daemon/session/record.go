package session

import (
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/layout"
)

// record returns the session's record for the handover file.
func (s *Session) record(state handover.State, token layout.Ticket, lk *queue.Queue) handover.Session {
	return handover.Session{
		ID: s.ID, Nth: s.nth, State: state, Name: s.req.Name, Lock: lk.Entry.Lock, Creation: lk.Entry.Creation,
		Mode: s.req.Mode, Permits: s.req.Permits, LockPermits: lk.Entry.Permits, PID: s.req.PID, Command: s.req.Command,
		Peer: s.Peer.PID, PeerStarted: s.Peer.Started, PeerUID: s.UID, Token: token, Since: s.since, Witness: s.FIFO != nil, Cgroup: s.CgroupDir(),
		Unconfirmed: s.unconfirmed && state == handover.Granted,
	}
}

// keep queues the session for the handover file. A grant must be there before any client is sent it
// (finish): a next process that did not know of it would give the ticket to another client. If the
// write fails, the handover file is given up.
func (s *Session) keep(state handover.State, token layout.Ticket, lk *queue.Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// a client that does not wait requests it again
	if s.all.cfg.Handover == nil || state == handover.Waiting && (s.kept || s.req.Try) {
		return
	}
	if state == handover.Waiting {
		s.unkept = lk // written before its place is sent; most clients do not wait that long
		s.tellSoon()
		return
	}
	s.put(state, token, lk)
}

// KeepPlace queues the place among the clients for the handover file.
func (s *Session) KeepPlace(lk *queue.Queue) { s.keep(handover.Waiting, 0, lk) }

// KeepRelease queues for the handover file that the client has released the lock.
func (s *Session) KeepRelease(lk *queue.Queue, token layout.Ticket) {
	s.keep(handover.Released, token, lk)
}

// KeepGrant queues a new grant for the handover file.
func (s *Session) KeepGrant(lk *queue.Queue, token layout.Ticket) {
	s.mu.Lock()
	s.unconfirmed = s.attached != nil && s.attached.confirms
	s.mu.Unlock()
	s.keep(handover.Granted, token, lk)
}

// confirmed records that a command may begin. The next process must know that before the client
// does (Saved). Called with mu held.
func (s *Session) confirmed() {
	if !s.unconfirmed {
		return
	}
	s.unconfirmed = false
	if s.kept {
		s.put(handover.Granted, s.hold.Token(), s.hold.Queue())
	}
}

// put queues the record for the handover file. Called with mu held.
func (s *Session) put(state handover.State, token layout.Ticket, lk *queue.Queue) {
	s.kept, s.unkept = true, nil
	s.queue(s.all.cfg.Handover.QueuePut(s.record(state, token, lk)))
}

// queue records the number of a change. Called with mu held.
func (s *Session) queue(change uint64) { s.lastSave = max(s.lastSave, change) }

// Saved blocks until the handover file has the session as it is now. Called without any mutex.
func (s *Session) Saved() {
	s.mu.Lock()
	last := s.lastSave
	s.mu.Unlock()
	if last == 0 {
		return
	}
	if err := s.all.cfg.Handover.Wait(last); err != nil {
		s.all.cfg.Log.Error("writing the handover file failed: a restart of bakeryd will lose all locks of this host", "err", err)
	}
}

// Forget removes the session from the handover file, once no client holds by its ticket, or the
// slot shows the state itself.
func (s *Session) Forget() {
	s.mu.Lock()
	s.unkept = nil
	if s.kept {
		s.kept = false
		s.queue(s.all.cfg.Handover.QueueRemove(s.ID))
	}
	s.mu.Unlock()
	s.Saved()
}
