package session

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
)

// event returns one with the fields that all events of the session have.
func (s *Session) event(kind events.Kind) events.Event {
	s.mu.Lock()
	e := s.req.Event(kind)
	s.mu.Unlock()
	if s.decided() && s.hold != nil {
		e.Token = s.hold.Token()
	}
	return e
}

func (s *Session) noteOrphan() {
	e := s.event(events.Orphan)
	e.Reason = "its client is gone, its running processes keep the lock"
	s.all.cfg.Events.Add(e)
}

// noteResumed records that a restart kept a hold, or without a token a place in the queue.
func (s *Session) noteResumed(lk *locks.Lock, token layout.Ticket) {
	e := s.req.Event(events.Resumed)
	e.Token = token
	if lk.Entry.Permits > 1 {
		e.Permits = lk.Entry.Permits
	}
	if since := time.Since(s.since).Milliseconds(); token != 0 {
		e.HeldMS = since
	} else {
		e.WaitedMS = since
	}
	s.all.cfg.Events.Add(e)
}
