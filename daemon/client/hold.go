package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	// stopped is how late the alarm is at most while this process runs. An alarm later than that says that
	// the process stood still, and bakeryd's latest events may be unread.
	stopped = 100 * time.Millisecond

	// catchUp is how long it may take to ask bakeryd how things are.
	catchUp = 500 * time.Millisecond
)

// Hold is a lock that bakeryd granted. It is held until Unlock, or, after Inherit, until every process that
// inherited what that returned has gone as well. It outlives its connection: if that breaks, bakeryd or its
// successor is asked for the hold again, until the deadline. A Hold may be used from several goroutines.
type Hold struct {
	Name string

	session *session
	token   layout.Ticket
	hostID  int
	witness string // path; empty: none
	weak    string // why bakeryd cannot contain a command; empty: it can, or is not known to

	warned gate           // opened when stop is set
	lost   gate           // opened when err is set
	silent chan struct{}  // gets one when bakeryd has been gone for a while
	news   chan struct{}  // gets one when the deadline has moved
	over   span           // ends when the hold is lost or let go
	work   span           // ends when the holder is to stop, or has let go
	tasks  sync.WaitGroup // follow the events, see to what the alarm rang for

	requests chan Request // keeps the last ones; nil: they were not asked for

	unlocking sync.Once
	unlocked  error // what Unlock returns

	mu        sync.Mutex // guards what follows
	link      *link
	followed  bool          // somebody reads the link: follow, or Unlock
	released  chan error    // gets what follow has read of the release; nil: that is not waited for
	ringing   bool          // what the alarm rang for is being seen to
	inherited bool          // another process may have the link
	hurried   bool          // whoever reads the link was told to end
	gone      bool          // the link is not the hold's any more
	away      chan struct{} // closed when there is a connection again; nil: there is one
	until     time.Duration // deadline, on boottime
	grace     time.Duration // how long before it the holder is to stop
	stop      bool
	err       error
	closed    bool
	closedAt  time.Time // when, if closed
	mode      layout.Mode
	change    uint64 // number of the latest change of the mode that is known
}

func newHold(s *session, l *link, granted api.Event) (*Hold, error) {
	h := &Hold{
		Name: s.name, mode: granted.Mode, change: granted.Change, session: s, token: granted.Token, hostID: granted.HostID,
		witness: granted.Witness, weak: granted.Message, link: l, until: l.until(granted), grace: graceOf(granted),
		silent: make(chan struct{}, 1), news: make(chan struct{}, 1),
	}
	if s.o.Requests {
		h.requests = make(chan Request, maxUnread)
	}
	if err := s.client.add(h, h.due(), time.Now().Add(attendAfter)); err != nil {
		_ = l.conn.Close() // which lets the lock go; the first error is the one to tell
		return nil, err
	}
	if h.overdue() > 0 {
		h.attend()
		h.awaitNews(catchUp) // this process stood still since the grant: how things are is yet to be asked
		h.ring()             // what is due is so before the caller has the hold
	}
	return h, nil
}

// Token returns the fencing token of the hold.
func (h *Hold) Token() layout.Ticket { return h.token }

// Uncontainable returns why bakeryd cannot stop all of a command by its cgroup, wherever that is
// made. It is empty if bakeryd can, and without Options.Confirm.
func (h *Hold) Uncontainable() string { return h.weak }

// Connected reports whether bakeryd is there, to release the lock when what the caller has left
// running has ended.
func (h *Hold) Connected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.away == nil && h.err == nil && !h.gone && !h.link.closed()
}

// HostID returns the id of this host in the lockspace.
func (h *Hold) HostID() int { return h.hostID }

// Deadline returns the moment at which the lease ends. It moves with every renewal, and with the time that
// the machine sleeps, so ask anew rather than keep it.
func (h *Hold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.until - clock.Boottime.Now())
}

// StopAt returns the moment, on CLOCK_BOOTTIME, from which the holder is to stop: Grace before the
// deadline. Like that it moves.
func (h *Hold) StopAt() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop {
		return 0
	}
	return h.until - h.grace
}

// Warned is closed when the holder is to stop: the lease is about to end without having been renewed, or has
// ended. It stays closed though a late renewal may come after all. Unlock does not close it.
func (h *Hold) Warned() <-chan struct{} { return h.warned.wait() }

// Lost is closed when the hold is lost: bakeryd said so, or the deadline passed without a renewal. Unlock does
// not close it.
func (h *Hold) Lost() <-chan struct{} { return h.lost.wait() }

// Silent gets one when bakeryd has been gone for two seconds, each time that it goes. The hold stands until the
// deadline, and goes on if bakeryd comes back by then.
func (h *Hold) Silent() <-chan struct{} { return h.silent }

// Err returns why the hold was lost, an ErrLost, or nil.
func (h *Hold) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Unlock ends this process's part in the hold. If no other process has inherited it, the lock is released, and Unlock
// returns when that is on the disk, or the next client of this host has the lock. The connection is kept for the next
// Lock.
//
// Nothing of that is waited for where the hold has a witness, may have been inherited by its connection, or is lost: then
// the connection is closed, which releases the lock if nobody else has it. If bakeryd is not there its successor
// releases the lock; without a witness that does so when the deadline known to it has passed. So a bakeryd that is just
// being restarted is waited for, for half a second.
//
// A hold that is lost is to be unlocked too: until then bakeryd takes it that what was done under it is not yet at
// its end. Every further Unlock returns what the first one did: nil, or an ErrUnreachable if bakeryd has not released the
// lock within two seconds, as when the device hangs, or an error of closing the connection. They change nothing of the
// above: the hold is over for this process.
func (h *Hold) Unlock() error {
	h.unlocking.Do(func() { h.unlocked = h.close() })
	return h.unlocked
}

