package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
)

const (
	// maxAlarmDelay is the longest delay of the alarm while this process runs. A longer delay means
	// that the process was paused, and that bakeryd's latest events may be unread.
	maxAlarmDelay = 100 * time.Millisecond

	// catchUp is how long a query of the current deadline may take.
	catchUp = 500 * time.Millisecond
)

// Hold is a lock that bakeryd granted. It is held until Unlock and, after Inherit, until every
// process that inherited the descriptor has ended. It outlives its connection: if that breaks, the
// client asks bakeryd, or the next process of it, for the hold again until the deadline. A Hold is
// safe for concurrent use.
type Hold struct {
	Name string

	session *session
	granted api.Event // Message is why bakeryd cannot contain a command; empty: it can, or this is unknown

	warned lazyContext    // ends when stop is set
	lost   lazyContext    // ends when err is set
	silent chan struct{}  // gets a value when bakeryd is gone for silentAfter
	moved  chan struct{}  // gets a value when the deadline moves
	over   lazyContext    // ends when the hold is lost or unlocked
	work   lazyContext    // ends when the holder must stop, and with Unlock
	tasks  sync.WaitGroup // follow, and the handling of the alarm

	requests chan Request // keeps the latest; nil if not requested

	unlocking sync.Once
	unlocked  error // result of Unlock

	mu           sync.Mutex // guards the fields below
	link         *link
	readerAt     time.Duration // when follow is to begin, on boottime
	followed     bool          // follow or Unlock reads the link
	released     chan error    // gets the release that follow read; nil if nothing waits for it
	ringing      bool          // a goroutine is handling the alarm
	inherited    bool          // another process may have the link
	readsExpired bool          // the link's reads were made to end
	gone         bool          // the link belongs to the pool or is closed
	away         chan struct{} // closed when a connection exists again; nil: one exists
	until        time.Duration // deadline, on boottime
	grace        time.Duration // how long before the deadline the holder must stop
	stop         bool
	err          error
	closed       bool
	closedAt     time.Duration // on boottime; 0 unless closed
	mode         Mode
	change       uint64 // number of the latest known change of the mode
}

func newHold(s *session, l *link, granted api.Event) (*Hold, error) {
	s.request.Token, s.request.Confirm, s.request.TimeoutMS = granted.Token, false, 0
	now := clock.Boottime.Now() // once: it is a system call
	h := &Hold{
		Name: s.request.Name, session: s, granted: granted, mode: Mode(granted.Mode), change: granted.Change,
		link: l, readerAt: now + readerAfter, until: l.until(now, granted), grace: believable(granted.GraceMS),
		silent: make(chan struct{}, 1), moved: make(chan struct{}, 1),
	}
	if s.request.Requests {
		h.requests = make(chan Request, maxUnread)
	}
	overdue := now > h.due()
	if err := s.client.add(h, h.next()); err != nil {
		_ = l.conn.Close() // releases the lock; the first error is the one to report
		return nil, err
	}
	if overdue {
		h.mu.Lock()
		h.startReader()
		h.mu.Unlock()
		h.awaitRenewal(catchUp) // this process was paused since the grant
		h.ring()                // before the caller gets the hold
	}
	return h, nil
}

// Token returns the fencing token of the hold.
func (h *Hold) Token() Token { return Token(h.granted.Token) }

// Uncontainable returns why bakeryd cannot stop all of a command by its cgroup. It is empty if
// bakeryd can, and without Options.Confirm.
func (h *Hold) Uncontainable() string { return h.granted.Message }

// Connected reports whether bakeryd is connected, and so can release the lock when the processes
// that the caller left running have ended.
func (h *Hold) Connected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.away == nil && h.err == nil && !h.gone && !h.link.conn.hungUp()
}

// HostID returns the id of this host in the lockspace.
func (h *Hold) HostID() int { return h.granted.Host }

// Deadline returns when the lease ends. It moves with every renewal and while the machine sleeps,
// so do not store it.
func (h *Hold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.until - clock.Boottime.Now())
}

