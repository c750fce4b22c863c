package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/layout"
)

// lockRequest is the body of POST /v1/lock, and the lock member of a link's line.
type lockRequest struct {
	Name      string      `json:"name"`
	Mode      layout.Mode `json:"mode"`       // exclusive if not given
	NonBlock  bool        `json:"nonblock"`   // refuse as busy instead of waiting
	TimeoutMS int64       `json:"timeout_ms"` // 0 if none
	Permits   int         `json:"permits"`    // 0: the lock's
	PID       int         `json:"pid"`        // 0: the peer's
	Command   string      `json:"command"`
	// 32 hex digits chosen by the client, to reconnect to; empty if none
	Session string `json:"session"`
	// reconnect to the hold with this token, or be refused; 0 requests the lock
	Token   layout.Ticket `json:"token"`
	Witness bool          `json:"witness"` // create a FIFO that the command holds the lock by

	// on a link: pass the lock on if the client does not confirm the grant in time
	Confirm bool `json:"confirm"`
	// notify the holder of requests for the lock; repeated when the client reconnects
	Requests bool `json:"requests"`
}

// tellPatience limits the time for sending an event to a client. Nearly all events are sent only if
// the client reads. A client that cannot be sent its grant does not get it, and no client delays
// the end of a lease.
const tellPatience = 5 * time.Second

// stream is the answer to one client.
type stream struct {
	w    http.ResponseWriter
	conn *net.UnixConn
	by   *caller
	sent bool // something was sent, so the status is out

	tally *tally.Tally // counts refusals
}

func (st *stream) listening() bool { return peer.Listening(st.conn) }

func (st *stream) peer() (id process.ID, uid int) { return peer.Of(st.conn) }

func (st *stream) caller() *caller { return st.by }

func (st *stream) gone() bool { return peer.HungUp(st.conn) }

func (st *stream) send(e api.Event) error {
	if !st.sent {
		st.w.Header().Set("Content-Type", "application/x-ndjson")
		st.sent = true
	}
	setWriteDeadline(st.w, tellPatience)
	_, err := st.w.Write(e.Append(nil))
	if err == nil {
		err = http.NewResponseController(st.w).Flush()
	}
	setWriteDeadline(st.w, 0) // the next event may come at any time
	return err
}

// fail sends the client why it does not get the lock.
func (st *stream) fail(err error) {
	e := api.ErrorOf(err)
	if status := e.Status(); !st.sent && status != http.StatusOK {
		writeError(st.w, status, e)
		return
	}
	st.tally.Refused.Add(e.Code)
	_ = st.send(api.Refusal(e))
}

const maxTimeout = 365 * 24 * time.Hour

func (r *lockRequest) timeout() time.Duration {
	return time.Duration(min(r.TimeoutMS, maxTimeout.Milliseconds())) * time.Millisecond
}

func (r *lockRequest) validate() error {
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

func (s *Server) lock(host *Host, w http.ResponseWriter, r *http.Request) {
	conn, _ := r.Context().Value(connKey{}).(*net.UnixConn)
	st := &stream{w: w, conn: conn, by: callerOf(r), tally: s.tally}
	var body lockRequest
	err := decode(r, &body)
	if err == nil {
		err = body.validate()
	}
	if err == nil && body.Confirm {
		err = fmt.Errorf("%w: a grant is confirmed on a link only", api.ErrInvalid)
	}
	if err != nil {
		st.fail(err)
		return
	}
	ses, f, err := host.sessions.open(body, st)
	if err != nil {
		st.fail(err)
		return
	}
	defer ses.leave(f)
	host.sessions.tasks.Go(ses.start) // the serving goroutine does not wait for the device
	if !s.awaitTurn(r.Context(), ses, f) {
		return
	}
	if ses.err != nil {
		st.fail(ses.err)
		return
	}
	s.serveHold(r.Context(), ses, f)
}

// awaitTurn sends the client its place, until the request is decided. It returns false if the
// client is gone, or has reconnected.
func (s *Server) awaitTurn(ctx context.Context, ses *session, f *follower) bool {
	last, whole := place{-1, -1}, ses.all.times().Lease.Milliseconds()
	for {
		select {
		case <-ses.done:
			return true
		case <-ctx.Done():
			return false
		case <-f.replaced:
			return false
		case p := <-ses.places:
			ses.Saved()
			if p != last && f.st.listening() {
				last = p
				_ = f.st.send(api.Event{Kind: api.Waiting, Ahead: p.ahead, Queued: p.queued, LeaseMS: whole})
			}
		}
	}
}

// serveHold sends events to the client until it is gone, or the lease is over.
func (s *Server) serveHold(ctx context.Context, ses *session, f *follower) {
	ss, h, st := ses.all, ses.hold, f.st
	token := h.Token()
	mode, told, changed := h.ModeNow()
	tellMode := func() {
		var now uint64
		if mode, now, changed = h.ModeNow(); now != told && st.listening() {
			_ = st.send(api.Event{Kind: api.Mode, Mode: mode, Change: now})
			told = now
		}
	}
	m := ss.mem.Moments()
	if ss.clock.Now() >= m.Deadline { // this process did not run since the grant
		st.fail(fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost))
		return
	}
	_ = st.send(ses.granted(mode, token, told).Until(ss.clock.Now(), m.Deadline))
	s.log.Debug("lock granted", "lock", ses.req.Name, "token", token, "pid", ses.req.PID)
	draining := ss.ending.drained
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.replaced:
			return
		case <-h.Lost():
			s.serveLost(ctx, ses, f)
			return
		case <-draining:
			_ = st.send(api.Event{Kind: api.Lost, Message: ss.ending.drainedFor})
			draining = nil
		case r := <-ses.requests:
			if st.listening() {
				_ = st.send(api.Event{Kind: api.Requested, Host: r.Host, HostName: r.HostName, Message: r.Message})
			}
		case <-changed:
			tellMode()
		case <-m.Changed:
			// The end of a client that sent more than its request is not noticed otherwise.
			if st.gone() {
				return
			}
			tellMode() // in case the client did not listen when that changed
			before := m.Deadline
			m = ss.mem.Moments()
			if m.Deadline == before {
				continue
			}
			if st.listening() {
				_ = st.send(api.Event{Kind: api.Renewed}.Until(ss.clock.Now(), m.Deadline))
			}
		}
	}
}

// granted returns the event of the grant.
func (s *session) granted(mode layout.Mode, token layout.Ticket, change uint64) api.Event {
	ss := s.all
	e := api.Event{Kind: api.Granted, Name: s.req.Name, Mode: mode, Token: token, HostID: ss.mem.ID(), Change: change,
		GraceMS: ss.times().Grace().Milliseconds()}
	if s.FIFO != nil {
		e.Witness = s.FIFO.Path
	}
	return e
}

// serveLost notifies the client of the loss and waits until it is gone. Only then the host joins
// again and gives the lock to the next client. It does not wait beyond the time at which other
// hosts may have the lock.
func (s *Server) serveLost(ctx context.Context, ses *session, f *follower) {
	ss, h := ses.all, ses.hold
	deadline := ss.mem.Moments().Deadline
	_ = f.st.send(api.Event{Kind: api.Lost, Message: h.Err().Error()}.Until(ss.clock.Now(), deadline))
	s.log.Warn("lock lost", "lock", ses.req.Name, "token", h.Token(), "pid", ses.req.PID, "err", h.Err())
	t := time.NewTimer(max(0, deadline+ss.times().Margin()-ss.clock.Now()))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-f.replaced:
	case <-t.C:
	}
}