// releasePatience is how long a release may take.
const releasePatience = 2 * time.Second

func (h *Hold) close() error {
	h.awaitLink(catchUp)
	h.mu.Lock()
	h.closed, h.closedAt = true, time.Now()
	l := h.link
	byClosing := h.inherited || h.witness != "" || h.away != nil || h.err != nil
	followed := h.followed
	h.followed = true
	if followed && !byClosing {
		h.released = make(chan error, 1)
	}
	released := h.released
	h.mu.Unlock()
	h.over.close(context.Canceled)
	h.work.close(context.Canceled)

	var err error
	switch {
	case byClosing:
		err = l.conn.Close()
	case followed:
		err = h.releaseFollowed(l, released)
	default:
		err = h.release(l)
	}
	h.tasks.Wait()
	h.session.client.remove(h)
	if err != nil {
		return fmt.Errorf("unlock %q: %w", h.Name, err)
	}
	return nil
}

// release lets go by a link that nobody else reads.
func (h *Hold) release(l *link) error {
	c := h.session.client
	c.attendBy(h, h.closedAt.Add(releasePatience)) // attend ends the read
	err := l.unlock(h.token)
	if err == nil {
		err = l.awaitRelease()
	}
	return h.left(l, err, time.Since(h.closedAt))
}

// releaseFollowed lets go by a link that follow reads.
func (h *Hold) releaseFollowed(l *link, released <-chan error) error {
	begun := time.Now()
	err := l.unlock(h.token)
	if err == nil {
		late := time.NewTimer(releasePatience)
		defer late.Stop()
		select {
		case err = <-released:
		case <-late.C:
			err = errNotReleased
		}
	}
	return h.left(l, err, time.Since(begun))
}

// left keeps the link for the next lock, or closes it: then what is not released yet will be by that.
func (h *Hold) left(l *link, err error, took time.Duration) error {
	h.mu.Lock()
	h.gone = true
	hurried := h.hurried
	h.mu.Unlock()
	if err == nil && !hurried && l.reusable() {
		h.session.client.leaveLink(l)
		return nil
	}
	_ = l.conn.Close() // broken, perhaps
	if err != nil && took >= releasePatience {
		return fmt.Errorf("%w: the lock is not released yet, after %v", ErrUnreachable, releasePatience)
	}
	return nil
}

// attend is called when the hold has lasted a while, or its release takes too long.
func (h *Hold) attend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		if time.Since(h.closedAt) >= releasePatience { // else it was called for the hold itself
			h.hurry() // the wait for the release ends
		}
	case !h.followed:
		h.followed = true
		h.tasks.Go(h.follow)
	}
}

// hurry ends the reading of the link. It is called with mu held.
func (h *Hold) hurry() {
	if !h.gone {
		h.hurried = true
		h.link.conn.Hurry()
	}
}

// renew moves the deadline. A hold once lost stays so.
func (h *Hold) renew(until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil || h.closed {
		return
	}
	h.until = until
	h.arm()
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// shorten brings the deadline forward.
func (h *Hold) shorten(until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = min(h.until, until)
}

// due is what the alarm is for: first the warning, then the deadline.
func (h *Hold) due() time.Duration {
	if h.stop {
		return h.until
	}
	return h.until - h.grace
}

func (h *Hold) arm() {
	if err := h.session.client.ringFor(h, h.due()); err != nil {
		h.lose(err) // without an alarm nobody would notice the end of the lease
	}
}

// overdue is for how long the alarm should have rung.
func (h *Hold) overdue() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return clock.Boottime.Now() - h.due()
}

// rung is called when the alarm has rung, for this hold or another one. It waits for nothing.
func (h *Hold) rung() {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed || h.err != nil || h.ringing:
	case h.due() > clock.Boottime.Now():
		h.arm()
	default:
		h.ringing = true
		h.tasks.Go(h.answer)
	}
}

// answer sees to what the alarm rang for.
func (h *Hold) answer() {
	if h.overdue() > stopped {
		h.doubt()
	}
	h.ring()
}

// ring does what is due.
func (h *Hold) ring() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ringing = false
	now := clock.Boottime.Now()
	switch {
	case h.err != nil || h.closed:
		return
	case h.until <= now:
		h.lose(errors.New("the lease ended without a renewal"))
		return
	case h.due() <= now:
		h.warn()
	}
	h.arm()
}

// doubt has bakeryd asked how things are, for a while, before something is done that is overdue because this
// process stood still: what was sent meanwhile may have been too much to be kept.
func (h *Hold) doubt() {
	h.attend()
	h.mu.Lock()
	left := h.until - clock.Boottime.Now()
	if !h.closed {
		h.hurry() // the wait for events ends
	}
	h.mu.Unlock()
	limit := catchUp
	if left > 0 {
		limit = min(limit, left) // the deadline itself waits for nobody who runs
	}
	h.awaitNews(limit)
}

// awaitNews waits until nothing is overdue.
func (h *Hold) awaitNews(limit time.Duration) {
	timeout := time.After(limit)
	for h.overdue() > 0 {
		select {
		case <-h.news:
		case <-h.over.context().Done():
			return
		case <-timeout:
			return
		}
	}
}

// lose is called with mu held.
func (h *Hold) lose(why error) {
	if h.err != nil || h.closed {
		return
	}
	h.err = fmt.Errorf("%w: %w", ErrLost, why)
	h.warned.open()
	h.lost.open()
	h.warn() // last: whoever waits for the context may look at these then
	h.over.close(context.Canceled)
}

// warn is called with mu held.
func (h *Hold) warn() {
	if !h.stop {
		h.stop = true
		h.warned.open()
		h.work.close(h.whyStop())
	}
}
