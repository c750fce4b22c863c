package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/command"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
)

// Session is the request of one client: its place in a queue, then its hold. It outlives its
// connection and, by the handover file, bakeryd itself.
type Session struct {
	*command.Command
	all    *Table
	req    locks.Request
	since  time.Time
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when hold and err are set
	hold   *locks.Hold
	err    error

	keeping sync.Mutex // held while the handover file is changed (keep)

	// mu guards the fields below, and req.Mode once the lock is held.
	mu        sync.Mutex
	attached  *Attachment // the connection of the client; nil if none
	item      *queue.Item // by which it waits or holds; nil before it does
	kept      bool        // recorded in the handover file
	unkept    bool        // its place is not in the handover file yet
	releases  bool        // recorded as released, or about to be
	forgotten bool        // not to be recorded any more
	// granted, but no command may run before the client confirms the grant
	unconfirmed    bool
	awaitingClient bool // restored, and its client has not reconnected yet
	orphan         bool // the client is gone, its command runs
	stays          int  // number of connections that were attached
	listens        bool // the client wants to receive requests
	over           bool // given up or released: no client can reconnect to it
	// the lock is not held by it any more, even if the disk still shows it
	released bool
	ahead    int // of it in the queue
	queued   int // clients in the queue; 0 before its place is known
	timeout  *time.Timer
	nests    bool              // under is being looked for, or was (nesting.go)
	under    *layout.Holder    // holder below which the client waits; nil if none or not known
	warning  string            // not yet sent to the client
	requests []locks.Requested // not yet sent; the last maxUnread
	stale    bool              // the client was not sent all changes yet (tell.go)
}

// request sets what the client requests.
func (s *Session) request(req locks.Request) {
	req.Gone, req.OnWaiting, req.OnRequest, req.Client = s.gone, s.waiting, s.requested, s
	s.req = req
	s.Lock, s.PID = req.Name, req.PID
}

// Done returns a channel that is closed when Outcome is known.
func (s *Session) Done() <-chan struct{} { return s.done }

// Outcome returns the hold of the client, or why it has none. It is called after Done.
func (s *Session) Outcome() (*locks.Hold, error) { return s.hold, s.err }

// finish sets the outcome of the request.
func (s *Session) finish(h *locks.Hold, err error) {
	s.hold, s.err = h, err
	if err != nil {
		s.Forget()
		s.end()
	}
	s.mu.Lock()
	close(s.done)
	a := s.attached
	s.mu.Unlock()
	s.limit(0)
	if a != nil {
		a.sendOutcome()
	}
}

// Holding reports whether the client holds a lock, lost or not.
func (s *Session) Holding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decided() && s.hold != nil && !s.released
}

// Follow records the request by which the client waits and holds. A place in the queue of a lock that
// was superseded is not recorded any more: the place in the new queue is not known yet.
func (s *Session) Follow(w *queue.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.item, s.unkept = w, false
}

// KeepMode sets the mode of the hold, also for the handover file.
func (s *Session) KeepMode(mode layout.Mode) {
	s.keep(func() handover.State {
		if s.releases {
			return ""
		}
		s.req.Mode = mode
		s.tellSoon()
		return handover.Granted
	})
}

func (s *Session) mode() layout.Mode { return locked(s, &s.req.Mode) }

// locked returns a variable that mu of the session guards.
func locked[T any](s *Session, v *T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *v
}

// limit limits the wait from now on, if it is not over; 0 removes the limit.
func (s *Session) limit(timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timeout != nil {
		s.timeout.Stop()
		s.timeout = nil
	}
	if timeout > 0 && !s.decided() {
		s.timeout = time.AfterFunc(timeout, func() { s.cancel(api.ErrTimeout) })
	}
}

// gone reports whether the client and its command have ended, even if its connection was not seen
// to close. A waiting session has no command: the processes in its cgroup wait to become one.
func (s *Session) gone() bool {
	s.mu.Lock()
	a, awaiting := s.attached, s.awaitingClient
	s.mu.Unlock()
	if s.decided() && s.hold != nil && s.running() {
		return false
	}
	return a == nil && !awaiting || a != nil && a.Gone() || awaiting && s.clientGone()
}

// clientGone reports whether the process that connected has ended. A process of another pid
// namespace is not known, and may be alive.
func (s *Session) clientGone() bool { return s.Peer.PID != 0 && !s.Peer.Alive() }

// Detached reports whether the client has not reconnected yet after a restart of bakeryd. It keeps
// its place, but is not granted the lock.
func (s *Session) Detached() bool { return locked(s, &s.awaitingClient) }

// decided reports whether hold and err are set.
func (s *Session) decided() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// outlive keeps the hold of a client that is gone while its command runs. An unconfirmed hold has
// no command. Its processes wait to become one, possibly forever, and are killed.
func (s *Session) outlive(stay int) {
	s.mu.Lock()
	if s.stays != stay {
		s.mu.Unlock()
		return
	}
	s.orphan, s.awaitingClient = true, false
	unconfirmed := s.unconfirmed
	s.mu.Unlock()
	if unconfirmed {
		s.killAndRelease(stay, "its client did not run when it was granted")
		return
	}
	if s.hold.Err() == nil {
		s.noteOrphan()
		s.all.cfg.Log.Info("holder is gone, its command keeps the lock", "lock", s.req.Name, "token", s.hold.Token(), "pid", s.req.PID)
	}
	if s.FIFO != nil {
		s.FIFO.Watch()
		select {
		case <-s.FIFO.Gone():
		case <-s.all.cfg.Ending.Ended:
			return
		}
	}
	for s.running() { // a process may have joined the command later
		if !s.poll(context.Background()) {
			return
		}
	}
	s.release(stay, "the processes that its client left have ended")
}

