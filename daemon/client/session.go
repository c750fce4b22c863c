package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/bakeryd/bakeryd/daemon/boottime"
	"github.com/bakeryd/bakeryd/layout"
)

// session is what is asked for, under an id by which bakeryd knows who comes back after a connection broke.
type session struct {
	socket string
	name   string
	o      Options
	id     string

	reached bool // there was a connection at least once
}

func newSession(socket, name string, o Options) *session {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return &session{socket: socket, name: name, o: o, id: hex.EncodeToString(id[:])}
}

// link is a connection on which the lock was asked for, and what is answered.
type link struct {
	conn *net.UnixConn
	*stream
}

// connect asks for the lock on a new connection and waits for the grant. A token asks for the hold that it was
// granted to instead. While the lock is waited for onWaiting is called. It ends with ctx; what it returned
// does not.
func (s *session) connect(ctx context.Context, token layout.Ticket, timeout time.Duration, onWaiting func(event)) (*link, event, error) {
	conn, err := dial(ctx, s.socket)
	if err != nil {
		return nil, event{}, err
	}
	s.reached = true
	// To close the connection is how a waiter leaves the queue, and it ends every read and write below.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	l, granted, err := s.negotiate(conn, token, timeout, onWaiting)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // nothing is held by it: the first error is the one to tell
		return nil, event{}, err
	}
	return l, granted, nil
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

func (s *session) negotiate(conn *net.UnixConn, token layout.Ticket, timeout time.Duration, onWaiting func(event)) (*link, event, error) {
	req, err := s.request(token, timeout)
	if err != nil {
		return nil, event{}, err
	}
	asked := boottime.Now()
	// The request is written by hand, not by an http.Client: the connection itself is what holds the lock.
	if err := req.Write(conn); err != nil {
		return nil, event{}, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	answers, err := openStream(conn, req, asked)
	if err != nil {
		return nil, event{}, err
	}
	g, err := answers.awaitGrant(onWaiting)
	if err != nil {
		return nil, event{}, err
	}
	if g.Name != s.name || g.Mode != s.o.Mode && token == 0 { // the mode of a hold may have changed unheard
		return nil, event{}, fmt.Errorf("%w: granted %q %v, asked for %q %v", ErrProtocol, g.Name, g.Mode, s.name, s.o.Mode)
	}
	if token != 0 && g.Token != token {
		return nil, event{}, fmt.Errorf("%w: granted token %v, asked for the hold with token %v", ErrProtocol, g.Token, token)
	}
	return &link{conn: conn, stream: answers}, g, nil
}

func (s *session) request(token layout.Ticket, timeout time.Duration) (*http.Request, error) {
	body, err := json.Marshal(struct {
		Name      string        `json:"name"`
		Mode      layout.Mode   `json:"mode"`
		NonBlock  bool          `json:"nonblock"`
		TimeoutMS int64         `json:"timeout_ms"`
		Permits   int           `json:"permits"`
		PID       int           `json:"pid"`
		Command   string        `json:"command"`
		Session   string        `json:"session"`
		Token     layout.Ticket `json:"token,omitzero"`
		Witness   bool          `json:"witness,omitempty"`
		Requests  bool          `json:"requests,omitempty"`
	}{s.name, s.o.Mode, s.o.NonBlock, ceilMillis(timeout), s.o.Permits, s.o.PID, layout.TruncateCommand(s.o.Command),
		s.id, token, s.o.Witness, s.o.Requests})
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

// passing says whether an answer to somebody who comes back may be another one soon: bakeryd is not there, or
// is starting.
func passing(err error) bool {
	var refusal *Error
	if errors.As(err, &refusal) {
		return refusal.Code == CodeUnavailable
	}
	return errors.Is(err, ErrUnreachable)
}

// Bounds of the pause between two attempts to reach bakeryd again.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// backoff makes attempts rarer.
type backoff struct {
	last time.Duration
}

// sleep pauses for no longer than most, and returns why ctx has ended if it has.
func (b *backoff) sleep(ctx context.Context, most time.Duration) error {
	b.last = min(max(firstPause, b.last*3/2), lastPause)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(min(b.last, most)):
		return nil
	}
}
