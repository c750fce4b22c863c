package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/layout"
)

// lockRequest is the body of POST /v1/lock.
type lockRequest struct {
	Name      string      `json:"name"`
	Mode      layout.Mode `json:"mode"`       // exclusive if not given
	NonBlock  bool        `json:"nonblock"`   // refused as busy rather than wait
	TimeoutMS int64       `json:"timeout_ms"` // 0: none
	Permits   int         `json:"permits"`    // 0: what the lock has
	PID       int         `json:"pid"`        // 0: the peer's
	Command   string      `json:"command"`
}

// event is one line of the answer to POST /v1/lock.
type event struct {
	Event   string         `json:"event"` // waiting, granted, renewed, refused, lost
	Ahead   *int           `json:"ahead,omitempty"`
	Queued  *int           `json:"queued,omitempty"`
	Name    string         `json:"name,omitempty"`
	Mode    *layout.Mode   `json:"mode,omitempty"`
	Token   *layout.Ticket `json:"token,omitempty"`
	HostID  int            `json:"host_id,omitempty"`
	LeaseMS *int64         `json:"lease_ms,omitempty"` // until the lease ends; clocks differ, so not a time
	Code    string         `json:"code,omitempty"`
	Message string         `json:"message,omitempty"`
	Hint    string         `json:"hint,omitempty"`
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

func (st *stream) peer() int {
	pid := 0
	st.control(func(fd int) {
		if c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(c.Pid)
		}
	})
	return pid
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

func (s *Server) lock(w http.ResponseWriter, r *http.Request) {
	conn, _ := r.Context().Value(connKey{}).(*net.UnixConn)
	st := &stream{w: w, conn: conn}
	var body lockRequest
	if err := decode(r, &body); err != nil {
		st.fail(err)
		return
	}
	if body.TimeoutMS < 0 {
		st.fail(fmt.Errorf("%w: timeout_ms %d, want 0 or more", ErrInvalid, body.TimeoutMS))
		return
	}
	ctx := r.Context()
	if body.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(min(body.TimeoutMS, maxTimeout.Milliseconds()))*time.Millisecond, ErrTimeout)
		defer cancel()
	}
	h, err := s.acquire(ctx, st, body)
	if err != nil {
		if r.Context().Err() == nil {
			st.fail(err)
		}
		return
	}
	s.serveHold(r.Context(), st, h, body)
	if err := h.Release(); err != nil && !errors.Is(err, ErrLost) {
		s.log.Warn("releasing a lock failed", "lock", body.Name, "err", err)
	}
}

const maxTimeout = 365 * 24 * time.Hour

// acquire waits for the lock and tells the client how far it is.
func (s *Server) acquire(ctx context.Context, st *stream, body lockRequest) (*Hold, error) {
	type place struct{ ahead, queued int }
	places := make(chan place, 1)
	req := Request{
		Name: body.Name, Mode: body.Mode, Try: body.NonBlock, Permits: body.Permits, PID: body.PID, Command: body.Command,
		Gone: st.gone,
		OnWaiting: func(ahead, queued int) {
			select {
			case <-places: // out of date
			default:
			}
			places <- place{ahead, queued}
		},
	}
	if req.PID == 0 {
		req.PID = st.peer()
	}
	done := make(chan result, 1)
	go func() {
		h, err := s.d.Acquire(ctx, req)
		done <- result{h, err}
	}()
	last := place{-1, -1}
	for {
		select {
		case r := <-done:
			return r.hold, r.err
		case p := <-places:
			if p != last && st.listening() {
				last = p
				_ = st.send(event{Event: "waiting", Ahead: &p.ahead, Queued: &p.queued})
			}
		}
	}
}

// serveHold keeps the client informed until it is gone or the lock lost.
func (s *Server) serveHold(ctx context.Context, st *stream, h *Hold, body lockRequest) {
	token, mode := h.Token(), h.Mode()
	left, changed := s.d.mem.leaseLeft()
	if left <= 0 { // this process stood still since the grant
		st.fail(fmt.Errorf("%w: %w", ErrUnavailable, ErrLost))
		return
	}
	ms := left.Milliseconds()
	_ = st.send(event{Event: "granted", Name: body.Name, Mode: &mode, Token: &token, HostID: s.d.HostID(), LeaseMS: &ms})
	s.log.Debug("lock granted", "lock", body.Name, "token", token, "pid", h.req.PID)
	draining := s.draining
	deadline := boottime() + left
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.Lost():
			_ = st.send(event{Event: "lost", Message: h.Err().Error()})
			s.log.Warn("lock lost", "lock", body.Name, "token", token, "pid", h.req.PID, "err", h.Err())
			return
		case <-draining:
			_ = st.send(event{Event: "lost", Message: "bakeryd is shutting down"})
			draining = nil
		case <-changed:
			// A client that sent more than its request is not seen to close.
			if st.gone() {
				return
			}
			left, changed = s.d.mem.leaseLeft()
			if next := boottime() + left; next > deadline+time.Millisecond && st.listening() {
				deadline, ms = next, left.Milliseconds()
				_ = st.send(event{Event: "renewed", LeaseMS: &ms})
			}
		}
	}
}
