// Package session has the clients of a host. A session is the request of one client: its place in a
// queue, then its hold. It outlives its connection and, by the handover file, bakeryd itself.
//
// The files by topic:
//
//   - table.go has all sessions of a host
//   - session.go is the life of one session, record.go its record in the handover file and its
//     return from there
//   - attachment.go is the part of a connection in it, tell.go what clients are sent unasked
//   - guard.go stops commands before a lease ends, nesting.go finds waits below a holder, happenings.go
//     reports to the observer
//
// A goroutine takes Table.mu before Session.mu, and Session.keeping before both. Only keeping is held
// while the handover file is changed.
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/command"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/observe"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/tasks"
	"github.com/bakeryd/bakeryd/daemon/warn"
	"github.com/bakeryd/bakeryd/layout"
)

// MaxSessions limits the sessions: fewer than the handover file can record.
const MaxSessions = handover.MaxCells / 2

// Config is what sessions need of their host.
type Config struct {
	Locks      *locks.Manager
	Member     *membership.Member
	RuntimeDir string // for liveness FIFOs
	UUID       layout.UUID
	Times      timing.Times
	Clock      clock.Clock
	Log        *slog.Logger
	Observer   observe.Observer
	Ending     *Ending
	Handover   *handover.File // nil if no state is kept
}

// Table has the clients of one host.
type Table struct {
	cfg     Config
	serving atomic.Bool // clients can connect
	tasks   tasks.Group
	warn    warn.Limiter // of stopCommands
	telling telling
	nesters nesters

	// ConfirmWithin is how long a client may take to confirm a grant. It is set before the first
	// client connects.
	ConfirmWithin time.Duration

	mu      sync.Mutex // guards the rest
	byID    map[string]*Session
	byUser  map[int]int   // number of sessions by user
	changed chan struct{} // closed and replaced when a session or its hold has ended
}

func New(cfg Config) *Table {
	ss := &Table{
		cfg: cfg, telling: newTelling(), ConfirmWithin: confirmWithin(cfg.Times.Lease),
		byID: map[string]*Session{}, byUser: map[int]int{}, changed: make(chan struct{}),
	}
	ss.nesters.examine, ss.nesters.show = ss.findNesting, cfg.Locks.ShowNesting
	ss.tasks.Go(ss.tell)
	ss.tasks.Go(ss.guard)
	return ss
}

// Wait blocks until the work of all sessions has ended, once the host has.
func (ss *Table) Wait() { ss.tasks.Wait() }

// Serve reports that clients can connect.
func (ss *Table) Serve() { ss.serving.Store(true) }

// fifoPath returns the path of a session's liveness FIFO.
func (ss *Table) fifoPath(id string) string {
	return filepath.Join(ss.cfg.RuntimeDir, ss.fifoName(id))
}

func (ss *Table) fifoName(id string) string {
	return liveness.Name(ss.cfg.UUID, ss.cfg.Member.ID(), id)
}

// Known returns the ids of all sessions.
func (ss *Table) Known() map[string]bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	known := map[string]bool{}
	for id := range ss.byID {
		known[id] = true
	}
	return known
}

// Client is what is known of the process that requests a lock, apart from its request.
type Client struct {
	Peer process.ID
	UID  int // -1 if its connection is closed
	May  func(lock string) error
}

// Open attaches a connection to the session of a request, which Validate accepts. It creates the
// session if needed; that one is not started yet.
func (ss *Table) Open(body api.LockRequest, by Client, sub Subscriber) (*Attachment, error) {
	for {
		if a, err := ss.reopen(body, by, sub); a != nil || err != nil {
			return a, err
		}
		// Access is not checked again for what a client already has: a new policy takes nothing
		// away.
		if err := by.May(body.Name); err != nil {
			return nil, err
		}
		s, err := ss.begin(body, by)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		s.cancel = cancel
		a := s.attach(sub, body.Confirm && body.Token == 0)
		a.start = func() { ss.cfg.Locks.Submit(ctx, s.req, s.finish) }
		fresh, err := ss.admit(s)
		if fresh {
			if ss.cfg.Handover != nil {
				ss.cfg.Handover.Reserve(s.ID) // until Forget
			}
			s.limit(Timeout(body.TimeoutMS))
			return a, nil
		}
		s.cancel(nil)
		s.end()
		if err != nil {
			return nil, err
		}
	}
}

