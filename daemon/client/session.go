package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/layout"
)

// session is a request, under an id by which bakeryd recognizes it after a connection broke.
type session struct {
	client *Client
	name   string
	o      Options // with a Session

	reached bool // there was a connection
}

// NewSession returns a new id for Options.Session.
func NewSession() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// connect asks for the lock, by an idle link if there is one, and waits for the grant. With a token
// it resumes the hold that has it. It calls onWaiting while it waits. ctx ends connect, but not the
// link that it returns.
func (s *session) connect(ctx context.Context, token layout.Ticket, timeout time.Duration, onWaiting func(api.Event)) (*link, api.Event, error) {
	if cause := context.Cause(ctx); cause != nil {
		return nil, api.Event{}, cause
	}
	for {
		var l *link
		if token == 0 {
			l = s.client.takeLink()
		}
		wasIdle := l != nil
		if !wasIdle {
			conn, err := dialSocket(ctx, s.client.socket)
			if err != nil {
				return nil, api.Event{}, err
			}
			l, s.reached = &link{conn: conn}, true
		}
		granted, err := s.negotiate(ctx, l, token, timeout, onWaiting)
		// A link that broke while idle is no error: bakeryd was restarted.
		if err != nil && wasIdle && !l.heard && ctx.Err() == nil && errors.Is(err, ErrUnreachable) {
			continue
		}
		return l, granted, err
	}
}

// negotiate asks by a link. If the lock is not granted, it closes the link or returns it to the
// pool.
func (s *session) negotiate(ctx context.Context, l *link, token layout.Ticket, timeout time.Duration, onWaiting func(api.Event)) (api.Event, error) {
	// Closing the connection is how a waiter leaves the queue, and it ends every read and write
	// below.
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	granted, err := s.exchange(l, token, timeout, onWaiting)
	if !stop() {
		err = context.Cause(ctx)
	}
	switch {
	case err == nil:
	case ctx.Err() == nil && errors.Is(err, ErrBusy) && l.reusable():
		s.client.putLink(l)
	default:
		_ = l.conn.Close() // it holds nothing; the first error is the one to report
	}
	return granted, err
}

func (s *session) exchange(l *link, token layout.Ticket, timeout time.Duration, onWaiting func(api.Event)) (api.Event, error) {
	if err := l.ask(s, token, timeout); err != nil {
		return api.Event{}, err
	}
	s.reached = true // a bakeryd that ended before would not accept the request
	g, err := l.awaitGrant(onWaiting)
	if err == nil && s.o.Confirm && token == 0 {
		g, err = l.confirm(g)
	}
	switch {
	case err != nil:
		return api.Event{}, err
	case g.Name != s.name || g.Mode != s.o.Mode && token == 0: // the mode of a hold may have changed meanwhile
		return api.Event{}, fmt.Errorf("%w: granted %q %v, asked for %q %v", ErrProtocol, g.Name, g.Mode, s.name, s.o.Mode)
	case token != 0 && g.Token != token:
		return api.Event{}, fmt.Errorf("%w: granted token %v, asked for the hold with token %v", ErrProtocol, g.Token, token)
	}
	return g, nil
}

// appendRequest appends the request as a line.
func (s *session) appendRequest(to []byte, token layout.Ticket, timeout time.Duration) []byte {
	to = line.AppendString(append(to, `{"lock":{"name":`...), s.name)
	to = line.AppendString(append(to, `,"mode":`...), s.o.Mode.String())
	if s.o.NonBlock {
		to = append(to, `,"nonblock":true`...)
	}
	to = line.AppendNumber(to, `,"timeout_ms":`, ceilMillis(timeout))
	to = line.AppendNumber(to, `,"permits":`, int64(s.o.Permits))
	to = line.AppendNumber(to, `,"pid":`, int64(s.o.PID))
	to = line.AppendText(to, `,"command":`, layout.TruncateCommand(s.o.Command))
	to = line.AppendString(append(to, `,"session":`...), s.o.Session)
	if token != 0 {
		to = append(strconv.AppendUint(append(to, `,"token":"`...), uint64(token), 10), '"')
	}
	if s.o.Witness {
		to = append(to, `,"witness":true`...)
	}
	if s.o.Requests {
		to = append(to, `,"requests":true`...)
	}
	if s.o.Confirm && token == 0 {
		to = append(to, `,"confirm":true`...)
	}
	return append(to, "}}\n"...)
}

// ceilMillis rounds up, because 0 means no limit.
func ceilMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// transient reports whether the same request may soon get another answer: bakeryd is gone, or
// starting.
func transient(err error) bool {
	if code := codeOf(err); code != "" {
		return code == api.CodeUnavailable
	}
	return errors.Is(err, ErrUnreachable)
}

// codeOf returns the code of a refusal, "" for other errors.
func codeOf(err error) string {
	if refusal, ok := errors.AsType[*Error](err); ok {
		return refusal.Code
	}
	return ""
}

// Bounds of the pause between two attempts to reach bakeryd.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// backoff makes the pauses between attempts longer.
type backoff struct {
	last time.Duration
}

// sleep pauses for at most the given time, and returns the cause of ctx's end if that comes first.
func (b *backoff) sleep(ctx context.Context, most time.Duration) error {
	b.last = min(max(firstPause, b.last*3/2), lastPause)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(min(b.last, most)):
		return nil
	}
}
