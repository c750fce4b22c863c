package session

import (
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
)

// One goroutine per host notifies all clients that hold a lock or wait for one. It
// sends what comes between the answers: renewals and the end of the lease, places, requests and
// changes of mode. It does no IO on the device and waits for no goroutine that does.

// tellPause is the time for which notifications except the end of the lease are gathered. Most
// waiting clients have the lock by then and are never sent their place.
const tellPause = 20 * time.Millisecond

// telling is the list of sessions with something to notify of.
type telling struct {
	wake chan struct{} // has room for one

	mu  sync.Mutex // guards due
	due []*Session
}

func newTelling() telling { return telling{wake: make(chan struct{}, 1)} }

// tellSoon schedules a notification of the client. Called with mu held.
func (s *Session) tellSoon() {
	if s.stale {
		return
	}
	s.stale = true
	t := &s.all.telling
	t.mu.Lock()
	t.due = append(t.due, s)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// tell notifies clients until no commands must be watched any more.
func (ss *Table) tell() {
	mem, drained, lost := ss.cfg.Member, ss.cfg.Ending.Drained, ss.cfg.Member.Lost()
	var due <-chan time.Time
	for m := mem.Moments(); ; {
		select {
		case <-ss.telling.wake:
			if due == nil {
				due = time.After(tellPause)
			}
		case <-due:
			due = nil
			ss.tellDue()
		case <-m.Changed:
			m = mem.Moments()
			held, _ := ss.Holding()
			for _, s := range held {
				s.tellNews()
			}
		case <-drained:
			drained = nil
			ss.tellHolders(func(a *Attachment) { a.Send(&api.Event{Kind: api.Lost, Message: ss.cfg.Ending.DrainedFor}) })
		case <-lost:
			lost = nil
			for _, s := range ss.tellHolders((*Attachment).tellLost) { // writing to a log may block
				ss.cfg.Log.Warn("lock lost", "lock", s.req.Name, "token", s.hold.Token(), "pid", s.req.PID, "err", s.hold.Err())
			}
		case <-ss.cfg.Ending.Ended:
			return
		}
	}
}

// tellHolders calls say for all clients that were sent a grant, with mu of their sessions held, and
// returns these sessions.
func (ss *Table) tellHolders(say func(*Attachment)) (told []*Session) {
	held, _ := ss.Holding()
	for _, s := range held {
		s.mu.Lock()
		if a := s.attached; a != nil && a.granted {
			say(a)
			told = append(told, s)
		}
		s.mu.Unlock()
	}
	return told
}

func (ss *Table) tellDue() {
	t := &ss.telling
	t.mu.Lock()
	due := t.due
	t.due = nil
	t.mu.Unlock()
	for _, s := range due {
		s.tellNow()
	}
}

// tellNow notifies the client of its place, or of what happened to its hold. The handover file has
// the place first: a client that knows of its place can return to it.
func (s *Session) tellNow() {
	var decided, later bool
	s.keep(func() handover.State {
		s.stale, decided = false, s.decided()
		later = !decided && !s.kept && time.Since(s.since) < tellPause
		if later {
			s.tellSoon()
		} else if !decided {
			s.watchNesting()
			if s.unkept {
				return handover.Waiting
			}
		}
		return ""
	})
	switch {
	case later:
	case !decided:
		s.tellPlace()
	case s.hold != nil && !s.tellNews():
		s.mu.Lock()
		s.tellSoon() // the grant is just being sent
		s.mu.Unlock()
	}
}

func (s *Session) tellPlace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attached
	if a == nil || s.decided() || !a.Listening() {
		return
	}
	if s.queued > 0 {
		a.Send(&api.Event{Kind: api.Waiting, Ahead: s.ahead, Queued: s.queued, LeaseMS: s.all.cfg.Times.Lease.Milliseconds()})
	}
	if s.warning != "" {
		a.Send(&api.Event{Kind: api.Warning, Message: s.warning})
		s.warning = ""
	}
}

// tellNews sends the end of a renewed lease, changes of mode and requests; a client that does not
// listen gets them after a later renewal. It returns false if the grant was not sent yet.
func (s *Session) tellNews() bool {
	mode, changes := s.hold.ModeAndChanges()
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attached
	if a == nil || a.refused || a.granted && !a.Listening() {
		return true
	}
	if !a.granted {
		return false
	}
	if deadline := s.all.cfg.Member.Moments().Deadline; deadline != a.told {
		a.told = deadline
		e := api.Event{Kind: api.Renewed}.Until(s.all.cfg.Clock.Now(), deadline)
		a.Send(&e)
	}
	if changes != a.changes {
		a.changes = changes
		a.Send(&api.Event{Kind: api.Mode, Mode: mode, Change: changes})
	}
	for _, r := range s.requests {
		a.Send(&api.Event{Kind: api.Requested, Host: r.Host, HostName: r.HostName, Message: r.Message})
	}
	s.requests = nil
	return true
}

// tellLost sends the end of the lease. The host joins again once the client is gone, and gives the
// lock to the next one. That must not take longer than until other hosts may have the lock: then
// the connection is closed. Called with mu of the session held.
func (a *Attachment) tellLost() {
	s, ss := a.session, a.session.all
	now, deadline := ss.cfg.Clock.Now(), ss.cfg.Member.Moments().Deadline
	e := api.Event{Kind: api.Lost, Message: s.hold.Err().Error()}.Until(now, deadline)
	a.Send(&e)
	time.AfterFunc(deadline+ss.cfg.Times.Margin()-now, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.attached == a {
			a.Close()
		}
	})
}