// killAndRelease kills the command and then releases the lock, unless a client has reconnected by
// then.
func (s *Session) killAndRelease(stay int, why string) {
	if !s.endStay(stay, false) {
		return
	}
	for s.Remains() {
		_, _ = s.Kill(why) // retried
		if !s.poll(context.Background()) {
			return
		}
	}
	s.release(stay, why)
}

// endStay closes the session to its client, unless that has reconnected since the end of stay was
// seen: then it returns false.
func (s *Session) endStay(stay int, released bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays != stay {
		return false
	}
	s.over, s.released = true, s.released || released
	return true
}

// release releases the lock, unless a client has reconnected since the end of stay was seen. It
// does not matter whether that client is gone again, because it may have left a command:
//
//	stay 1: the client is gone, its command ends
//	                                 stay 2: a client reconnects, runs another command, and is gone
//	stay 1: release                  that command runs without the lock
func (s *Session) release(stay int, why string) {
	if !s.endStay(stay, true) {
		return
	}
	s.all.hasChanged() // before the release, which may block on the device
	if err := s.hold.ReleaseBecause(why); err != nil && !errors.Is(err, api.ErrLeaseLost) {
		s.all.cfg.Log.Warn("releasing a lock failed", "lock", s.req.Name, "err", err)
	}
	s.end()
}

// end removes the session.
func (s *Session) end() {
	s.limit(0)
	s.Tidy()
	s.all.remove(s)
}

// waiting records the client's place and schedules its notification. It does not block.
func (s *Session) waiting(ahead, queued int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead, s.queued = ahead, queued
	s.tellSoon()
}

// holds reports whether the session was granted the lock with token. A restored session holds
// before its driver has read the disk.
func (s *Session) holds(token layout.Ticket) bool {
	return s.decided() && s.hold != nil && s.hold.Token() == token
}

// Listening reports whether the client is connected and wants to receive requests.
func (s *Session) Listening() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listens && s.attached != nil
}

// listen records whether a client that has returned wants to receive requests. The handover file
// does not keep that.
func (s *Session) listen(want bool) {
	s.mu.Lock()
	s.listens = want
	s.mu.Unlock()
	if s.decided() && s.hold != nil {
		s.hold.Listen()
	}
}

// requested keeps a request for the client, instead of the oldest one if there are maxUnread. It
// does not block.
func (s *Session) requested(r locks.Requested) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests[max(0, len(s.requests)+1-maxUnread):], r)
	s.tellSoon()
}

// maxUnread is the number of requests kept for a client that did not read them yet.
const maxUnread = 4

// running reports whether the command of the session or processes that it left are running. While
// they are, the lock is held. With --close the lock is the wrapper's alone, so they do not count.
// Once the lock is lost, the session stays until they have been killed, because the guard looks at
// sessions that hold a lock.
func (s *Session) running() bool { return (!s.Alone || s.lost()) && s.Remains() }

// lost reports whether the lock was granted and its lease is lost.
func (s *Session) lost() bool { return s.decided() && s.hold != nil && s.hold.Err() != nil }

// LeftOver reports whether the client is gone while its command runs, and the processes of that
// command.
func (s *Session) LeftOver() (pids []int, orphan bool) {
	if !locked(s, &s.orphan) {
		return nil, false
	}
	found, _ := s.Left(false) // they may have ended by now, or be another user's
	for _, p := range found {
		pids = append(pids, p.PID)
	}
	slices.Sort(pids)
	return pids, true
}

// NoteRemains reports that for all holds. Their lease is over.
func (ss *Table) noteRemains() {
	held, _ := ss.Holding()
	for _, s := range held {
		if _, chased, _ := s.Contained(); s.Remains() {
			s.NoteRemains(slices.DeleteFunc(slices.Clone(chased), func(id process.ID) bool { return !id.Alive() }))
		}
	}
}

const maxTimeout = 365 * 24 * time.Hour

// Timeout returns the timeout of a request in milliseconds, at most maxTimeout.
func Timeout(ms int64) time.Duration {
	return time.Duration(min(ms, maxTimeout.Milliseconds())) * time.Millisecond
}

// Validate returns an error for a request that is invalid whatever the lock and the host.
func Validate(r *api.LockRequest) error {
	if r.TimeoutMS < 0 {
		return fmt.Errorf("%w: timeout_ms %d, want 0 or more", api.ErrInvalid, r.TimeoutMS)
	}
	if r.Session != "" {
		if err := handover.CheckSessionID(r.Session); err != nil {
			return fmt.Errorf("%w: %w", api.ErrInvalid, err)
		}
	}
	if r.Token != 0 && r.Session == "" {
		return fmt.Errorf("%w: token %v without the session that it was granted to", api.ErrInvalid, r.Token)
	}
	return nil
}
