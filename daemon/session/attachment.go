package session

import (
	"context"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/layout"
)

// Subscriber is the connection of a client. None of its methods blocks.
type Subscriber interface {
	// Gone reports whether the client has closed its end.
	Gone() bool
	// Listening reports whether the client reads what it is sent.
	Listening() bool
	// Send sends an event. After a refusal, the connection may begin another session.
	Send(*api.Event)
	// Close ends the connection.
	Close()
}

// Attachment is the part of one connection in a session. Each client has one at a time: when it
// connects again, the new connection replaces the old one.
type Attachment struct {
	Subscriber
	session  *Session
	start    func() // requests the lock, or sends its outcome; nil if another connection requests it
	confirms bool   // the client must confirm the grant

	// guarded by mu of the session
	granted bool          // the grant was sent
	refused bool          // a refusal was sent
	confirm *time.Timer   // passes on an unconfirmed grant; nil if it is confirmed or need not be
	told    time.Duration // the deadline that was sent
	changes uint64        // number of changes of the mode that were sent
}

// attach attaches a connection. It returns nil if the session is over already:
//
//	the old connection breaks        the client reconnects
//	leave: nothing attached
//	                                 the session holds: attach
//	release                          granted, and not held
func (s *Session) attach(sub Subscriber, confirms bool) *Attachment {
	a := &Attachment{Subscriber: sub, session: s, confirms: confirms}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	if s.attached != nil {
		s.attached.Close()
	}
	if s.decided() {
		a.start = a.sendOutcome
	}
	if s.awaitingClient {
		s.item.Queue().ClientIsBack()
	}
	s.attached, s.awaitingClient, s.orphan = a, false, false
	s.stays++
	if s.queued > 0 {
		s.tellSoon() // this connection was not sent it
	}
	return a
}

// Start requests the lock, unless another connection has. Before it returns, the lock may be granted
// and released by other goroutines. It may block on the device.
func (a *Attachment) Start() {
	if a.start != nil {
		a.start()
	}
}

// Session returns the session that the connection is attached to.
func (a *Attachment) Session() *Session { return a.session }

// StartSoon starts in another goroutine.
func (a *Attachment) StartSoon() { a.session.all.tasks.Go(a.Start) }

// Over reports whether the client was refused, so that its connection can begin another session.
func (a *Attachment) Over() bool { return locked(a.session, &a.refused) }

// refuse sends why the client does not have the lock. Called with mu of the session held.
func (a *Attachment) refuse(err error) {
	a.refused = true
	a.Send(new(api.Refusal(api.ErrorOf(err))))
}

// sendOutcome sends the outcome of the request.
func (a *Attachment) sendOutcome() {
	s, ss := a.session, a.session.all
	if s.err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.attached == a {
			a.refuse(s.err)
		}
		return
	}
	mode, changes := s.hold.ModeAndChanges()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attached != a {
		return
	}
	m, now := ss.cfg.Member.Moments(), ss.cfg.Clock.Now()
	if m.Lost || now >= m.Deadline { // this process did not run since the grant
		a.refuse(fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost))
		ss.tasks.Go(func() { a.Leave() })
		return
	}
	a.granted, a.told, a.changes = true, m.Deadline, changes
	if a.confirms {
		a.confirm = time.AfterFunc(ss.ConfirmWithin, a.passOn)
	}
	e := api.Event{Kind: api.Granted, Name: s.req.Name, Mode: mode, Token: s.hold.Token(), Host: ss.cfg.Member.ID(), Change: changes,
		GraceMS: ss.cfg.Times.Grace().Milliseconds()}.Until(now, m.Deadline)
	if s.FIFO != nil {
		e.Witness = s.FIFO.Path
	}
	a.Send(&e)
	select {
	case <-ss.cfg.Ending.Drained:
		a.Send(&api.Event{Kind: api.Lost, Message: ss.cfg.Ending.DrainedFor})
	default:
	}
}

// ConfirmWithin returns how long a client may take to confirm a grant. A client that does not run
// must not hold a lock.
func confirmWithin(lease time.Duration) time.Duration { return min(2*time.Second, lease/6) }

// Confirm accepts the client's confirmation of a grant and answers it.
func (a *Attachment) Confirm(token layout.Ticket) error {
	s, ss := a.session, a.session.all
	weak := s.Uncontainable()
	holds := false
	s.keep(func() handover.State { // the next process must know it before a command begins
		if holds = a.holds(token); !holds {
			return ""
		}
		a.stopConfirm()
		was := s.unconfirmed
		s.unconfirmed = false
		if was && s.kept {
			return handover.Granted
		}
		return ""
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if !holds || s.attached != a {
		return ErrNotHeld(token)
	}
	e := api.Event{Kind: api.Confirmed, Message: weak}.Until(ss.cfg.Clock.Now(), ss.cfg.Member.Moments().Deadline)
	a.Send(&e)
	return nil
}

func ErrNotHeld(token layout.Ticket) error {
	return fmt.Errorf("%w: the link holds no lock by token %v", api.ErrLost, token)
}

// holds reports whether the client holds the lock by token on this connection. Called with mu of
// the session held.
func (a *Attachment) holds(token layout.Ticket) bool {
	return a.session.attached == a && a.granted && a.session.hold.Token() == token
}

// stopConfirm stops the timer. Called with mu of the session held.
func (a *Attachment) stopConfirm() {
	if a.confirm != nil {
		a.confirm.Stop()
		a.confirm = nil
	}
}

// passOn releases the lock for the next client, because this one did not confirm the grant. No
// command runs under it.
func (a *Attachment) passOn() {
	s := a.session
	s.mu.Lock()
	if s.attached != a || a.confirm == nil {
		s.mu.Unlock()
		return // confirmed, or the client has reconnected
	}
	s.attached, a.confirm = nil, nil
	stay := s.stays
	a.refuse(api.ErrUnconfirmed)
	s.mu.Unlock()
	s.all.cfg.Log.Warn("client does not run, passing its lock on", "lock", s.req.Name, "token", s.hold.Token(), "pid", s.req.PID)
	s.release(stay, "its client did not run when it was granted")
}

// Unlock releases a hold, as Leave does.
func (a *Attachment) Unlock(token layout.Ticket) (kept bool, err error) {
	a.session.mu.Lock()
	if !a.holds(token) {
		a.session.mu.Unlock()
		return false, ErrNotHeld(token)
	}
	return a.detach(), nil
}

// Leave ends the connection's part. A waiting client gives up by that. A holder releases, unless its
// command still runs; then kept is true. It returns when that is durable.
func (a *Attachment) Leave() (kept bool) {
	a.session.mu.Lock()
	if a.session.attached != a {
		a.session.mu.Unlock()
		return false // another connection has taken it over
	}
	return a.detach()
}

// detach is Leave for the connection that is attached. Called with mu of the session held, which it
// releases: nothing is sent on this connection any more, such as a refusal because the grant was
// not confirmed.
func (a *Attachment) detach() (kept bool) {
	s := a.session
	s.attached = nil
	a.stopConfirm()
	s.over = s.over || !s.decided()
	stay := s.stays
	s.mu.Unlock()
	s.cancel(context.Canceled)
	<-s.done
	if s.hold == nil {
		return false
	}
	if !s.running() {
		s.release(stay, "")
		return false
	}
	s.all.tasks.Go(func() { s.outlive(stay) })
	return true
}