// StopAt returns when, on CLOCK_BOOTTIME, the holder must stop: Grace before the deadline. It moves
// with the deadline. It is 0 after Warned is closed.
func (h *Hold) StopAt() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop {
		return 0
	}
	return h.until - h.grace
}

// Warned returns a channel that is closed when the holder must stop: the lease has ended, or is
// about to end without a renewal. A late renewal does not reopen it. Unlock does not close it.
func (h *Hold) Warned() <-chan struct{} { return h.warned.context().Done() }

// Lost returns a channel that is closed when the hold is lost: bakeryd reported the loss, or the
// deadline passed without a renewal. Unlock does not close it.
func (h *Hold) Lost() <-chan struct{} { return h.lost.context().Done() }

// Silent returns a channel that gets a value each time bakeryd has been gone for two seconds. The
// hold is valid until the deadline, and continues if bakeryd comes back by then.
func (h *Hold) Silent() <-chan struct{} { return h.silent }

// Err returns why the hold was lost, wrapping ErrLost, or nil.
func (h *Hold) Err() error { return locked(&h.mu, &h.err) }

// Unlock ends this process's part in the hold. If no other process has inherited it, Unlock
// releases the lock. It returns when the release is on the disk, the next client of this host has the
// lock, or the host keeps the lock for that ([Options].NoLinger); the connection stays for the next
// Lock.
//
// If the hold has a liveness FIFO, was inherited through its connection, or is lost, Unlock only
// closes the connection and does not wait: bakeryd then releases the lock unless another process
// holds it. If bakeryd is gone, Unlock waits half a second for it to restart. Without that, the
// next bakeryd releases the lock: if there is no FIFO, at the deadline that it knows.
//
// A lost hold must be unlocked, too: until then bakeryd assumes that work under it continues. Every
// further Unlock returns the result of the first: nil, an error of closing the connection, or an
// ErrUnreachable if bakeryd has not released the lock within two seconds, for example because the
// device hangs. After any result the hold is over for this process.
func (h *Hold) Unlock() error {
	h.unlocking.Do(func() { h.unlocked = h.close() })
	return h.unlocked
}

// releaseTimeout is how long a release may take.
const releaseTimeout = 2 * time.Second

var errUnlocked = fmt.Errorf("%w: it was let go", ErrLost)

func (h *Hold) close() error {
	h.awaitLink(catchUp)
	h.mu.Lock()
	h.closed, h.closedAt = true, clock.Boottime.Now()
	l := h.link
	byClosing := h.inherited || h.granted.Witness != "" || h.away != nil || h.err != nil
	followed := h.followed
	h.followed = true
	if followed && !byClosing {
		h.released = make(chan error, 1)
	}
	released := h.released
	h.arm()
	h.mu.Unlock()
	h.over.close(errUnlocked)
	h.work.close(context.Canceled)

	var err error
	if byClosing {
		err = l.conn.Close()
	} else {
		err = h.release(l, released)
	}
	h.tasks.Wait()
	h.session.client.remove(h)
	if err != nil {
		return fmt.Errorf("unlock %q: %w", h.Name, err)
	}
	return nil
}

// release unlocks. If released is nil, the link has no other reader; otherwise released gets what
// follow reads.
func (h *Hold) release(l *link, released <-chan error) error {
	err := l.send(`{"unlock":"`, h.granted.Token)
	switch {
	case err != nil:
	case released == nil:
		err = l.awaitRelease()
	default:
		err = <-released
	}
	h.mu.Lock()
	h.gone = true
	readsExpired := h.readsExpired
	h.mu.Unlock()
	if err == nil && !readsExpired && l.reusable() {
		h.session.client.putLink(l, h.closedAt)
		return nil
	}
	_ = l.conn.Close() // it may be broken; this releases what is not released yet
	if err != nil && clock.Boottime.Now() >= h.closedAt+releaseTimeout {
		return fmt.Errorf("%w: the lock is not released yet, after %v", ErrUnreachable, releaseTimeout)
	}
	return nil
}

