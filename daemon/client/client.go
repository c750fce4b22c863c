// Package client takes locks from bakeryd over its Unix socket. It knows
// bakeryd's protocol, which is HTTP with a stream of events, and how long a
// hold is good for; it never knows a device, a ticket's meaning or a terminal.
//
// Begin with [Client.Lock]; what it returns is in hold.go, and what comes over
// the connection in stream.go.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// patience is how long bakeryd may take over an answer beyond the time that it was asked to wait: several
// IO budgets of a slow device.
const patience = 10 * time.Second

var (
	// ErrUnreachable is returned when nothing serves the socket, or it stops answering before the lock was
	// granted.
	ErrUnreachable = errors.New("bakeryd is unreachable")

	// ErrProtocol is returned when what serves the socket does not speak bakeryd's protocol.
	ErrProtocol = errors.New("not an answer of bakeryd")

	// ErrBusy is returned when the lock was to be had at once or not at all, and is held.
	ErrBusy = errors.New("lock is busy")

	// ErrTimeout is returned when the lock was not granted in the time given.
	ErrTimeout = errors.New("lock not granted in time")

	// ErrLost is what a hold ends with when it was not let go.
	ErrLost = errors.New("lock lost")
)

// The codes of an Error.
const (
	CodeInvalid     = "invalid"     // the request is wrong, the name for one
	CodePermits     = "permits"     // the lock has another number of permits
	CodeFull        = "full"        // the lock directory is full
	CodeUnavailable = "unavailable" // not joined, lease lost, shutting down
	CodeDevice      = "device"      // the device fails, or holds no lockspace
	CodeBusy        = "busy"        // ErrBusy
	CodeTimeout     = "timeout"     // ErrTimeout
)

// Error is bakeryd's refusal to grant a lock.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do about it, if anything
}

func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("refused by bakeryd: %q", e.Code)
	}
	return e.Message
}

// Is makes errors.Is find ErrBusy and ErrTimeout.
func (e *Error) Is(target error) bool {
	return e.Code == CodeBusy && target == ErrBusy || e.Code == CodeTimeout && target == ErrTimeout
}

// Client takes locks from the bakeryd that serves one socket. It keeps no connection: every hold has one of
// its own.
type Client struct {
	socket string
}

// New returns a client of the bakeryd that serves the socket at that path. It does no IO.
func New(socket string) *Client { return &Client{socket: socket} }

// Options say how a lock is wanted. The zero value waits for an exclusive hold for as long as it takes.
type Options struct {
	Mode     layout.Mode
	NonBlock bool          // have it at once, or ErrBusy
	Timeout  time.Duration // not granted within it: ErrTimeout; 0: none; rounded up to milliseconds
	Permits  int           // refuse a lock that has another number of permits; 0: take what it has
	PID      int           // of the holder, for people who ask who it is
	Command  string        // likewise

	// OnWaiting, if set, is told how many are ahead and how many wait, when the wait begins and whenever
	// that changes. It is called from within Lock, which reads on when it returns.
	OnWaiting func(ahead, queued int)
}

// limit returns how long bakeryd has to decide, 0 for as long as it takes, and the error of a Lock that it
// left undecided.
func (o Options) limit() (time.Duration, error) {
	switch {
	case o.NonBlock:
		return patience, fmt.Errorf("%w: no answer within %v", ErrUnreachable, patience)
	case o.Timeout > 0:
		return o.Timeout + patience, ErrTimeout
	}
	return 0, nil
}

// Lock waits until the lock is granted. If ctx ends first it gives up the place in the queue, and returns
// the cause; after the grant ctx has no say.
//
// It returns an *Error (which may be ErrBusy or ErrTimeout), ErrUnreachable or ErrProtocol.
func (c *Client) Lock(ctx context.Context, name string, o Options) (*Hold, error) {
	h, err := c.lock(ctx, name, o)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	return h, nil
}

func (c *Client) lock(ctx context.Context, name string, o Options) (*Hold, error) {
	if limit, late := o.limit(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, late)
		defer cancel()
	}
	conn, err := dial(ctx, c.socket)
	if err != nil {
		return nil, err
	}
	// To close the connection is how a waiter leaves the queue, and it ends every read and write below.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	h, err := negotiate(conn, name, o)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // nothing is held: the first error is the one to tell
		return nil, err
	}
	h.start()
	return h, nil
}

func dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return conn.(*net.UnixConn), nil
}

// negotiate asks for the lock and waits for the grant.
func negotiate(conn *net.UnixConn, name string, o Options) (*Hold, error) {
	req, err := newRequest(name, o)
	if err != nil {
		return nil, err
	}
	// The request is written by hand, not by an http.Client: the connection itself is what holds the lock,
	// and what a command inherits.
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	s, err := openStream(conn, req)
	if err != nil {
		return nil, err
	}
	g, err := s.awaitGrant(o.OnWaiting)
	if err != nil {
		return nil, err
	}
	if g.Name != name || g.Mode != o.Mode {
		return nil, fmt.Errorf("%w: granted %q %v, asked for %q %v", ErrProtocol, g.Name, g.Mode, name, o.Mode)
	}
	return newHold(conn, s, g)
}

func newRequest(name string, o Options) (*http.Request, error) {
	body, err := json.Marshal(struct {
		Name      string      `json:"name"`
		Mode      layout.Mode `json:"mode"`
		NonBlock  bool        `json:"nonblock"`
		TimeoutMS int64       `json:"timeout_ms"`
		Permits   int         `json:"permits"`
		PID       int         `json:"pid"`
		Command   string      `json:"command"`
	}{name, o.Mode, o.NonBlock, ceilMillis(o.Timeout), o.Permits, o.PID, layout.TruncateCommand(o.Command)})
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	req, err := http.NewRequest(http.MethodPost, "http://bakeryd/v1/lock", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

// ceilMillis rounds up, for zero is no limit.
func ceilMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}
