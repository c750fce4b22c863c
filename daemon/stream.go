package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/boottime"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
)

// lockRequest is the body of POST /v1/lock.
type lockRequest struct {
	Name      string        `json:"name"`
	Mode      layout.Mode   `json:"mode"`       // exclusive if not given
	NonBlock  bool          `json:"nonblock"`   // refused as busy rather than wait
	TimeoutMS int64         `json:"timeout_ms"` // 0: none
	Permits   int           `json:"permits"`    // 0: what the lock has
	PID       int           `json:"pid"`        // 0: the peer's
	Command   string        `json:"command"`
	Session   string        `json:"session"` // 32 hex digits of the client's choice, to come back to; empty: none
	Token     layout.Ticket `json:"token"`   // come back to the hold with this token, or be refused; 0: ask for the lock
	Witness   bool          `json:"witness"` // make a FIFO that the command holds the lock by

	Requests bool `json:"requests"` // tell the holder that others want the lock; a client that comes back says so again
}

// event is one line of the answer to POST /v1/lock.
type event struct {
	Event   string         `json:"event"` // waiting, granted, renewed, requested, mode, refused, lost
	Ahead   *int           `json:"ahead,omitempty"`
	Queued  *int           `json:"queued,omitempty"`
	Name    string         `json:"name,omitempty"`
	Mode    *layout.Mode   `json:"mode,omitempty"`
	Change  uint64         `json:"change,omitempty"` // granted, mode: how often the mode has changed
	Token   *layout.Ticket `json:"token,omitempty"`
	HostID  int            `json:"host_id,omitempty"`
	LeaseMS *int64         `json:"lease_ms,omitempty"` // until the lease ends; clocks differ, so not a time. waiting: the whole lease
	AtMS    *int64         `json:"at_ms,omitempty"`    // when that was so, on CLOCK_BOOTTIME: it may be read late
	GraceMS int64          `json:"grace_ms,omitempty"` // how long before the end of the lease the holder is to stop
	Witness string         `json:"witness,omitempty"`  // path of the FIFO that was asked for
	Code    string         `json:"code,omitempty"`
	Message string         `json:"message,omitempty"`
	Hint    string         `json:"hint,omitempty"`

	Host     int    `json:"host,omitempty"` // requested: where the lock is wanted
	HostName string `json:"host_name,omitempty"`
}

// runs adds how long it is until the end of the lease.
func (e event) runs(deadline time.Duration) event {
	at := boottime.Now().Milliseconds()
	ms := deadline.Milliseconds() - at
	e.LeaseMS, e.AtMS = &ms, &at
	return e
}

// stream is the answer to one client.
type stream struct {
	w    http.ResponseWriter
	conn *net.UnixConn
	sent bool // something was, so the status is out
}

func (st *stream) send(e event) error {
	if !st.sent {
		st.w.Header().Set("Content-Type", "application/x-ndjson")
		st.sent = true
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := st.w.Write(append(line, '\n')); err != nil {
		return err
	}
	return http.NewResponseController(st.w).Flush()
}

// listening tells whether the client reads what it is sent. When only a
// command holds the connection nobody does, and a write would block.
func (st *stream) listening() bool {
	queued := 0
	st.control(func(fd int) { queued, _ = unix.IoctlGetInt(fd, unix.SIOCOUTQ) })
	return queued < 4096
}

// gone tells whether the last descriptor of the client's end is closed.
func (st *stream) gone() bool {
	hup := false
	st.control(func(fd int) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(p, 0); err == nil && n > 0 {
			hup = p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLRDHUP) != 0
		}
	})
	return hup
}

func (st *stream) control(f func(fd int)) {
	raw, err := st.conn.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// peer is who has connected, and as which user; -1 if the connection is closed
// already.
func (st *stream) peer() (id process.ID, uid int) {
	uid = -1
	st.control(func(fd int) {
		if c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(c.Uid)
			id, _ = process.Of(int(c.Pid))
		}
	})
	return id, uid
}

// fail tells the client why it does not get the lock.
func (st *stream) fail(err error) {
	e := apiErrorOf(err)
	if status := httpStatus(e.Code); !st.sent && status != http.StatusOK {
		writeError(st.w, status, e)
		return
	}
	_ = st.send(event{Event: "refused", Code: e.Code, Message: e.Message, Hint: e.Hint})
}

const maxTimeout = 365 * 24 * time.Hour