// admit adds a new session. It returns false if the client has sent the request twice at the same
// time, or if there are too many.
func (ss *Table) admit(s *Session) (bool, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byID[s.ID] != nil {
		return false, nil
	}
	privileged := fdlimit.Clients().Privileged(s.UID)
	switch n := len(ss.byID); {
	case n >= MaxSessions, !privileged && n >= MaxSessions-MaxSessions/8:
		return false, fmt.Errorf("%w: %d clients hold locks or wait for them, which is the limit", api.ErrOverload, n)
	case !privileged && ss.byUser[s.UID] >= MaxSessions/4:
		return false, fmt.Errorf("%w: %d clients of user %d hold locks or wait for them, which is the limit for one user", api.ErrOverload,
			ss.byUser[s.UID], s.UID)
	}
	ss.byID[s.ID] = s
	ss.byUser[s.UID]++
	return true, nil
}

// add adds a session of a previous process, whatever the number.
func (ss *Table) add(s *Session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.byID[s.ID] = s
	ss.byUser[s.UID]++
}

// reopen attaches a connection to the session that it continues. It returns nil if there is none.
func (ss *Table) reopen(body api.LockRequest, by Client, sub Subscriber) (*Attachment, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byID[body.Session]
	if s == nil {
		if body.Token != 0 {
			return nil, fmt.Errorf("%w: no session %s holds %q", api.ErrLost, body.Session, body.Name)
		}
		return nil, nil
	}
	if by.UID != s.UID && by.UID != 0 {
		return nil, &NotOwner{Session: s.ID, Lock: s.req.Name}
	}
	// A token identifies the hold: its mode may have changed since the client was notified of it.
	if mode := s.mode(); s.req.Name != body.Name || mode != body.Mode && body.Token == 0 {
		return nil, fmt.Errorf("%w: session %s is of lock %q, %v", api.ErrInvalid, s.ID, s.req.Name, mode)
	}
	if body.Token != 0 && !s.holds(body.Token) {
		return nil, fmt.Errorf("%w: session %s does not hold %q by token %v", api.ErrLost, s.ID, body.Name, body.Token)
	}
	a := s.attach(sub, body.Confirm && body.Token == 0)
	switch {
	case a != nil:
		s.limit(Timeout(body.TimeoutMS))
		s.listen(body.Requests)
		return a, nil
	case body.Token != 0:
		return nil, fmt.Errorf("%w: %q was released by session %s", api.ErrLost, body.Name, s.ID)
	}
	return nil, fmt.Errorf("%w: session %s is about to end", api.ErrUnavailable, s.ID)
}

// Holder returns the hold of a session with a token if uid is its user or root; else it returns
// anothers.
func (ss *Table) Holder(id string, token layout.Ticket, uid int) (*locks.Hold, error) {
	s, err := ss.Of(id, uid)
	if err != nil {
		return nil, err
	}
	if !s.holds(token) {
		return nil, fmt.Errorf("%w: session %s does not hold a lock by token %v", api.ErrLost, id, token)
	}
	return s.hold, nil
}

// Of returns a session if uid is its user or root; else it returns anothers.
func (ss *Table) Of(id string, uid int) (*Session, error) {
	if err := handover.CheckSessionID(id); err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	ss.mu.Lock()
	s := ss.byID[id]
	ss.mu.Unlock()
	switch {
	case s == nil:
		return nil, fmt.Errorf("%w: there is no session %s", api.ErrLost, id)
	case uid != s.UID && uid != 0:
		return nil, &NotOwner{Session: id, Lock: s.req.Name}
	}
	return s, nil
}

