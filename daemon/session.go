package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
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
	lk     *lock      // of a restored session
	fifo   *witness   // of the command; nil: none was asked for
	cancel context.CancelCauseFunc
	places chan place    // takes the last one
	done   chan struct{} // closed when hold and err are set
	hold   *Hold
	err    error

	mu       sync.Mutex
	follower *follower // who streams to the client; nil: nobody
	nth      uint64    // arrival, once it was queued
	kept     bool      // the journal has it
	limbo    bool      // restored, and no client has come back for it yet
	orphan   bool      // the client is gone, the command lives
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
		s.end()
	}
	close(s.done)
}

// follow makes a connection the one that the session is streamed to.
func (s *session) follow(st *stream) *follower {
	f := &follower{st: st, replaced: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.follower != nil {
		close(s.follower.replaced)
	}
	if s.limbo && s.lk != nil {
		s.lk.signal() // the driver may have waited for this client
	}
	s.follower, s.limbo, s.orphan = f, false, false
	return f
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
	return f == nil && !limbo || f != nil && f.st.gone() || limbo && !s.peer.Alive()
}

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
	s.mu.Unlock()
	s.cancel(context.Canceled)
	<-s.done
	if s.hold == nil {
		return
	}
	if !s.witnessed() {
		s.release()
		return
	}
	s.all.tasks.Go(s.outlive)
}

// outlive keeps the hold of a client that is gone for as long as its command lives.
func (s *session) outlive() {
	s.mu.Lock()
	s.orphan, s.limbo = s.follower == nil, false
	s.mu.Unlock()
	s.all.d.log.Info("holder is gone, its command keeps the lock", "lock", s.req.Name, "token", s.hold.token, "pid", s.req.PID)
	s.fifo.watch()
	select {
	case <-s.fifo.gone():
	case <-s.all.d.ended:
		return
	}
	s.mu.Lock()
	orphan := s.orphan
	s.mu.Unlock()
	if orphan {
		s.release()
	}
}

// release gives the lock back.
func (s *session) release() {
	if err := s.hold.Release(); err != nil && !errors.Is(err, ErrLost) {
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
		Mode: s.req.Mode, Permits: s.req.Permits, PID: s.req.PID, Command: s.req.Command,
		Peer: s.peer.PID, PeerStarted: s.peer.Started, Token: token, Since: s.since, Witness: s.fifo != nil,
	}
}

// keep puts the session into the journal. Before a grant is told to anybody it
// has to be there: a successor that did not know of it would give the ticket
// to somebody else. If that fails there is no journal any more.
func (s *session) keep(state sessionState, token layout.Ticket, lk *lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all.journal == nil || state == sessionWaiting && s.kept {
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

// sessions are the clients of one daemon.
type sessions struct {
	d       *Daemon
	journal *journal // nil: nothing is kept
	tasks   sync.WaitGroup

	mu      sync.Mutex
	byID    map[string]*session
	changed chan struct{} // closed and replaced when a session has ended
}

func newSessions(d *Daemon) *sessions {
	return &sessions{d: d, byID: map[string]*session{}, changed: make(chan struct{})}
}

// open returns the session that a request is of, a new one if need be, and
// the connection's part in it.
func (ss *sessions) open(body lockRequest, st *stream) (*session, *follower, error) {
	if s, f, err := ss.reopen(body, st); s != nil || err != nil {
		return s, f, err
	}
	s, err := ss.begin(body, st)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	f := s.follow(st)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byID[s.id] != nil {
		s.end()
		return nil, nil, fmt.Errorf("%w: session %s asks twice at once", ErrInvalid, s.id)
	}
	ss.byID[s.id] = s
	ss.tasks.Go(func() { s.run(ctx) })
	return s, f, nil
}

// reopen returns the session that a client comes back to, nil if it is new.
func (ss *sessions) reopen(body lockRequest, st *stream) (*session, *follower, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s := ss.byID[body.Session]; s != nil {
		if s.req.Name != body.Name || s.req.Mode != body.Mode {
			return nil, nil, fmt.Errorf("%w: session %s is of lock %q, %v", ErrInvalid, s.id, s.req.Name, s.req.Mode)
		}
		if body.Token != 0 && !s.holds(body.Token) {
			return nil, nil, fmt.Errorf("%w: session %s does not hold %q by token %v", ErrHoldOver, s.id, body.Name, body.Token)
		}
		f := s.follow(st)
		return s, f, nil
	}
	if body.Token != 0 {
		return nil, nil, fmt.Errorf("%w: no session %s holds %q", ErrHoldOver, body.Session, body.Name)
	}
	return nil, nil, nil
}

// begin makes a session of a request.
func (ss *sessions) begin(body lockRequest, st *stream) (*session, error) {
	s := ss.make(body.Session)
	s.peer = st.peer()
	s.req = Request{
		Name: body.Name, Mode: body.Mode, Try: body.NonBlock, Permits: body.Permits, PID: body.PID, Command: body.Command,
		Gone: s.gone, OnWaiting: s.waiting, session: s,
	}
	if s.req.PID == 0 {
		s.req.PID = s.peer.PID
	}
	if s.id == "" {
		var b [16]byte
		rand.Read(b[:])
		s.id = hex.EncodeToString(b[:])
	}
	if body.Witness {
		var err error
		if s.fifo, err = newWitness(ss.d.ids.runtime, witnessName(ss.d.sb.UUID, ss.d.mem.id(), s.id)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return s, nil
}

func (ss *sessions) make(id string) *session {
	return &session{all: ss, id: id, since: time.Now(), places: make(chan place, 1), done: make(chan struct{})}
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
	select {
	case <-s.done:
		return s.hold != nil && s.hold.token == token
	default:
		return false
	}
}

func (ss *sessions) remove(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byID[s.id] == s {
		delete(ss.byID, s.id)
		close(ss.changed)
		ss.changed = make(chan struct{})
	}
}

// list returns the sessions, and what will be closed when one has ended.
func (ss *sessions) list() ([]*session, <-chan struct{}) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	all := make([]*session, 0, len(ss.byID))
	for _, s := range ss.byID {
		all = append(all, s)
	}
	return all, ss.changed
}

// holding returns the sessions that hold a lock, lost or not.
func (ss *sessions) holding() ([]*session, <-chan struct{}) {
	all, changed := ss.list()
	held := all[:0]
	for _, s := range all {
		select {
		case <-s.done:
			if s.hold != nil {
				held = append(held, s)
			}
		default:
		}
	}
	return held, changed
}

// empty tells whether nobody holds a lock or waits for one.
func (ss *sessions) empty() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return len(ss.byID) == 0
}

// unheld waits until nobody holds a lock any more.
func (ss *sessions) unheld(ctx context.Context) error {
	for {
		held, changed := ss.holding()
		if len(held) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%q is still held by process %d: %w", held[0].req.Name, held[0].req.PID, context.Cause(ctx))
		}
	}
}