func (r *lockRequest) validate() error {
	if r.TimeoutMS < 0 {
		return fmt.Errorf("%w: timeout_ms %d, want 0 or more", ErrInvalid, r.TimeoutMS)
	}
	if r.Session != "" {
		if err := checkSessionID(r.Session); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	if r.Token != 0 && r.Session == "" {
		return fmt.Errorf("%w: token %v without the session that it was granted to", ErrInvalid, r.Token)
	}
	return nil
}

func (s *Server) lock(d *Daemon, w http.ResponseWriter, r *http.Request) {
	conn, _ := r.Context().Value(connKey{}).(*net.UnixConn)
	st := &stream{w: w, conn: conn}
	var body lockRequest
	err := decode(r, &body)
	if err == nil {
		err = body.validate()
	}
	if err != nil {
		st.fail(err)
		return
	}
	ses, f, err := d.sessions.open(body, st)
	if err != nil {
		st.fail(err)
		return
	}
	ses.limit(time.Duration(min(body.TimeoutMS, maxTimeout.Milliseconds())) * time.Millisecond)
	defer ses.leave(f)
	if !s.awaitTurn(r.Context(), ses, f) {
		return
	}
	ses.limit(0)
	if ses.err != nil {
		st.fail(ses.err)
		return
	}
	s.serveHold(r.Context(), ses, f)
}

// awaitTurn tells the client how far it is, until the request is decided.
// False: the client is gone, or has come back by another connection.
func (s *Server) awaitTurn(ctx context.Context, ses *session, f *follower) bool {
	last, whole := place{-1, -1}, ses.all.d.sb.Lease.Milliseconds()
	for {
		select {
		case <-ses.done:
			return true
		case <-ctx.Done():
			return false
		case <-f.replaced:
			return false
		case p := <-ses.places:
			if p != last && f.st.listening() {
				last = p
				_ = f.st.send(event{Event: "waiting", Ahead: &p.ahead, Queued: &p.queued, LeaseMS: &whole})
			}
		}
	}
}

// serveHold keeps the client informed until it is gone, or the lease over.
func (s *Server) serveHold(ctx context.Context, ses *session, f *follower) {
	d, h, st := ses.all.d, ses.hold, f.st
	token := h.Token()
	mode, told, changed := h.modeNow()
	tellMode := func() {
		var now uint64
		if mode, now, changed = h.modeNow(); now != told && st.listening() {
			_ = st.send(event{Event: "mode", Mode: &mode, Change: now})
			told = now
		}
	}
	m := d.mem.moments()
	if boottime.Now() >= m.deadline { // this process stood still since the grant
		st.fail(fmt.Errorf("%w: %w", ErrUnavailable, ErrLost))
		return
	}
	granted := event{Event: "granted", Name: ses.req.Name, Mode: &mode, Token: &token, HostID: d.HostID(), Change: told,
		GraceMS: d.times().Grace().Milliseconds()}
	if ses.fifo != nil {
		granted.Witness = ses.fifo.path
	}
	_ = st.send(granted.runs(m.deadline))
	s.log.Debug("lock granted", "lock", ses.req.Name, "token", token, "pid", ses.req.PID)
	draining := d.drained
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
			_ = st.send(event{Event: "lost", Message: d.drainedFor})
			draining = nil
		case r := <-ses.requests:
			if st.listening() {
				_ = st.send(event{Event: "requested", Host: r.Host, HostName: r.HostName, Message: r.Message})
			}
		case <-changed:
			tellMode()
		case <-m.changed:
			// A client that sent more than its request is not seen to close.
			if st.gone() {
				return
			}
			tellMode() // if it did not listen as that changed
			before := m.deadline
			m = d.mem.moments()
			if m.deadline == before {
				continue
			}
			if st.listening() {
				_ = st.send(event{Event: "renewed"}.runs(m.deadline))
			}
		}
	}
}

// serveLost tells the client, and waits until it is gone: only then the host
// joins anew, and gives the lock to the next. Who does not go by the time that
// other hosts may have it anyway is not waited for any longer.
func (s *Server) serveLost(ctx context.Context, ses *session, f *follower) {
	d, h := ses.all.d, ses.hold
	deadline := d.mem.moments().deadline
	_ = f.st.send(event{Event: "lost", Message: h.Err().Error()}.runs(deadline))
	s.log.Warn("lock lost", "lock", ses.req.Name, "token", h.Token(), "pid", ses.req.PID, "err", h.Err())
	t := time.NewTimer(max(0, deadline+d.times().Margin()-boottime.Now()))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-f.replaced:
	case <-t.C:
	}
}
