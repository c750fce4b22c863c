package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/command"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/liveness"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/tasks"
	"github.com/bakeryd/bakeryd/daemon/warn"
	"github.com/bakeryd/bakeryd/layout"
)

// maxSessions limits the sessions: fewer than the handover file can record.
const maxSessions = handover.MaxCells / 2

// sessionConfig is what sessions need of their host.
type sessionConfig struct {
	Locks      *locks.Manager
	Member     *membership.Member
	RuntimeDir string // for liveness FIFOs
	UUID       layout.UUID
	Times      lease.Times
	Clock      clock.Clock
	Log        *slog.Logger
	Observer   locks.Observer
	Ending     *ending
	Handover   *handover.File // nil if no state is kept
}

// sessions are the clients of one host.
type sessions struct {
	cfg     sessionConfig
	serving chan struct{} // closed when clients can connect
	tasks   tasks.Group
	warn    warn.Limiter // of stopCommands
	telling telling

	confirmWithin time.Duration // how long a client may take to confirm a grant

	mu      sync.Mutex // guards the rest
	byID    map[string]*session
	byUser  map[int]int   // number of sessions by user
	changed chan struct{} // closed and replaced when a session or its hold has ended
}

func newSessions(cfg sessionConfig) *sessions {
	ss := &sessions{
		cfg: cfg, serving: make(chan struct{}), telling: newTelling(), confirmWithin: confirmWithin(cfg.Times.Lease),
		byID: map[string]*session{}, byUser: map[int]int{}, changed: make(chan struct{}),
	}
	ss.tasks.Go(ss.tell)
	ss.tasks.Go(ss.guard)
	return ss
}

// serve reports that clients can connect.
func (ss *sessions) serve() { close(ss.serving) }

func (ss *sessions) isServing() bool {
	select {
	case <-ss.serving:
		return true
	default:
		return false
	}
}

// fifoPath returns the path of a session's liveness FIFO.
func (ss *sessions) fifoPath(id string) string {
	return filepath.Join(ss.cfg.RuntimeDir, ss.fifoName(id))
}

func (ss *sessions) fifoName(id string) string {
	return liveness.Name(ss.cfg.UUID, ss.cfg.Member.ID(), id)
}

// known returns the ids of all sessions.
func (ss *sessions) known() map[string]bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	known := map[string]bool{}
	for id := range ss.byID {
		known[id] = true
	}
	return known
}

// lockClient is what is known of the process that requests a lock, apart from its request.
type lockClient struct {
	peer process.ID
	uid  int // -1 if its connection is closed
	may  func(lock string) error
}

