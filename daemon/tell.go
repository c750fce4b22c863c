package daemon

import (
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
)

// Who has a lock by a link, or waits for one, is told by one goroutine for all
// of a daemon what comes between the answers: renewals and the end of the
// lease, places, requests and changes of mode. It does no IO on the device, and
// waits for nobody who does.

// tellPause gathers what there is to tell but the end of the lease. Most of
// those who wait have the lock by then, and never hear of their place.
const tellPause = 20 * time.Millisecond

// telling is which sessions there is something to tell of.
type telling struct {
	once sync.Once     // begins it
	wake chan struct{} // takes one

	mu  sync.Mutex // guards due
	due []*session
}

func newTelling() telling { return telling{wake: make(chan struct{}, 1)} }

// linked tells whether the client follows by a link. It is called with mu held.
func (s *session) linked() bool { return s.follower != nil && s.follower.link != nil }

// tellSoon has the client told how things are. It is called with mu held.
func (s *session) tellSoon() {
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

// tellLinks has those told who follow by links, from now on.
func (ss *sessions) tellLinks() {
	ss.telling.once.Do(func() { ss.tasks.Go(ss.tell) })
}

func (ss *sessions) tell() {
	mem, drained, lost := ss.d.mem, ss.d.drained, ss.d.mem.lost
	var due <-chan time.Time
	for m := mem.moments(); ; {
		select {
		case <-ss.telling.wake:
			if due == nil {
				due = time.After(tellPause)
			}
		case <-due:
			due = nil
			ss.tellDue()
		case <-m.changed:
			m = mem.moments()
			ss.tellHolders(func(l *link, f *follower) {
				l.tellRenewal(f, ss.d.clock.Now(), m.deadline)
				l.tellNews(f, f.session) // if it did not listen as that came
			})
		case <-drained:
			drained = nil
			ss.tellHolders(func(l *link, f *follower) { l.tellDrained(f, ss.d) })
		case <-lost:
			lost = nil
			var told []*session
			ss.tellHolders(func(l *link, f *follower) {
				if l.tellLost(f) {
					told = append(told, f.session)
				}
			})
			for _, s := range told { // a log may block
				ss.d.log.Warn("lock lost", "lock", s.req.Name, "token", s.hold.token, "pid", s.req.PID, "err", s.hold.Err())
			}
		case <-ss.d.ended:
			return
		}
	}
}

// tellHolders tells all who hold by a link.
func (ss *sessions) tellHolders(say func(*link, *follower)) {
	held, _ := ss.holding()
	for _, s := range held {
		if f := s.linkFollower(); f != nil {
			say(f.link, f)
		}
	}
}

// linkFollower returns who follows, if it does so by a link.
func (s *session) linkFollower() *follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.linked() {
		return nil
	}
	return s.follower
}

func (ss *sessions) tellDue() {
	t := &ss.telling
	t.mu.Lock()
	due := t.due
	t.due = nil
	t.mu.Unlock()
	for _, s := range due {
		s.tellNow()
	}
}

// tellNow tells the client of its place, or of what has happened to its hold.
// The journal has the place before: a client that knows of it comes back to it.
func (s *session) tellNow() {
	s.mu.Lock()
	s.stale = false
	var f *follower
	if s.linked() {
		f = s.follower
	}
	decided := s.decided()
	if !decided && f != nil && !s.kept && time.Since(s.since) < tellPause {
		s.tellSoon()
		s.mu.Unlock()
		return
	}
	var p place
	placed := s.place != nil
	if placed {
		p = *s.place
	}
	if lk := s.unkept; lk != nil && !decided {
		s.put(handover.Waiting, 0, lk)
	}
	warning := s.warning
	s.warning = ""
	if !decided {
		s.watchNesting()
	}
	s.mu.Unlock()
	switch {
	case f == nil:
	case !decided && placed:
		f.link.tellPlace(f, p, s.all.d.sb.Lease)
		f.link.warn(f, warning)
	case !decided:
	case s.hold != nil && !f.link.tellNews(f, s):
		s.mu.Lock()
		s.tellSoon() // it is just being told of the grant
		s.mu.Unlock()
	}
}

// Each of these does nothing where the link is not f's any more, or where it
// was not told of the grant yet: that tells how things are by then.

func (l *link) tellPlace(f *follower, p place, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	whole := lease.Milliseconds()
	if l.f == f && !l.granted && l.listening() {
		l.put(&api.Event{Kind: api.Waiting, Ahead: p.ahead, Queued: p.queued, LeaseMS: whole})
	}
}

func (l *link) warn(f *follower, warning string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if warning != "" && l.f == f && l.listening() {
		l.put(&api.Event{Kind: api.Warning, Message: warning})
	}
}

// tellNews is false if the grant is yet to be told.
func (l *link) tellNews(f *follower, s *session) bool {
	mode, changes := s.hold.modeAndChanges()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.f != f:
		return true
	case !l.granted:
		return false
	case !l.listening():
		return true
	}
	if changes != l.changes {
		l.changes = changes
		l.put(&api.Event{Kind: api.Mode, Mode: mode, Change: changes})
	}
	for {
		select {
		case r := <-s.requests:
			l.put(&api.Event{Kind: api.Requested, Host: r.Host, HostName: r.HostName, Message: r.Message})
		default:
			return true
		}
	}
}

func (l *link) tellRenewal(f *follower, now, deadline time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == f && l.granted && l.told != deadline {
		l.told = deadline
		if l.listening() {
			e := api.Event{Kind: api.Renewed}.Until(now, deadline)
			l.put(&e)
		}
	}
}

func (l *link) tellDrained(f *follower, d *Daemon) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == f && l.granted {
		l.put(&api.Event{Kind: api.Lost, Message: d.drainedFor})
	}
}

// tellLost also sees to it that who does not go by the time that other hosts
// may have the lock anyway is not waited for any longer (serveLost).
func (l *link) tellLost(f *follower) bool {
	h, d := f.session.hold, f.session.all.d
	deadline := d.mem.moments().deadline
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != f || !l.granted {
		return false
	}
	e := api.Event{Kind: api.Lost, Message: h.Err().Error()}.Until(d.clock.Now(), deadline)
	l.put(&e)
	_ = l.conn.SetReadDeadline(time.Now().Add(max(0, deadline+d.times().Margin()-d.clock.Now()))) // fails only once closed
	return true
}
