package daemon

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/layout"
)

// What happens to the clients of locks and their commands; what happens to locks is in
// happenings.go.

// noteKill records, once per signal, that processes under a lock were sent a signal.
func (s *session) noteKill(why string, signal syscall.Signal, processes int) {
	if processes == 0 {
		return
	}
	s.mu.Lock()
	noted := s.stopped == signal
	s.stopped = signal
	s.mu.Unlock()
	if noted {
		return
	}
	e := s.happening(events.Kill)
	e.Reason = fmt.Sprintf("%s to %s: %s", unix.SignalName(signal), countOf(processes, "process", "processes"), why)
	s.all.d.observer.Observe(e)
}

// happening returns one with the fields that all happenings of the session have.
func (s *session) happening(kind events.Kind) Happening {
	h := Happening{Kind: kind}
	if s.decided() && s.hold != nil {
		h.Token = s.hold.token
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	req := s.req
	h.Request = &req
	return h
}

func countOf(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func (s *session) noteOrphan() {
	e := s.happening(events.Orphan)
	e.Reason = "its client is gone, its running processes keep the lock"
	s.all.d.observer.Observe(e)
}

// noteResumed records that a restart kept a hold, or without a token a place in the queue.
func (s *session) noteResumed(lk *lock, token layout.Ticket) {
	h := Happening{Kind: events.Resumed, Entry: lk.entry, Request: &s.req, Token: token}
	if since := time.Since(s.since); token != 0 {
		h.Held = since
	} else {
		h.Waited = since
	}
	s.all.d.observer.Observe(h)
}

// noteAtRisk records that this host's lease is about to end, unless it is over already or the host
// is leaving.
func (d *Daemon) noteAtRisk(m membership.Moments, leaving bool) {
	if !m.Lost && !leaving {
		left := max(0, m.Deadline-d.clock.Now()).Round(time.Millisecond)
		d.cfg.Events.Add(events.Event{Kind: events.AtRisk, Reason: "its lease is not renewed and ends in " + left.String()})
	}
}
