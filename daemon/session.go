package daemon

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/liveness"
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
	peer   process.ID     // who connected
	uid    int            // and as which user
	fifo   *liveness.FIFO // of the command; nil: none was asked for
	alone  bool           // the lock is the client's alone, and ends with it
	cancel context.CancelCauseFunc
	lk     *lock         // where it waits, or holds
	places chan place    // takes the last one
	done   chan struct{} // closed when hold and err are set
	hold   *Hold
	err    error

	requests chan Requested // takes the last ones

	// mu guards the rest, and req.Mode once the lock is held.
	mu          sync.Mutex
	follower    *follower      // the connection that streams to the client; nil if none
	group       *cgroup.Group  // of the command, whether or not it is there; nil: it has none, for weak
	weak        error          // why the command has no cgroup; nil: not known
	chased      []process.ID   // of the command, that were found to be stopped
	remained    bool           // it was noted that some of these are left
	stopped     syscall.Signal // the last one noted that the command was sent
	nth         uint64         // arrival, once it was queued
	kept        bool           // the journal has it
	unconfirmed bool           // it was granted, and nothing runs under it before its client confirms that
	limbo       bool           // restored, and no client has come back for it yet
	orphan      bool           // the client is gone, the command lives
	stays       int            // how often a client has come to follow
	listens     bool           // the client wants to hear of requests
	over        bool           // given up or let go: no client can come back to it any more
	letGo       bool           // the lock is not held by it any more, even if the disk still shows it
	place       *place         // the last one told; nil: none
	timeout     *time.Timer
	wanted      context.Context // ends with the client's interest; nil: the lock was asked for
	unkept      *lock           // where it waits, not yet in the journal; nil if there is nothing to keep
	nesting     *time.Timer     // finds under; nil: it has not waited for so long
	under       *layout.Holder  // below which the client waits; nil: none, or not known
	warning     string          // not yet sent to the client
	stale       bool            // its link has not been sent all that has changed (tell.go)
}

// place is how far a client is from its turn.
type place struct{ ahead, queued int }

// follower is one connection's interest in a session: that of a stream or of
// a link.
type follower struct {
	from     asker
	st       *stream       // nil if it is not that of a stream
	replaced chan struct{} // closed when another one follows
	link     *link
	session  *session // of a link
	late     bool     // the session was decided when it began to follow
	confirms bool     // the client is to confirm the grant
}

// asker is the connection of one who asks for a lock.
type asker interface {
	peer() (process.ID, int)
	caller() *caller
	gone() bool
	follower() *follower
}

func (st *stream) follower() *follower { return &follower{st: st, replaced: make(chan struct{})} }

func (f *follower) gone() bool { return f.from.gone() }

// replace ends the interest of a connection: its client goes on by another one.
func (f *follower) replace() {
	if f.link != nil {
		f.link.hangUp()
		return
	}
	close(f.replaced)
}

// start asks for the lock, if nobody has yet. The lock may be granted, and let
// go by others, before it returns, and it may wait for the device.
func (s *session) start() {
	s.mu.Lock()
	ctx := s.wanted
	s.wanted = nil
	s.mu.Unlock()
	if ctx != nil {
		s.all.d.submit(ctx, s.req, s.finish)
	}
}

// finish sets how the request has ended.
func (s *session) finish(h *Hold, err error) {
	s.hold, s.err = h, err
	if err != nil {
		s.unkeep()
		s.end()
	}
	s.mu.Lock()
	close(s.done)
	f := s.follower
	s.mu.Unlock()
	s.limit(0)
	if f != nil && f.link != nil {
		f.link.decided(s, f)
	}
}

// follow makes a connection the one that the session is streamed to. It
// returns nil if that comes too late:
//
//	the old connection breaks        the client comes back
//	leave: nobody follows
//	                                 a session that holds: follow
//	release                          granted, and not held
func (s *session) follow(c asker, confirms bool) *follower {
	f := c.follower()
	f.from, f.confirms = c, confirms
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	if s.follower != nil {
		s.follower.replace()
	}
	f.late = s.decided()
	if f.link != nil {
		f.link.bind(s, f)
	}
	if s.limbo && s.lk != nil {
		s.lk.retell.Store(true)
		s.lk.signal() // the driver may have waited for this client
	}
	s.follower, s.limbo, s.orphan = f, false, false
	s.stays++
	if s.place != nil {
		s.tell(*s.place) // who follows now has not heard of it
	}
	return f
}

