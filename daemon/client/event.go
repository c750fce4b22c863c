package client

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/layout"
)

// The kinds of event. Unknown ones are skipped: a newer bakeryd may send them.
const (
	eventWaiting = "waiting"
	eventWarning = "warning"
	eventGranted = "granted"
	eventRenewed = "renewed"
	eventMode    = "mode"
	eventRefused = "refused"
	eventLost    = "lost"

	eventRequested = "requested"
	eventReleased  = "released"
	eventKept      = "kept"
	eventConfirmed = "confirmed"
)

// event is one line of what bakeryd says; which fields it has depends on the kind.
type event struct {
	Kind    string        `json:"event"`
	Ahead   int           `json:"ahead"`    // waiting
	Queued  int           `json:"queued"`   // waiting
	Name    string        `json:"name"`     // granted
	Mode    layout.Mode   `json:"mode"`     // granted, mode
	Change  uint64        `json:"change"`   // granted, mode: how often the mode has changed
	Token   layout.Ticket `json:"token"`    // granted
	HostID  int           `json:"host_id"`  // granted
	LeaseMS int64         `json:"lease_ms"` // granted, renewed, lost: time left until the deadline; waiting: a whole lease
	AtMS    int64         `json:"at_ms"`    // granted, renewed, lost: when that was so, on boottime; 0: not told
	GraceMS int64         `json:"grace_ms"` // granted: how long before the deadline the holder is to stop
	Witness string        `json:"witness"`  // granted: path of the FIFO that was asked for
	Code    string        `json:"code"`     // refused
	Message string        `json:"message"`  // refused, lost, requested, warning
	Hint    string        `json:"hint"`     // refused

	Host     int    `json:"host"` // requested: where the lock is wanted
	HostName string `json:"host_name"`
}

// lease returns the time left. Nothing longer than the longest lease is believed.
func (e event) lease() time.Duration { return believable(e.LeaseMS) }

// grace returns how long before the deadline the holder is to stop.
func (e event) grace() time.Duration { return believable(e.GraceMS) }

func believable(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), layout.MaxLease.Milliseconds())) * time.Millisecond
}

// until returns the deadline that an event tells, which has just been read. If this process stood still, that is
// long after the event was sent; what it says of that is believed only if it can be: a bakeryd in another time
// namespace has another clock.
func (l *link) until(e event) time.Duration {
	from := clock.Boottime.Now()
	if at := time.Duration(e.AtMS) * time.Millisecond; at > l.asked-time.Millisecond && at < from {
		from = at
	}
	return from + e.lease()
}

// awaitGrant reads until the lock is granted or refused.
func (l *link) awaitGrant(onWaiting func(event)) (event, error) {
	defer func() { l.soon = false }()
	for {
		e, err := l.next()
		if err != nil {
			return event{}, err
		}
		switch e.Kind {
		case eventWaiting, eventWarning:
			l.soon = false
			if onWaiting != nil {
				onWaiting(e)
			}
		case eventGranted:
			if e.Token == 0 {
				return event{}, fmt.Errorf("%w: granted without a token", ErrProtocol)
			}
			return e, nil
		case eventRefused:
			if e.Code == "" {
				return event{}, fmt.Errorf("%w: refused without a code", ErrProtocol)
			}
			return event{}, &Error{Code: e.Code, Message: e.Message, Hint: e.Hint}
		case eventLost: // instead of the hold that was asked for again
			return event{}, &Error{Code: api.CodeLost, Message: e.Message}
		}
	}
}

// confirm confirms a grant, and returns it with the lease as it is then. bakeryd may have passed
// the lock on by then.
func (l *link) confirm(granted event) (event, error) {
	l.out = strconv.AppendUint(append(l.out[:0], `{"confirm":"`...), uint64(granted.Token), 10)
	l.out = append(l.out, "\"}\n"...)
	if err := l.write(); err != nil {
		return event{}, err
	}
	l.soon = true
	defer func() { l.soon = false }()
	var others []event
	for {
		e, err := l.next()
		if err != nil {
			return event{}, err
		}
		switch e.Kind {
		default:
			others = append(others, e)
		case eventConfirmed:
			l.early = others
			granted.LeaseMS, granted.AtMS, granted.Message = e.LeaseMS, e.AtMS, e.Message
			return granted, nil
		case eventRefused:
			return event{}, &Error{Code: e.Code, Message: e.Message, Hint: e.Hint}
		case eventLost:
			return event{}, &Error{Code: api.CodeLost, Message: e.Message}
		}
	}
}

// decodeEvent looks at the kind first: the fields of an unknown kind may have any type.
func decodeEvent(text []byte) (e event, known bool, err error) {
	if line.Members(text, e.set) && e.known() {
		return e, true, nil
	}
	e = event{}
	var head struct {
		Kind string `json:"event"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return event{}, false, fmt.Errorf("event %.100q: %w", text, err)
	}
	if e.Kind = head.Kind; !e.known() {
		return event{}, false, nil
	}
	e = event{}
	if err := json.Unmarshal(text, &e); err != nil {
		return event{}, false, fmt.Errorf("event %.100q: %w", text, err)
	}
	return e, true, nil
}

func (e *event) known() bool {
	switch e.Kind {
	case eventWaiting, eventWarning, eventGranted, eventRenewed, eventRequested, eventMode, eventRefused, eventLost, eventReleased, eventKept, eventConfirmed:
		return true
	}
	return false
}

// set sets one member of a plain object. It is false for what those that tell of a grant do not have: encoding/json reads
// that.
func (e *event) set(name, value []byte) bool {
	switch string(name) {
	case "event":
		kind, ok := line.Bytes(value)
		e.Kind = kindOf(kind)
		return ok
	case "ahead":
		return line.Int(value, &e.Ahead)
	case "queued":
		return line.Int(value, &e.Queued)
	case "name":
		return line.Text(value, &e.Name)
	case "mode":
		text, ok := line.Bytes(value)
		return ok && e.Mode.UnmarshalText(text) == nil
	case "token":
		text, ok := line.Bytes(value)
		return ok && e.Token.UnmarshalText(text) == nil
	case "host_id":
		return line.Int(value, &e.HostID)
	case "lease_ms":
		return line.Int(value, &e.LeaseMS)
	case "at_ms":
		return line.Int(value, &e.AtMS)
	case "grace_ms":
		return line.Int(value, &e.GraceMS)
	}
	return false
}

// kindOf is a kind that is told often, empty for all others.
func kindOf(text []byte) string {
	switch string(text) {
	case eventGranted:
		return eventGranted
	case eventConfirmed:
		return eventConfirmed
	case eventReleased:
		return eventReleased
	case eventRenewed:
		return eventRenewed
	case eventWaiting:
		return eventWaiting
	}
	return ""
}