// begin creates the session of a request.
func (ss *Table) begin(body api.LockRequest, by Client) (*Session, error) {
	s := ss.make(body.Session)
	if s.Peer, s.UID = by.Peer, by.UID; s.UID < 0 {
		return nil, fmt.Errorf("%w: the connection is closed", api.ErrUnavailable)
	}
	s.listens = body.Requests
	s.request(locks.Request{
		Name: body.Name, Mode: body.Mode, Try: body.NonBlock, Permits: body.Permits, PID: cmp.Or(body.PID, s.Peer.PID), Command: body.Command,
		NoLinger: body.NoLinger || body.Confirm || body.Witness, // a wrapper takes no other lock
	})
	if s.ID == "" {
		s.ID = api.NewSessionID()
	}
	s.Alone = !body.Witness
	if body.Witness || body.Confirm { // a command will run
		s.FindGroup()
	}
	if body.Witness {
		var err error
		if s.FIFO, err = liveness.Make(ss.cfg.RuntimeDir, ss.fifoName(s.ID), s.UID); err != nil {
			if !errors.Is(err, api.ErrOverload) {
				err = fmt.Errorf("%w: %w", api.ErrUnavailable, err)
			}
			return nil, err
		}
	}
	return s, nil
}

func (ss *Table) make(id string) *Session {
	s := &Session{all: ss, since: time.Now(), done: make(chan struct{})}
	s.Command = &command.Command{ID: id, Log: ss.cfg.Log, Report: func(kind events.Kind, reason string) {
		e := s.happening(kind)
		e.Reason = reason
		ss.cfg.Observer.Observe(e)
	}}
	return s
}

func (ss *Table) remove(s *Session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byID[s.ID] == s {
		delete(ss.byID, s.ID)
		if ss.byUser[s.UID]--; ss.byUser[s.UID] == 0 {
			delete(ss.byUser, s.UID)
		}
		ss.change()
	}
}

// hasChanged notifies those that wait for the end of holds.
func (ss *Table) hasChanged() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.change()
}

// change closes and replaces changed. Called with mu held.
func (ss *Table) change() {
	close(ss.changed)
	ss.changed = make(chan struct{})
}

// list returns the sessions, and a channel that is closed when one has ended.
func (ss *Table) list() ([]*Session, <-chan struct{}) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return slices.Collect(maps.Values(ss.byID)), ss.changed
}

// Holding returns the sessions that hold a lock, lost or not.
func (ss *Table) Holding() ([]*Session, <-chan struct{}) {
	all, changed := ss.list()
	return slices.DeleteFunc(all, func(s *Session) bool { return !s.Holding() }), changed
}

// Count returns the number of clients that hold a lock or wait for one.
func (ss *Table) Count() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return len(ss.byID)
}

// Unheld blocks until no client holds a lock.
func (ss *Table) Unheld(ctx context.Context) error {
	for {
		held, changed := ss.Holding()
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

// HandOver leaves all holds and places in queues for the next process, if there are any and the
// handover file has them all. The process must end after it. It waits up to handOverPause for
// sessions that are about to end, and for the release of locks that no client has: no other host
// waits for those until the restart.
func (ss *Table) HandOver() bool {
	if file := ss.cfg.Handover; file == nil || !file.Intact() {
		return false
	}
	ss.cfg.Locks.EndLingers()
	for give := time.Now().Add(handOverPause); ; {
		all, changed := ss.list()
		if len(all) == 0 {
			return false
		}
		staying := func(s *Session) bool { return !s.gone() }
		if !ss.cfg.Locks.Lingers() && slices.ContainsFunc(all, staying) || time.Now().After(give) {
			return true
		}
		select {
		case <-changed:
		case <-time.After(command.KillPause):
		}
	}
}

// handOverPause limits the wait for clients that have gone away.
const handOverPause = time.Second

// anothers is returned for a session that another user has opened.
type NotOwner struct{ Session, Lock string }

func (a *NotOwner) Error() string { return fmt.Sprintf("session %s is another user's", a.Session) }