// holding tells whether the client holds a lock, lost or not.
func (s *session) holding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decided() && s.hold != nil && !s.letGo
}

// setMode follows the hold.
func (s *session) setMode(mode layout.Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.req.Mode = mode
	if s.linked() {
		s.tellSoon()
	}
}

func (s *session) mode() layout.Mode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.req.Mode
}

// queued notes the place among the local clients.
func (s *session) queued(lk *lock, nth uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lk, s.nth = lk, nth
}

// limit bounds the wait from now on, if it is not over; 0: it does not.
func (s *session) limit(timeout time.Duration) {
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

// gone reports whether the client has ended, and its command too, even if its connection has not
// been seen to close. A session that waits has no command: what is in its cgroup waits to become one.
func (s *session) gone() bool {
	s.mu.Lock()
	f, limbo := s.follower, s.limbo
	s.mu.Unlock()
	if s.decided() && s.hold != nil && s.running() {
		return false
	}
	return f == nil && !limbo || f != nil && f.gone() || limbo && s.clientGone()
}

// clientGone tells whether the process is gone that has connected. One of
// another pid namespace is not known, and may be alive.
func (s *session) clientGone() bool { return s.peer.PID != 0 && !s.peer.Alive() }

// absent tells whether the client, after a restart of bakeryd, is yet to come
// back: it keeps its place, but is not let in.
func (s *session) absent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limbo
}

