package daemon

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
)

// session is what one client asked for and has: its place in a queue, then its
// hold. It outlives its connection, and by the journal bakeryd itself.
type session struct {
	all    *sessions
	id     string
	req    Request
	since  time.Time
	peer   process.ID // who connected
	uid    int        // and as which user
	lk     *lock      // of a restored session
	fifo   *witness   // of the command; nil: none was asked for
	cancel context.CancelCauseFunc
	places chan place    // takes the last one
	done   chan struct{} // closed when hold and err are set
	hold   *Hold
	err    error

	requests chan Requested // takes the last ones
	stopped  syscall.Signal // the last that its command was sent; of the one who stops it

	// mu guards the rest, and req.Mode once the lock is held.
	mu       sync.Mutex
	follower *follower // who streams to the client; nil: nobody
	nth      uint64    // arrival, once it was queued
	kept     bool      // the journal has it
	limbo    bool      // restored, and no client has come back for it yet
	orphan   bool      // the client is gone, the command lives
	listens  bool      // the client wants to hear of requests
	over     bool      // given up or let go: no client can come back to it any more
	timeout  *time.Timer
}

// place is how far a client is from its turn.
type place struct{ ahead, queued int }

// follower is one connection's interest in a session.
type follower struct {
	st       *stream
	replaced chan struct{} // closed when another one follows
}

// run waits for the lock.
func (s *session) run(ctx context.Context) {
	s.finish(s.all.d.Acquire(ctx, s.req))
}

// finish sets how the request has ended.
func (s *session) finish(h *Hold, err error) {
	s.hold, s.err = h, err
	if err != nil {
		s.unkeep()
		s.end()
	}
	close(s.done)
}

// follow makes a connection the one that the session is streamed to. It
// returns nil if that comes too late:
//
//	the old connection breaks        the client comes back
//	leave: nobody follows
//	                                 a session that holds: follow
//	release                          granted, and not held
func (s *session) follow(st *stream) *follower {
	f := &follower{st: st, replaced: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	if s.follower != nil {
		close(s.follower.replaced)
	}
	if s.limbo && s.lk != nil {
		s.lk.signal() // the driver may have waited for this client
	}
	s.follower, s.limbo, s.orphan = f, false, false
	return f
}

// setMode follows the hold.
func (s *session) setMode(mode layout.Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.req.Mode = mode
}

func (s *session) mode() layout.Mode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.req.Mode
}

// queued notes the place among the local clients.
func (s *session) queued(nth uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nth = nth
}

// limit bounds the wait from now on; 0: it does not.
func (s *session) limit(timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timeout != nil {
		s.timeout.Stop()
		s.timeout = nil
	}
	if timeout > 0 {
		s.timeout = time.AfterFunc(timeout, func() { s.cancel(ErrTimeout) })
	}
}

// gone tells that the client has gone, and the command too, though nobody may
// have said so yet.
func (s *session) gone() bool {
	s.mu.Lock()
	f, limbo := s.follower, s.limbo
	s.mu.Unlock()
	if s.witnessed() {
		return false
	}
	return f == nil && !limbo || f != nil && f.st.gone() || limbo && s.clientGone()
}

// clientGone tells whether the process is gone that has connected. One of
// another pid namespace is not known, and may be alive.
func (s *session) clientGone() bool { return s.peer.PID != 0 && !s.peer.Alive() }

// witnessed tells whether the command, or what it has left running, lives.
func (s *session) witnessed() bool { return s.fifo != nil && s.fifo.alive() }

// absent tells whether the client, after a restart of bakeryd, is yet to come
// back: it keeps its place, but is not let in.
func (s *session) absent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limbo
}

// leave ends a connection's interest. A client that waits has given up by
// that; one that holds has released, unless its command lives on.
func (s *session) leave(f *follower) {
	s.mu.Lock()
	if s.follower != f {
		s.mu.Unlock()
		return // another connection has taken it over
	}
	s.follower = nil
	s.over = s.over || !s.decided()
	s.mu.Unlock()
	s.cancel(context.Canceled)
	<-s.done
	if s.hold == nil {
		return
	}
	if !s.witnessed() {
		s.release("")
		return
	}
	s.all.tasks.Go(s.outlive)
}