// open attaches a connection to the session of a request. It creates the session if needed; that
// one is not started yet.
func (ss *sessions) open(body lockRequest, by lockClient, sub subscriber) (*attachment, error) {
	for {
		if a, err := ss.reopen(body, by, sub); a != nil || err != nil {
			return a, err
		}
		// Access is not checked again for what a client already has: a new policy takes nothing
		// away.
		if err := by.may(body.Name); err != nil {
			return nil, err
		}
		s, err := ss.begin(body, by)
		if err != nil {
			return nil, err
		}
		s.wanted, s.cancel = context.WithCancelCause(context.Background())
		a := s.attach(sub, body.Confirm && body.Token == 0)
		fresh, err := ss.admit(s)
		if fresh {
			s.limit(body.timeout())
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
func (ss *sessions) admit(s *session) (bool, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byID[s.ID] != nil {
		return false, nil
	}
	privileged := fdlimit.Clients().Privileged(s.UID)
	switch n := len(ss.byID); {
	case n >= maxSessions, !privileged && n >= maxSessions-maxSessions/8:
		return false, fmt.Errorf("%w: %d clients hold locks or wait for them, which is the limit", api.ErrOverload, n)
	case !privileged && ss.byUser[s.UID] >= maxSessions/4:
		return false, fmt.Errorf("%w: %d clients of user %d hold locks or wait for them, which is the limit for one user", api.ErrOverload,
			ss.byUser[s.UID], s.UID)
	}
	ss.put(s)
	return true, nil
}

// put adds a session. Called with mu held.
func (ss *sessions) put(s *session) {
	ss.byID[s.ID] = s
	ss.byUser[s.UID]++
}

// reopen attaches a connection to the session that it continues. It returns nil if there is none.
func (ss *sessions) reopen(body lockRequest, by lockClient, sub subscriber) (*attachment, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byID[body.Session]
	if s == nil {
		if body.Token != 0 {
			return nil, fmt.Errorf("%w: no session %s holds %q", api.ErrLost, body.Session, body.Name)
		}
		return nil, nil
	}
	if by.uid != s.UID && by.uid != 0 {
		return nil, &anothers{session: s.ID, lock: s.req.Name}
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
		s.limit(body.timeout())
		s.listen(body.Requests)
		return a, nil
	case body.Token != 0:
		return nil, fmt.Errorf("%w: %q was released by session %s", api.ErrLost, body.Name, s.ID)
	}
	return nil, fmt.Errorf("%w: session %s is about to end", api.ErrUnavailable, s.ID)
}

// holder returns the hold of a session with a token if uid is its user or root; else it returns
// anothers.
func (ss *sessions) holder(id string, token layout.Ticket, uid int) (*locks.Hold, error) {
	s, err := ss.of(id, uid)
	if err != nil {
		return nil, err
	}
	if !s.holds(token) {
		return nil, fmt.Errorf("%w: session %s does not hold a lock by token %v", api.ErrLost, id, token)
	}
	return s.hold, nil
}

// of returns a session if uid is its user or root; else it returns anothers.
func (ss *sessions) of(id string, uid int) (*session, error) {
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
		return nil, &anothers{session: id, lock: s.req.Name}
	}
	return s, nil
}

// begin creates the session of a request.
func (ss *sessions) begin(body lockRequest, by lockClient) (*session, error) {
	s := ss.make(body.Session)
	if s.Peer, s.UID = by.peer, by.uid; s.UID < 0 {
		return nil, fmt.Errorf("%w: the connection is closed", api.ErrUnavailable)
	}
	s.listens = body.Requests
	s.request(locks.Request{
		Name: body.Name, Mode: body.Mode, Try: body.NonBlock, Permits: body.Permits, PID: cmp.Or(body.PID, s.Peer.PID), Command: body.Command,
		Gone: s.gone, OnWaiting: s.waiting, OnRequest: s.requested, Client: s,
	})
	if s.ID == "" {
		var b [16]byte
		rand.Read(b[:])
		s.ID = hex.EncodeToString(b[:])
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

func (ss *sessions) make(id string) *session {
	s := &session{all: ss, since: time.Now(), done: make(chan struct{})}
	s.Command = &command.Command{ID: id, Log: ss.cfg.Log, Report: func(kind events.Kind, reason string) {
		h := s.happening(kind)
		h.Reason = reason
		ss.cfg.Observer.Observe(h)
	}}
	return s
}

func (ss *sessions) remove(s *session) {
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
func (ss *sessions) hasChanged() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.change()
}

// change closes and replaces changed. Called with mu held.
func (ss *sessions) change() {
	close(ss.changed)
	ss.changed = make(chan struct{})
}

// list returns the sessions, and a channel that is closed when one has ended.
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
		if s.holding() {
			held = append(held, s)
		}
	}
	return held, changed
}

// count returns the number of clients that hold a lock or wait for one.
func (ss *sessions) count() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return len(ss.byID)
}

// unheld blocks until no client holds a lock.
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

// handOver leaves all holds and places in queues for the next process, if there are any and the
// handover file has them all. The process must end after it. It waits up to handOverPause for
// sessions that are about to end.
func (ss *sessions) handOver() bool {
	if file := ss.cfg.Handover; file == nil || !file.Intact() {
		return false
	}
	for give := time.Now().Add(handOverPause); ; {
		all, changed := ss.list()
		if len(all) == 0 {
			return false
		}
		staying := func(s *session) bool { return !s.gone() }
		if slices.ContainsFunc(all, staying) || time.Now().After(give) {
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
type anothers struct{ session, lock string }

func (a *anothers) Error() string { return fmt.Sprintf("session %s is another user's", a.session) }
