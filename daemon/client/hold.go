package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/boottime"
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

	alarm  *boottime.Alarm
	warned chan struct{} // closed when stop is set
	lost   chan struct{} // closed when err is set
	silent chan struct{} // gets one when bakeryd has been gone for a while
	news   chan struct{} // gets one when the deadline has moved
	over   context.Context
	end    context.CancelFunc // ends over: the hold is lost or let go
	work   context.Context
	cease  context.CancelCauseFunc // ends work: the holder is to stop, or has let go
	unlock func() error
	tasks  sync.WaitGroup // follow the events, wait for the alarm

	requests chan Request // keeps the last ones

	mu     sync.Mutex // guards what follows
	link   *link
	away   chan struct{} // closed when there is a connection again; nil: there is one
	until  time.Duration // deadline, on boottime
	grace  time.Duration // how long before it the holder is to stop
	stop   bool
	err    error
	closed bool
	mode   layout.Mode
	change uint64 // number of the latest change of the mode that is known
}

func newHold(s *session, l *link, granted event) (*Hold, error) {
	a, err := boottime.NewAlarm()
	if err != nil {
		_ = l.conn.Close() // which lets the lock go; the first error is the one to tell
		return nil, err
	}
	h := &Hold{
		Name: granted.Name, mode: granted.Mode, change: granted.Change, session: s, token: granted.Token, hostID: granted.HostID,
		witness: granted.Witness, alarm: a,
		warned: make(chan struct{}), lost: make(chan struct{}), silent: make(chan struct{}, 1), news: make(chan struct{}, 1),
		link: l, until: l.until(granted), grace: granted.grace(),

		requests: make(chan Request, maxUnread),
	}
	h.over, h.end = context.WithCancel(context.Background())
	h.work, h.cease = context.WithCancelCause(context.Background())
	h.unlock = sync.OnceValue(h.close)
	h.mu.Lock()
	h.arm()
	h.mu.Unlock()
	h.tasks.Go(h.follow)
	h.tasks.Go(h.watch)
	if h.overdue() > 0 {
		h.awaitNews(catchUp) // this process stood still since the grant: how things are is yet to be asked
	}
	return h, nil
}

// Token returns the fencing token of the hold.
func (h *Hold) Token() layout.Ticket { return h.token }

// HostID returns the id of this host in the lockspace.
func (h *Hold) HostID() int { return h.hostID }

// Deadline returns the moment at which the lease ends. It moves with every renewal, and with the time that
// the machine sleeps, so ask anew rather than keep it.
func (h *Hold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.until - boottime.Now())
}

// Warned is closed when the holder is to stop: the lease is about to end without having been renewed, or has
// ended. It stays closed though a late renewal may come after all. Unlock does not close it.
func (h *Hold) Warned() <-chan struct{} { return h.warned }

// Lost is closed when the hold is lost: bakeryd said so, or the deadline passed without a renewal. Unlock does
// not close it.
func (h *Hold) Lost() <-chan struct{} { return h.lost }

// Silent gets one when bakeryd has been gone for two seconds, each time that it goes. The hold stands until the
// deadline, and goes on if bakeryd comes back by then.
func (h *Hold) Silent() <-chan struct{} { return h.silent }

// Err returns why the hold was lost, an ErrLost, or nil.
func (h *Hold) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Unlock ends this process's part in the hold. If no other process has inherited it, the lock is released: at
// once, or, if bakeryd is not there, by its successor; without a witness that does so when the deadline known
// to it has passed. So a bakeryd that is just being restarted is waited for, for half a second.
//
// A hold that is lost is to be unlocked too: until then bakeryd takes it that what was done under it is not yet at
// its end. Every further Unlock returns what the first one did: nil, or the error of closing the connection, which
// changes nothing of the above.
func (h *Hold) Unlock() error { return h.unlock() }

func (h *Hold) close() error {
	h.awaitLink(catchUp)
	h.mu.Lock()
	h.closed = true
	conn := h.link.conn
	h.mu.Unlock()
	h.end()
	h.cease(nil)
	h.alarm.Close()
	err := conn.Close()
	h.tasks.Wait()
	if err != nil {
		return fmt.Errorf("close the connection to bakeryd: %w", err)
	}
	return nil
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
	if err := h.alarm.Set(h.due()); err != nil {
		h.lose(err) // without an alarm nobody would notice the end of the lease
	}
}

// overdue is for how long the alarm should have rung.
func (h *Hold) overdue() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return boottime.Now() - h.due()
}

// watch waits for the alarm, and does no IO but for that, so nothing that bakeryd does holds it up.
func (h *Hold) watch() {
	for h.alarm.Wait() == nil {
		if h.overdue() > stopped {
			h.doubt()
		}
		if h.ring() {
			return
		}
	}
}

// ring does what is due, and says whether the hold is over.
func (h *Hold) ring() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := boottime.Now()
	switch {
	case h.err != nil || h.closed:
		return true
	case h.until <= now:
		h.lose(errors.New("the lease ended without a renewal"))
		return true
	case h.due() <= now:
		h.warn()
	}
	h.arm()
	return h.err != nil
}

// doubt has bakeryd asked how things are, for a while, before something is done that is overdue because this
// process stood still: what was sent meanwhile may have been too much to be kept.
func (h *Hold) doubt() {
	h.mu.Lock()
	left := h.until - boottime.Now()
	_ = h.link.conn.SetReadDeadline(time.Unix(1, 0)) // ends the wait for events; only a closed one refuses
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
		case <-h.over.Done():
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
	h.warn()
	close(h.lost)
	h.end()
}

// warn is called with mu held.
func (h *Hold) warn() {
	if !h.stop {
		h.stop = true
		close(h.warned)
		h.cease(h.whyStop())
	}
}