// startReader starts follow, unless the link has a reader. It is called with mu held.
func (h *Hold) startReader() {
	if !h.followed {
		h.followed = true
		h.tasks.Go(h.follow)
	}
}

// expireReads ends the reads of the link. It is called with mu held.
func (h *Hold) expireReads() {
	if !h.gone {
		h.readsExpired = true
		h.link.conn.ExpireReads()
	}
}

// renew moves the deadline, unless the hold is lost or unlocked.
func (h *Hold) renew(until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil || h.closed {
		return
	}
	h.until = until
	h.arm()
	poke(h.moved)
}

// poke sends a value, unless the last one is still unread.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// shorten brings the deadline forward.
func (h *Hold) shorten(until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = min(h.until, until)
}

// due returns when the lease needs attention: for the warning, then for the deadline.
func (h *Hold) due() time.Duration {
	if h.stop {
		return h.until
	}
	return h.until - h.grace
}

// next returns when the alarm is needed: until Unlock for the reader and the lease, then for the end
// of a release that takes too long.
func (h *Hold) next() time.Duration {
	switch {
	case h.closed:
		return h.closedAt + releaseTimeout
	case !h.followed:
		return min(h.readerAt, h.due())
	}
	return h.due()
}

// arm sets the alarm. It is called with mu held.
func (h *Hold) arm() {
	if err := h.session.client.ringFor(h, h.next()); err != nil {
		h.lose(err) // without an alarm the end of the lease would go unnoticed
	}
}

// overdue returns by how much the alarm is late; negative: it is not due yet.
func (h *Hold) overdue() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return clock.Boottime.Now() - h.due()
}

// onAlarm is called when the alarm is for this hold. It does not block.
func (h *Hold) onAlarm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed && clock.Boottime.Now() >= h.closedAt+releaseTimeout:
		h.expireReads() // ends the wait for the release
	case h.closed:
		h.arm()
	case h.err != nil || h.ringing:
	case h.due() > clock.Boottime.Now():
		h.startReader()
		h.arm()
	default:
		h.ringing = true
		h.tasks.Go(h.answer)
	}
}

// answer handles the alarm.
func (h *Hold) answer() {
	if h.overdue() > maxAlarmDelay {
		h.refresh()
	}
	h.ring()
}

// ring warns or loses the hold if that is due, and sets the alarm again.
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
		h.warn(fmt.Errorf("%w: the lease is about to end without a renewal", ErrLost))
	}
	h.arm()
}

// refresh asks bakeryd for the current deadline before an overdue warning or loss takes effect. It
// is needed after a pause of this process: a link does not buffer an unlimited number of unread
// renewals.
func (h *Hold) refresh() {
	h.mu.Lock()
	left := h.until - clock.Boottime.Now()
	if !h.closed {
		h.startReader()
		h.expireReads() // makes follow ask again
	}
	h.mu.Unlock()
	limit := catchUp
	if left > 0 {
		limit = min(limit, left) // the deadline itself is not delayed
	}
	h.awaitRenewal(limit)
}

// awaitRenewal waits until nothing is overdue.
func (h *Hold) awaitRenewal(limit time.Duration) {
	timeout := time.After(limit)
	for h.overdue() > 0 {
		select {
		case <-h.moved:
		case <-h.over.context().Done():
			return
		case <-timeout:
			return
		}
	}
}

// lose ends the hold with an error. It is called with mu held.
func (h *Hold) lose(why error) {
	if h.err != nil || h.closed {
		return
	}
	if h.err = why; !errors.Is(why, ErrLost) {
		h.err = fmt.Errorf("%w: %w", ErrLost, why)
	}
	h.stop = true
	h.warned.close(h.err)
	h.lost.close(h.err)
	h.work.close(h.err) // later: a goroutine that waits for the context may then check the channels
	h.over.close(h.err)
}

// warn ends the work contexts, unless they have ended. It is called with mu held.
func (h *Hold) warn(why error) {
	h.stop = true
	h.warned.close(why)
	h.work.close(why)
}
