package session

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
)

// happening returns one with the fields that all happenings of the session have.
func (s *Session) happening(kind events.Kind) locks.Happening {
	h := locks.Happening{Kind: kind}
	if s.decided() && s.hold != nil {
		h.Token = s.hold.Token()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	req := s.req
	h.Request = &req
	return h
}

func (s *Session) noteOrphan() {
	e := s.happening(events.Orphan)
	e.Reason = "its client is gone, its running processes keep the lock"
	s.all.cfg.Observer.Observe(e)
}

// noteResumed records that a restart kept a hold, or without a token a place in the queue.
func (s *Session) noteResumed(lk *locks.Lock, token layout.Ticket) {
	h := locks.Happening{Kind: events.Resumed, Entry: lk.Entry, Request: &s.req, Token: token}
	if since := time.Since(s.since); token != 0 {
		h.Held = since
	} else {
		h.Waited = since
	}
	s.all.cfg.Observer.Observe(h)
}
