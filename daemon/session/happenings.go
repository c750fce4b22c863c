package session

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/observe"
	"github.com/bakeryd/bakeryd/layout"
)

// happening returns one with the fields that all happenings of the session have.
func (s *Session) happening(kind events.Kind) observe.Happening {
	s.mu.Lock()
	e := s.req.Happening(kind)
	s.mu.Unlock()
	if s.decided() && s.hold != nil {
		e.Token = s.hold.Token()
	}
	return e
}

func (s *Session) noteOrphan() {
	e := s.happening(events.Orphan)
	e.Reason = "its client is gone, its running processes keep the lock"
	s.all.cfg.Observer.Observe(e)
}

// noteResumed records that a restart kept a hold, or without a token a place in the queue.
func (s *Session) noteResumed(lk *locks.Lock, token layout.Ticket) {
	e := s.req.Happening(events.Resumed)
	e.Token = token
	if lk.Entry.Permits > 1 {
		e.Permits = lk.Entry.Permits
	}
	if since := time.Since(s.since); token != 0 {
		e.Held = since
	} else {
		e.Waited = since
	}
	s.req.ReportResumed(s.all.cfg.Observer, e)
}
