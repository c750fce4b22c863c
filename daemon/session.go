package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/command"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
)

// session is the request of one client: its place in a queue, then its hold. It outlives its
// connection and, by the handover file, bakeryd itself.
type session struct {
	*command.Command
	all    *sessions
	req    locks.Request
	since  time.Time
	cancel context.CancelCauseFunc
	lk     *locks.Lock   // in which it waits or holds
	places chan place    // takes the last one
	done   chan struct{} // closed when hold and err are set
	hold   *locks.Hold
	err    error

	requests chan locks.Requested // takes the last ones

	// mu guards the fields below, and req.Mode once the lock is held.
	mu       sync.Mutex
	follower *follower // the connection that streams to the client; nil if none
	nth      uint64    // arrival number, once queued
	kept     bool      // recorded in the handover file, or about to be
	lastSave uint64    // last change of the record; 0 if none
	// granted, but no command may run before the client confirms the grant
	unconfirmed    bool
	awaitingClient bool // restored, and its client has not reconnected yet
	orphan         bool // the client is gone, its command runs
	stays          int  // number of connections that have followed it
	listens        bool // the client wants to receive requests
	over           bool // given up or released: no client can reconnect to it
	// the lock is not held by it any more, even if the disk still shows it
	released bool
	place    *place // the last one sent; nil if none
	timeout  *time.Timer
	wanted   context.Context // ends with the client's interest; nil once the lock was requested
	// lock in which it waits, not yet in the handover file; nil if there is nothing to record
	unkept  *locks.Lock
	nesting *time.Timer    // finds under; nil before nestAfter
	under   *layout.Holder // holder below which the client waits; nil if none or not known
	warning string         // not yet sent to the client
	stale   bool           // its link was not sent all changes yet (tell.go)
}

// place is a client's place in the queue.
type place struct{ ahead, queued int }

// follower is the connection, a stream or a link, that follows a session.
type follower struct {
	from     asker
	st       *stream       // nil for a link
	replaced chan struct{} // closed when another one follows
	link     *link
	session  *session // set for a link
	late     bool     // the session was decided before it began to follow
	confirms bool     // the client must confirm the grant
}

// asker is the connection of a client that requests a lock.
type asker interface {
	peer() (process.ID, int)
	caller() *caller
	gone() bool
	follower() *follower
}

func (st *stream) follower() *follower { return &follower{st: st, replaced: make(chan struct{})} }

func (f *follower) gone() bool { return f.from.gone() }

// replace ends the connection's part: its client continues on another one.
func (f *follower) replace() {
	if f.link != nil {
		f.link.hangUp()
		return
	}
	close(f.replaced)
}

// request sets what the client requests.
func (s *session) request(req locks.Request) {
	s.req = req
	s.Lock, s.PID = req.Name, req.PID
}

// start requests the lock, unless that was done. Before it returns, the lock may be granted and
// released by other goroutines. It may block on the device.
func (s *session) start() {
	s.mu.Lock()
	ctx := s.wanted
	s.wanted = nil
	s.mu.Unlock()
	if ctx != nil {
		s.all.mgr.Submit(ctx, s.req, s.finish)
	}
}

// finish sets the outcome of the request.
func (s *session) finish(h *locks.Hold, err error) {
	s.hold, s.err = h, err
	if err != nil {
		s.Forget()
		s.end()
	}
	s.Saved()
	s.mu.Lock()
	close(s.done)
	f := s.follower
	s.mu.Unlock()
	s.limit(0)
	if f != nil && f.link != nil {
		f.link.decided(s, f)
	}
}

// follow makes a connection the one that follows the session. It returns nil if the session is over
// already:
//
//	the old connection breaks        the client reconnects
//	leave: no follower
//	                                 the session holds: follow
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
	if s.awaitingClient && s.lk != nil {
		s.lk.ClientIsBack()
	}
	s.follower, s.awaitingClient, s.orphan = f, false, false
	s.stays++
	if s.place != nil {
		s.tell(*s.place) // the new follower was not sent it
	}
	return f
}

// holding reports whether the client holds a lock, lost or not.
func (s *session) holding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decided() && s.hold != nil && !s.released
}

// KeepMode sets the mode to that of the hold, also for the handover file.
func (s *session) KeepMode(lk *locks.Lock, token layout.Ticket, mode layout.Mode) {
	s.mu.Lock()
	s.req.Mode = mode
	if s.linked() {
		s.tellSoon()
	}
	s.mu.Unlock()
	s.keep(handover.Granted, token, lk)
}

func (s *session) mode() layout.Mode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.req.Mode
}

// Queued records the place among the local clients.
func (s *session) Queued(lk *locks.Lock, nth uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lk, s.nth = lk, nth
}

