package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
)

// session is a request, under an id by which bakeryd recognizes it after a connection broke.
type session struct {
	client  *Client
	request api.LockRequest // with a session, and once it is granted with the token
	reached bool            // there was a connection
}

// NewSession returns a new id for Options.Session.
func NewSession() string { return api.NewSessionID() }

// connect asks for the lock, by an idle link if there is one, and waits for the grant. With a token
// it resumes the hold that has it. It calls onWaiting while it waits. ctx ends connect, but not the
// link that it returns.
func (s *session) connect(ctx context.Context, onWaiting func(api.Event)) (*link, api.Event, error) {
	if cause := context.Cause(ctx); cause != nil {
		return nil, api.Event{}, cause
	}
	for {
		var l *link
		if s.request.Token == 0 {
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
		granted, err := s.negotiate(ctx, l, onWaiting)
		// A link that broke while idle is no error: bakeryd was restarted.
		if err != nil && wasIdle && !l.heard && ctx.Err() == nil && errors.Is(err, ErrUnreachable) {
			continue
		}
		return l, granted, err
	}
}

// negotiate asks by a link. If the lock is not granted, it closes the link or returns it to the
// pool.
func (s *session) negotiate(ctx context.Context, l *link, onWaiting func(api.Event)) (api.Event, error) {
	// Closing the connection is how a waiter leaves the queue, and it ends every read and write
	// below.
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	granted, err := s.exchange(l, onWaiting)
	if !stop() {
		err = context.Cause(ctx)
	}
	switch {
	case err == nil:
	case ctx.Err() == nil && errors.Is(err, ErrBusy) && l.reusable():
		s.client.putLink(l, l.asked)
	default:
		_ = l.conn.Close() // it holds nothing; the first error is the one to report
	}
	return granted, err
}

func (s *session) exchange(l *link, onWaiting func(api.Event)) (api.Event, error) {
	r := &s.request
	if err := l.ask(r); err != nil {
		return api.Event{}, err
	}
	s.reached = true // a bakeryd that ended before would not accept the request
	g, err := l.awaitGrant(onWaiting)
	if err == nil && r.Confirm {
		g, err = l.confirm(g)
	}
	switch {
	case err != nil:
		return api.Event{}, err
	case g.Name != r.Name || g.Mode != r.Mode && r.Token == 0: // the mode of a hold may have changed meanwhile
		return api.Event{}, fmt.Errorf("%w: granted %q %v, asked for %q %v", ErrProtocol, g.Name, g.Mode, r.Name, r.Mode)
	case r.Token != 0 && g.Token != r.Token:
		return api.Event{}, fmt.Errorf("%w: granted token %v, asked for the hold with token %v", ErrProtocol, g.Token, r.Token)
	}
	return g, nil
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

// waiter is a place in the wait queue. bakeryd, or the next process of it, keeps the place for a
// lease without a connection.
type waiter struct {
	*session
	o      Options
	begun  time.Time
	lease  time.Duration // of the lockspace; layout.MinLease until bakeryd sends it
	broken time.Duration // when the connection broke, on boottime; 0: it did not, or there was none yet
	pause  backoff
}

// grant waits until the lock is granted.
func (w *waiter) grant(ctx context.Context) (*link, api.Event, error) {
	for {
		l, granted, err := w.attempt(ctx)
		switch {
		case err == nil:
			return l, granted, nil
		case ctx.Err() != nil:
			return nil, api.Event{}, context.Cause(ctx)
		case codeOf(err) == api.CodeUnconfirmed: // this process was paused when the lock was granted
			w.broken = clock.Boottime.Now() // bakeryd may still be releasing that grant, and refuse until then
		case !w.reached || !transient(err):
			return nil, api.Event{}, err
		case w.broken == 0 && codeOf(err) != "": // a refusal on an unbroken connection is final
			return nil, api.Event{}, err
		case w.broken == 0:
			w.broken = clock.Boottime.Now()
		}
		left := w.remaining()
		if left <= 0 && w.o.Timeout > 0 && time.Since(w.begun) >= w.o.Timeout {
			err = ErrTimeout
		}
		if left <= 0 {
			return nil, api.Event{}, err
		}
		if err := w.pause.sleep(ctx, left); err != nil {
			return nil, api.Event{}, err
		}
	}
}

// attempt asks once. After a broken connection it waits for the first event at most as long as
// bakeryd keeps the place.
func (w *waiter) attempt(ctx context.Context) (*link, api.Event, error) {
	heard := func() {}
	if w.broken != 0 {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		silence := time.AfterFunc(w.remaining(), func() {
			cancel(fmt.Errorf("%w within %v", ErrNoAnswer, w.lease))
		})
		defer silence.Stop()
		heard = func() { silence.Stop() }
		if w.o.Timeout > 0 {
			w.request.TimeoutMS = ceilMillis(max(w.o.Timeout-time.Since(w.begun), time.Millisecond))
		}
	}
	return w.connect(ctx, func(e api.Event) {
		heard()
		if e.LeaseMS > 0 {
			w.broken, w.lease = 0, believable(e.LeaseMS) // the place is kept for a lease
		}
		switch {
		case e.Kind == api.Warning && w.o.OnWarning != nil:
			w.o.OnWarning(e.Message)
		case e.Kind == api.Waiting && w.o.OnWaiting != nil:
			w.o.OnWaiting(max(e.Ahead, 0), max(e.Queued, 0))
		}
	})
}

// remaining returns for how long another attempt makes sense.
func (w *waiter) remaining() time.Duration {
	left := w.broken + w.lease - clock.Boottime.Now()
	if w.o.Timeout > 0 {
		left = min(left, w.o.Timeout-time.Since(w.begun))
	}
	return left
}