// leave ends a connection's interest. A client that waits has given up by
// that; one that holds has released, unless its command lives on, which is
// returned.
func (s *session) leave(f *follower) (kept bool) {
	s.mu.Lock()
	if s.follower != f {
		s.mu.Unlock()
		return false // another connection has taken it over
	}
	s.follower = nil
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

// abandon releases a hold that its client has not confirmed: nothing runs under it.
func (s *session) abandon(f *follower, why string) {
	s.mu.Lock()
	if s.follower != f {
		s.mu.Unlock()
		return // the client has come back by another connection
	}
	s.follower = nil
	stay := s.stays
	s.mu.Unlock()
	s.release(stay, why)
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

// outlive keeps the hold of a client that is gone for as long as its command lives. A hold that was
// not confirmed has no command: what is there waits to become one, perhaps for ever, and is killed.
func (s *session) outlive(stay int) {
	s.mu.Lock()
	if s.stays != stay {
		s.mu.Unlock()
		return
	}
	s.orphan, s.limbo = true, false
	unconfirmed := s.unconfirmed
	s.mu.Unlock()
	if unconfirmed {
		s.killAndRelease(stay, "its client did not run when it was granted")
		return
	}
	if s.hold.Err() == nil {
		s.noteOrphan()
		s.all.d.log.Info("holder is gone, its command keeps the lock", "lock", s.req.Name, "token", s.hold.token, "pid", s.req.PID)
	}
	if s.fifo != nil {
		s.fifo.Watch()
		select {
		case <-s.fifo.Gone():
		case <-s.all.d.ended:
			return
		}
	}
	for s.running() { // a process that joined the command later
		if !s.poll(context.Background()) {
			return
		}
	}
	s.release(stay, "what its client had left running has ended")
}

// killAndRelease releases the lock when all of the command has been killed, unless a client has come
// back by then.
func (s *session) killAndRelease(stay int, why string) {
	s.mu.Lock()
	back := s.stays != stay
	s.over = s.over || !back
	s.mu.Unlock()
	if back {
		return
	}
	for s.remains() {
		_, _ = s.kill(why) // tried again
		if !s.poll(context.Background()) {
			return
		}
	}
	s.release(stay, why)
}

// release gives the lock back, unless a client has come back to it since it was seen that nothing is
// left of a stay. Whether that client is gone again does not matter, for it may have left a command:
//
//	stay 1: the client is gone, its command ends
//	                                 stay 2: the client comes back, runs another, and is gone
//	stay 1: release                  that command runs without the lock
func (s *session) release(stay int, why string) {
	s.mu.Lock()
	back := s.stays != stay
	s.over, s.letGo = s.over || !back, s.letGo || !back
	s.mu.Unlock()
	if back {
		return
	}
	s.all.hasChanged() // the release may have to wait for the device
	if err := s.hold.release(why); err != nil && !errors.Is(err, api.ErrLeaseLost) {
		s.all.d.log.Warn("releasing a lock failed", "lock", s.req.Name, "err", err)
	}
	s.end()
}

// end forgets the session.
func (s *session) end() {
	s.limit(0)
	if s.fifo != nil {
		_ = s.fifo.Remove() // a file that cannot be removed is pruned at the next start
	}
	group, _ := s.contained()
	group.Remove()
	s.all.remove(s)
}

// record is what the journal keeps.
func (s *session) record(state handover.State, token layout.Ticket, lk *lock) handover.Session {
	return handover.Session{
		ID: s.id, Nth: s.nth, State: state, Name: s.req.Name, Lock: lk.entry.Lock, Creation: lk.entry.Creation,
		Mode: s.req.Mode, Permits: s.req.Permits, LockPermits: lk.entry.Permits, PID: s.req.PID, Command: s.req.Command,
		Peer: s.peer.PID, PeerStarted: s.peer.Started, PeerUID: s.uid, Token: token, Since: s.since, Witness: s.fifo != nil, Cgroup: s.cgroupDir(),
		Unconfirmed: s.unconfirmed && state == handover.Granted,
	}
}

// cgroupDir is called with mu held.
func (s *session) cgroupDir() string {
	if s.group == nil {
		return ""
	}
	return s.group.Dir
}

// keep puts the session into the journal. Before a grant is told to anybody it
// has to be there: a successor that did not know of it would give the ticket
// to somebody else. If that fails there is no journal any more.
func (s *session) keep(state handover.State, token layout.Ticket, lk *lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all.journal == nil || state == handover.Waiting && (s.kept || s.req.Try) { // who does not wait asks anew
		return
	}
	if state == handover.Waiting && s.linked() {
		s.unkept = lk // before its place is told, which most do not wait long enough for
		s.tellSoon()
		return
	}
	s.put(state, token, lk)
}

// keepGrant puts a new grant into the journal.
func (s *session) keepGrant(token layout.Ticket, lk *lock) {
	s.mu.Lock()
	s.unconfirmed = s.follower != nil && s.follower.confirms
	s.mu.Unlock()
	s.keep(handover.Granted, token, lk)
}

// confirmed notes that a command may begin, which a successor has to know before the client does.
// It is called with mu held.
func (s *session) confirmed() {
	if !s.unconfirmed {
		return
	}
	s.unconfirmed = false
	if s.kept {
		s.put(handover.Granted, s.hold.token, s.hold.lk)
	}
}

// put is called with mu held.
func (s *session) put(state handover.State, token layout.Ticket, lk *lock) {
	s.kept, s.unkept = true, nil
	if err := s.all.journal.Put(s.record(state, token, lk)); err != nil {
		s.all.d.log.Error("keeping the state for a restart failed: after one, all locks of this host are lost", "err", err)
	}
}

// unkeep takes the session out of the journal: nobody holds by its ticket any
// more, or the slot says so itself.
func (s *session) unkeep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unkept = nil
	if s.kept {
		s.kept = false
		if err := s.all.journal.Remove(s.id); err != nil {
			s.all.d.log.Error("keeping the state for a restart failed: after one, all locks of this host are lost", "err", err)
		}
	}
}

// waiting is told how far the client is. It does not block.
func (s *session) waiting(ahead, queued int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place == nil {
		s.place = new(place)
	}
	*s.place = place{ahead, queued}
	s.tell(*s.place)
}

// tell has the client told of its place. It is called with mu held.
func (s *session) tell(p place) {
	if s.linked() {
		s.tellSoon()
		return
	}
	select {
	case <-s.places: // out of date
	default:
	}
	select {
	case s.places <- p:
	default:
	}
}

// holds tells whether the session was granted the lock by a token. One that is
// restored holds before its driver has looked at the disk.
func (s *session) holds(token layout.Ticket) bool {
	return s.decided() && s.hold != nil && s.hold.token == token
}