// limit limits the wait from now on, if it is not over; 0 removes the limit.
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

// gone reports whether the client and its command have ended, even if its connection was not seen
// to close. A waiting session has no command: the processes in its cgroup wait to become one.
func (s *session) gone() bool {
	s.mu.Lock()
	f, limbo := s.follower, s.awaitingClient
	s.mu.Unlock()
	if s.decided() && s.hold != nil && s.running() {
		return false
	}
	return f == nil && !limbo || f != nil && f.gone() || limbo && s.clientGone()
}

// clientGone reports whether the process that connected has ended. A process of another pid
// namespace is not known, and may be alive.
func (s *session) clientGone() bool { return s.Peer.PID != 0 && !s.Peer.Alive() }

// Detached reports whether the client has not reconnected yet after a restart of bakeryd. It keeps
// its place, but is not granted the lock.
func (s *session) Detached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.awaitingClient
}

// leave ends a connection's part. A waiting client gives up by that. A holder releases, unless its
// command still runs; then kept is true.
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

// abandon releases a hold that its client has not confirmed. No command runs under it.
func (s *session) abandon(f *follower, why string) {
	s.mu.Lock()
	if s.follower != f {
		s.mu.Unlock()
		return // the client has reconnected
	}
	s.follower = nil
	stay := s.stays
	s.mu.Unlock()
	s.release(stay, why)
}

// giveUp ends the wait of an absent client.
func (s *session) giveUp(why error) {
	s.mu.Lock()
	back := s.follower != nil
	s.over = s.over || !back
	s.mu.Unlock()
	if !back {
		s.cancel(why)
	}
}

