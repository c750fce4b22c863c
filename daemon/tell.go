package daemon

import (
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
)

// One goroutine per daemon notifies all clients that hold a lock or wait for one by a link. It
// sends what comes between the answers: renewals and the end of the lease, places, requests and
// changes of mode. It does no IO on the device and waits for no goroutine that does.

// tellPause is the time for which notifications except the end of the lease are gathered. Most
// waiting clients have the lock by then and are never sent their place.
const tellPause = 20 * time.Millisecond

// telling is the list of sessions with something to notify of.
type telling struct {
	once sync.Once     // starts the goroutine
	wake chan struct{} // has room for one

	mu  sync.Mutex // guards due
	due []*session
}

func newTelling() telling { return telling{wake: make(chan struct{}, 1)} }

// linked reports whether the client follows by a link. Called with mu held.
func (s *session) linked() bool { return s.follower != nil && s.follower.link != nil }

// tellSoon schedules a notification of the client. Called with mu held.
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

// tellLinks starts the goroutine that notifies the clients that follow by links.
func (ss *sessions) tellLinks() {
	ss.telling.once.Do(func() { ss.tasks.Go(ss.tell) })
}

func (ss *sessions) tell() {
	mem, drained, lost := ss.mem, ss.ending.drained, ss.mem.Lost()
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
			ss.tellHolders(func(l *link, f *follower) {
				l.tellRenewal(f, ss.clock.Now(), m.Deadline)
				l.tellNews(f, f.session) // in case its client did not listen when that came
			})
		case <-drained:
			drained = nil
			ss.tellHolders(func(l *link, f *follower) { l.tellDrained(f, ss) })
		case <-lost:
			lost = nil
			var told []*session
			ss.tellHolders(func(l *link, f *follower) {
				if l.tellLost(f) {
					told = append(told, f.session)
				}
			})
			for _, s := range told { // writing to a log may block
				ss.log.Warn("lock lost", "lock", s.req.Name, "token", s.hold.Token(), "pid", s.req.PID, "err", s.hold.Err())
			}
		case <-ss.ending.ended:
			return
		}
	}
}

// tellHolders calls say for all clients that hold a lock by a link.
func (ss *sessions) tellHolders(say func(*link, *follower)) {
	held, _ := ss.holding()
	for _, s := range held {
		if f := s.linkFollower(); f != nil {
			say(f.link, f)
		}
	}
}

// linkFollower returns the follower if it follows by a link, else nil.
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

// tellNow notifies the client of its place, or of what happened to its hold. The handover file has
// the place first: a client that knows of its place can return to it.
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
	s.Saved()
	switch {
	case f == nil:
	case !decided && placed:
		f.link.tellPlace(f, p, s.all.times().Lease)
		f.link.warn(f, warning)
	case !decided:
	case s.hold != nil && !f.link.tellNews(f, s):
		s.mu.Lock()
		s.tellSoon() // the grant is just being sent
		s.mu.Unlock()
	}
}

// Each of these does nothing if the link is not f's any more, or before the grant was sent: the
// grant shows the state by then.

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

// tellNews sends changes of mode and requests. It returns false if the grant was not sent yet.
func (l *link) tellNews(f *follower, s *session) bool {
	mode, changes := s.hold.ModeAndChanges()
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

func (l *link) tellDrained(f *follower, ss *sessions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == f && l.granted {
		l.put(&api.Event{Kind: api.Lost, Message: ss.ending.drainedFor})
	}
}

// tellLost also sets a deadline for the client to leave. It is the time after which other hosts may
// have the lock (serveLost).
func (l *link) tellLost(f *follower) bool {
	h, ss := f.session.hold, f.session.all
	deadline := ss.mem.Moments().Deadline
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != f || !l.granted {
		return false
	}
	e := api.Event{Kind: api.Lost, Message: h.Err().Error()}.Until(ss.clock.Now(), deadline)
	l.put(&e)
	// fails only once closed
	_ = l.conn.SetReadDeadline(time.Now().Add(max(0, deadline+ss.times().Margin()-ss.clock.Now())))
	return true
}