// giveUp ends the wait of a client that is absent.
func (s *session) giveUp(why error) {
	s.mu.Lock()
	back := s.follower != nil
	s.over = s.over || !back
	s.mu.Unlock()
	if !back {
		s.cancel(why)
	}
}

// decided tells whether hold and err are set.
func (s *session) decided() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// outlive keeps the hold of a client that is gone for as long as its command lives.
func (s *session) outlive() {
	s.mu.Lock()
	s.orphan, s.limbo = s.follower == nil, false
	s.mu.Unlock()
	if s.hold.Err() == nil {
		s.noteOrphan()
		s.all.d.log.Info("holder is gone, its command keeps the lock", "lock", s.req.Name, "token", s.hold.token, "pid", s.req.PID)
	}
	s.fifo.watch()
	select {
	case <-s.fifo.gone():
	case <-s.all.d.ended:
		return
	}
	for s.witnessed() { // by one who came later
		if !s.poll(context.Background()) {
			return
		}
	}
	s.release("what its client had left running has ended")
}

// release gives the lock back, unless a client has come back to it.
func (s *session) release(why string) {
	s.mu.Lock()
	back := s.follower != nil
	s.over = s.over || !back
	s.mu.Unlock()
	if back {
		return
	}
	if err := s.hold.release(why); err != nil && !errors.Is(err, ErrLost) {
		s.all.d.log.Warn("releasing a lock failed", "lock", s.req.Name, "err", err)
	}
	s.end()
}

// end forgets the session.
func (s *session) end() {
	s.limit(0)
	if s.fifo != nil {
		_ = s.fifo.close() // a file that cannot be removed is pruned at the next start
	}
	s.all.remove(s)
}

// record is what the journal keeps.
func (s *session) record(state sessionState, token layout.Ticket, lk *lock) sessionRecord {
	return sessionRecord{
		ID: s.id, Nth: s.nth, State: state, Name: s.req.Name, Lock: lk.entry.Lock, Creation: lk.entry.Creation,
		Mode: s.req.Mode, Permits: s.req.Permits, LockPermits: lk.entry.Permits, PID: s.req.PID, Command: s.req.Command,
		Peer: s.peer.PID, PeerStarted: s.peer.Started, PeerUID: s.uid, Token: token, Since: s.since, Witness: s.fifo != nil,
	}
}

// keep puts the session into the journal. Before a grant is told to anybody it
// has to be there: a successor that did not know of it would give the ticket
// to somebody else. If that fails there is no journal any more.
func (s *session) keep(state sessionState, token layout.Ticket, lk *lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all.journal == nil || state == sessionWaiting && (s.kept || s.req.Try) { // who does not wait asks anew
		return
	}
	s.kept = true
	if err := s.all.journal.put(s.record(state, token, lk)); err != nil {
		s.all.d.log.Error("keeping the state for a restart failed: after one, all locks of this host are lost", "err", err)
	}
}

// unkeep takes the session out of the journal: nobody holds by its ticket any
// more, or the slot says so itself.
func (s *session) unkeep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept {
		s.kept = false
		if err := s.all.journal.remove(s.id); err != nil {
			s.all.d.log.Error("keeping the state for a restart failed: after one, all locks of this host are lost", "err", err)
		}
	}
}

// waiting is told how far the client is. It does not block.
func (s *session) waiting(ahead, queued int) {
	select {
	case <-s.places: // out of date
	default:
	}
	select {
	case s.places <- place{ahead, queued}:
	default:
	}
}

// holds tells whether the session was granted the lock by a token. One that is
// restored holds before its driver has looked at the disk.
func (s *session) holds(token layout.Ticket) bool {
	return s.decided() && s.hold != nil && s.hold.token == token
}
