package client

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
)

// leaseOf returns the time left, at most layout.MaxLease.
func leaseOf(e api.Event) time.Duration { return believable(e.LeaseMS) }

// graceOf returns how long before the deadline the holder must stop.
func graceOf(e api.Event) time.Duration { return believable(e.GraceMS) }

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
	return from + leaseOf(e)
}

// awaitGrant reads until the lock is granted or refused.
func (l *link) awaitGrant(onWaiting func(api.Event)) (api.Event, error) {
	defer func() { l.soon = false }()
	for {
		e, err := l.next()
		if err != nil {
			return api.Event{}, err
		}
		switch e.Kind {
		case api.Waiting, api.Warning:
			l.soon = false
			if onWaiting != nil {
				onWaiting(e)
			}
		case api.Granted:
			if e.Token == 0 {
				return api.Event{}, fmt.Errorf("%w: granted without a token", ErrProtocol)
			}
			return e, nil
		case api.Refused:
			if e.Code == "" {
				return api.Event{}, fmt.Errorf("%w: refused without a code", ErrProtocol)
			}
			return api.Event{}, e.Err()
		case api.Lost: // the hold to resume is over
			return api.Event{}, &Error{Code: api.CodeLost, Message: e.Message}
		}
	}
}

// confirm confirms a grant and returns it with the current lease. bakeryd may already have given
// the lock to the next waiter.
func (l *link) confirm(granted api.Event) (api.Event, error) {
	if err := l.send(`{"confirm":"`, granted.Token); err != nil {
		return api.Event{}, err
	}
	l.soon = true
	defer func() { l.soon = false }()
	var others []api.Event
	for {
		e, err := l.next()
		if err != nil {
			return api.Event{}, err
		}
		switch e.Kind {
		default:
			others = append(others, e)
		case api.Confirmed:
			l.early = others
			granted.LeaseMS, granted.AtMS, granted.Message = e.LeaseMS, e.AtMS, e.Message
			return granted, nil
		case api.Refused:
			return api.Event{}, e.Err()
		case api.Lost:
			return api.Event{}, &Error{Code: api.CodeLost, Message: e.Message}
		}
	}
}