// decided reports whether hold and err are set.
func (s *session) decided() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// outlive keeps the hold of a client that is gone while its command runs. An unconfirmed hold has
// no command. Its processes wait to become one, possibly forever, and are killed.
func (s *session) outlive(stay int) {
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
		s.all.log.Info("holder is gone, its command keeps the lock", "lock", s.req.Name, "token", s.hold.Token(), "pid", s.req.PID)
	}
	if s.FIFO != nil {
		s.FIFO.Watch()
		select {
		case <-s.FIFO.Gone():
		case <-s.all.ending.ended:
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
func (s *session) killAndRelease(stay int, why string) {
	s.mu.Lock()
	back := s.stays != stay
	s.over = s.over || !back
	s.mu.Unlock()
	if back {
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

// release releases the lock, unless a client has reconnected since the end of stay was seen. It
// does not matter whether that client is gone again, because it may have left a command:
//
//	stay 1: the client is gone, its command ends
//	                                 stay 2: a client reconnects, runs another command, and is gone
//	stay 1: release                  that command runs without the lock
func (s *session) release(stay int, why string) {
	s.mu.Lock()
	back := s.stays != stay
	s.over, s.released = s.over || !back, s.released || !back
	s.mu.Unlock()
	if back {
		return
	}
	s.all.hasChanged() // before the release, which may block on the device
	if err := s.hold.ReleaseBecause(why); err != nil && !errors.Is(err, api.ErrLeaseLost) {
		s.all.log.Warn("releasing a lock failed", "lock", s.req.Name, "err", err)
	}
	s.end()
}

// end removes the session.
func (s *session) end() {
	s.limit(0)
	s.Tidy()
	s.all.remove(s)
}

// record returns the session's record for the handover file.
func (s *session) record(state handover.State, token layout.Ticket, lk *locks.Lock) handover.Session {
	return handover.Session{
		ID: s.ID, Nth: s.nth, State: state, Name: s.req.Name, Lock: lk.Entry.Lock, Creation: lk.Entry.Creation,
		Mode: s.req.Mode, Permits: s.req.Permits, LockPermits: lk.Entry.Permits, PID: s.req.PID, Command: s.req.Command,
		Peer: s.Peer.PID, PeerStarted: s.Peer.Started, PeerUID: s.UID, Token: token, Since: s.since, Witness: s.FIFO != nil, Cgroup: s.CgroupDir(),
		Unconfirmed: s.unconfirmed && state == handover.Granted,
	}
}

// keep queues the session for the handover file. A grant must be there before any client is sent it
// (finish): a next process that did not know of it would give the ticket to another client. If the
// write fails, the handover file is given up.
func (s *session) keep(state handover.State, token layout.Ticket, lk *locks.Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// a client that does not wait requests it again
	if s.all.journal == nil || state == handover.Waiting && (s.kept || s.req.Try) {
		return
	}
	if state == handover.Waiting && s.linked() {
		s.unkept = lk // written before its place is sent; most clients do not wait that long
		s.tellSoon()
		return
	}
	s.put(state, token, lk)
}

// KeepPlace queues the place among the clients for the handover file.
func (s *session) KeepPlace(lk *locks.Lock) { s.keep(handover.Waiting, 0, lk) }

// KeepRelease queues for the handover file that the client has released the lock.
func (s *session) KeepRelease(lk *locks.Lock, token layout.Ticket) {
	s.keep(handover.Released, token, lk)
}

// KeepGrant queues a new grant for the handover file.
func (s *session) KeepGrant(lk *locks.Lock, token layout.Ticket) {
	s.mu.Lock()
	s.unconfirmed = s.follower != nil && s.follower.confirms
	s.mu.Unlock()
	s.keep(handover.Granted, token, lk)
}

// confirmed records that a command may begin. The next process must know that before the client
// does (Saved). Called with mu held.
func (s *session) confirmed() {
	if !s.unconfirmed {
		return
	}
	s.unconfirmed = false
	if s.kept {
		s.put(handover.Granted, s.hold.Token(), s.hold.Lock())
	}
}

// put queues the record for the handover file. Called with mu held.
func (s *session) put(state handover.State, token layout.Ticket, lk *locks.Lock) {
	s.kept, s.unkept = true, nil
	s.queue(s.all.journal.QueuePut(s.record(state, token, lk)))
}

// queue records the number of a change. Called with mu held.
func (s *session) queue(change uint64) { s.lastSave = max(s.lastSave, change) }

// Saved blocks until the handover file has the session as it is now. Called without any mutex.
func (s *session) Saved() {
	s.mu.Lock()
	last := s.lastSave
	s.mu.Unlock()
	if last == 0 {
		return
	}
	if err := s.all.journal.Wait(last); err != nil {
		s.all.log.Error("writing the handover file failed: a restart of bakeryd will lose all locks of this host", "err", err)
	}
}

// Forget removes the session from the handover file, once no client holds by its ticket, or the
// slot shows the state itself.
func (s *session) Forget() {
	s.mu.Lock()
	s.unkept = nil
	if s.kept {
		s.kept = false
		s.queue(s.all.journal.QueueRemove(s.ID))
	}
	s.mu.Unlock()
	s.Saved()
}

// waiting records the client's place and schedules its notification. It does not block.
func (s *session) waiting(ahead, queued int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place == nil {
		s.place = new(place)
	}
	*s.place = place{ahead, queued}
	s.tell(*s.place)
}

// tell notifies the client of its place. Called with mu held.
func (s *session) tell(p place) {
	if s.linked() {
		s.tellSoon()
		return
	}
	select {
	case <-s.places: // replaced by the new one
	default:
	}
	select {
	case s.places <- p:
	default:
	}
}

// holds reports whether the session was granted the lock with token. A restored session holds
// before its driver has read the disk.
func (s *session) holds(token layout.Ticket) bool {
	return s.decided() && s.hold != nil && s.hold.Token() == token
}

// Listening reports whether the client is connected and wants to receive requests.
func (s *session) Listening() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listens && s.follower != nil
}

// listen records whether a client that has returned wants to receive requests. The handover file
// does not keep that.
func (s *session) listen(want bool) {
	s.mu.Lock()
	s.listens = want
	s.mu.Unlock()
	if s.decided() && s.hold != nil {
		s.hold.Listen()
	}
}

// requested keeps a request for the client. It replaces the oldest one if the client reads none. It
// does not block.
func (s *session) requested(r locks.Requested) {
	for {
		select {
		case s.requests <- r:
			s.mu.Lock()
			if s.linked() {
				s.tellSoon()
			}
			s.mu.Unlock()
			return
		default:
		}
		select {
		case <-s.requests:
		default:
		}
	}
}

// maxUnread is the number of requests kept for a client that did not read them yet.
const maxUnread = 4

// running reports whether the command of the session or processes that it left are running. While
// they are, the lock is held. With --close the lock is the wrapper's alone, so they do not count.
// Once the lock is lost, the session stays until they have been killed, because the guard looks at
// sessions that hold a lock.
func (s *session) running() bool { return (!s.Alone || s.lost()) && s.Remains() }

// lost reports whether the lock was granted and its lease is lost.
func (s *session) lost() bool { return s.decided() && s.hold != nil && s.hold.Err() != nil }

// LeftOver reports whether the client is gone while its command runs, and the processes of that
// command.
func (s *session) LeftOver() (pids []int, orphan bool) {
	s.mu.Lock()
	orphan = s.orphan
	s.mu.Unlock()
	if !orphan {
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
func (ss *sessions) noteRemains() {
	held, _ := ss.holding()
	for _, s := range held {
		if _, chased := s.Contained(); s.Remains() {
			s.NoteRemains(slices.DeleteFunc(slices.Clone(chased), func(id process.ID) bool { return !id.Alive() }))
		}
	}
}
