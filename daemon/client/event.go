package client

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
)

// believable returns a time that bakeryd sent, at most layout.MaxLease.
func believable(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), layout.MaxLease.Milliseconds())) * time.Millisecond
}

// until returns the deadline in an event that has just been read. If this process was paused,
// bakeryd sent the event long ago. at_ms then corrects the deadline, if it is plausible: a bakeryd
// in another time namespace has another clock.
func (l *link) until(e api.Event) time.Duration {
	from := clock.Boottime.Now()
	if at := time.Duration(e.AtMS) * time.Millisecond; at > l.asked-time.Millisecond && at < from {
		from = at
	}
	return from + believable(e.LeaseMS)
}

// await reads until an event of one of the kinds, which it returns, or one that ends the request. It
// passes all others to other.
func (l *link) await(other func(api.Event), kinds ...string) (api.Event, error) {
	l.soon = true
	defer func() { l.soon = false }()
	for {
		e, err := l.next()
		switch {
		case err != nil:
			return api.Event{}, err
		case slices.Contains(kinds, e.Kind):
			return e, nil
		case e.Kind == api.Refused && e.Code == "":
			return api.Event{}, fmt.Errorf("%w: refused without a code", ErrProtocol)
		case e.Kind == api.Refused:
			return api.Event{}, e.Err()
		case e.Kind == api.Lost:
			return api.Event{}, &Error{Code: api.CodeLost, Message: e.Message}
		}
		other(e)
	}
}

// awaitGrant reads until the lock is granted or refused, or the hold to resume is over.
func (l *link) awaitGrant(onWaiting func(api.Event)) (api.Event, error) {
	granted, err := l.await(func(e api.Event) {
		if e.Kind != api.Waiting && e.Kind != api.Warning {
			return
		}
		l.soon = false
		if onWaiting != nil {
			onWaiting(e)
		}
	}, api.Granted)
	if err == nil && granted.Token == 0 {
		err = fmt.Errorf("%w: granted without a token", ErrProtocol)
	}
	return granted, err
}

// confirm confirms a grant and returns it with the current lease. bakeryd may already have given
// the lock to the next waiter.
func (l *link) confirm(granted api.Event) (api.Event, error) {
	if err := l.send(`{"confirm":"`, granted.Token); err != nil {
		return api.Event{}, err
	}
	var others []api.Event
	e, err := l.await(func(e api.Event) { others = append(others, e) }, api.Confirmed)
	l.early = others
	granted.LeaseMS, granted.AtMS, granted.Message = e.LeaseMS, e.AtMS, e.Message
	return granted, err
}

// awaitRelease reads until bakeryd reports the release of the hold.
func (l *link) awaitRelease() error {
	e, err := l.await(func(api.Event) {}, api.Released, api.Kept)
	if err == nil && e.Kind == api.Kept {
		err = errors.New("not released")
	}
	return err
}
