package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/layout"
)

// The kinds of event. A client skips unknown kinds, which a newer bakeryd may send.
const (
	Waiting   = "waiting"   // number of waiters ahead: when the wait begins, and when it changes
	Warning   = "warning"   // the client waits below a process that holds the lock
	Granted   = "granted"   // the lock is held
	Confirmed = "confirmed" // the client's confirmation of a grant arrived
	Renewed   = "renewed"   // the lease was renewed
	Requested = "requested" // the holder is asked to release the lock
	Mode      = "mode"      // the mode of the hold has changed
	Released  = "released"  // the hold was released
	Kept      = "kept"      // a cancelled request was granted before the cancellation
	Refused   = "refused"   // an Error
	Lost      = "lost"      // the hold ended without a release
)

// Event is a line that bakeryd sends to a client that requested a lock. The comment of a field
// names the kinds that have it; Append writes it for those only.
type Event struct {
	Kind   string        `json:"event"`
	Ahead  int           `json:"ahead"`   // waiting
	Queued int           `json:"queued"`  // waiting
	Name   string        `json:"name"`    // granted
	Mode   layout.Mode   `json:"mode"`    // granted, mode
	Change uint64        `json:"change"`  // granted, mode: number of changes of the mode
	Token  layout.Ticket `json:"token"`   // granted
	HostID int           `json:"host_id"` // granted
	// LeaseMS is the time until the lease ends (granted, confirmed, renewed, lost), or the duration
	// of the lease (waiting).
	LeaseMS int64 `json:"lease_ms"`
	// AtMS is the time of lease_ms on CLOCK_BOOTTIME, 0 if not known. Then lost has no lease_ms.
	AtMS int64 `json:"at_ms"`
	// GraceMS is the time before the end of the lease at which the holder must stop (granted).
	GraceMS int64  `json:"grace_ms"`
	Witness string `json:"witness"` // granted: path of the requested liveness FIFO
	Code    string `json:"code"`    // refused
	Message string `json:"message"` // refused, lost, requested, warning, confirmed
	Hint    string `json:"hint"`    // refused

	Host     int    `json:"host"`      // requested: id of the host that wants the lock
	HostName string `json:"host_name"` // requested
}

// Until returns the event with the time until the deadline.
func (e Event) Until(now, deadline time.Duration) Event {
	e.AtMS = now.Milliseconds()
	e.LeaseMS = deadline.Milliseconds() - e.AtMS
	return e
}

// Refusal returns the event for a refusal.
func Refusal(err *Error) Event {
	return Event{Kind: Refused, Code: err.Code, Message: err.Message, Hint: err.Hint}
}

// Err returns the error of a refusal.
func (e *Event) Err() *Error { return &Error{Code: e.Code, Message: e.Message, Hint: e.Hint} }

// Append appends the JSON of the event and a newline. It does not use encoding/json because it runs
// at every grant.
func (e *Event) Append(to []byte) []byte {
	to = line.AppendString(append(to, `{"event":`...), e.Kind)
	if e.Kind == Waiting {
		to = strconv.AppendInt(append(to, `,"ahead":`...), int64(e.Ahead), 10)
		to = strconv.AppendInt(append(to, `,"queued":`...), int64(e.Queued), 10)
	}
	to = line.AppendText(to, `,"name":`, e.Name)
	if e.Kind == Granted || e.Kind == Mode {
		to = line.AppendString(append(to, `,"mode":`...), e.Mode.String())
		if e.Change != 0 {
			to = strconv.AppendUint(append(to, `,"change":`...), e.Change, 10)
		}
	}
	if e.Token != 0 {
		to = append(to, `,"token":"`...)
		to = append(strconv.AppendUint(to, uint64(e.Token), 10), '"')
	}
	to = line.AppendNumber(to, `,"host_id":`, int64(e.HostID))
	switch e.Kind {
	case Waiting, Granted, Confirmed, Renewed:
		to = strconv.AppendInt(append(to, `,"lease_ms":`...), e.LeaseMS, 10)
	case Lost:
		if e.AtMS != 0 {
			to = strconv.AppendInt(append(to, `,"lease_ms":`...), e.LeaseMS, 10)
		}
	}
	to = line.AppendNumber(to, `,"at_ms":`, e.AtMS)
	to = line.AppendNumber(to, `,"grace_ms":`, e.GraceMS)
	to = line.AppendText(to, `,"witness":`, e.Witness)
	to = line.AppendText(to, `,"code":`, e.Code)
	to = line.AppendText(to, `,"message":`, e.Message)
	to = line.AppendText(to, `,"hint":`, e.Hint)
	to = line.AppendNumber(to, `,"host":`, int64(e.Host))
	to = line.AppendText(to, `,"host_name":`, e.HostName)
	return append(to, '}', '\n')
}

// kinds are all kinds, the frequent ones first.
var kinds = []string{Granted, Confirmed, Released, Renewed, Waiting, Warning, Requested, Mode, Kept, Refused, Lost}

// DecodeEvent decodes a line. known is false for an unknown kind, whose fields may have any type.
func DecodeEvent(text []byte) (e Event, known bool, err error) {
	if line.Members(text, e.set) && e.Kind != "" {
		return e, true, nil
	}
	e = Event{}
	var head struct {
		Kind string `json:"event"`
	}
	err = json.Unmarshal(text, &head)
	if known = err == nil && slices.Contains(kinds, head.Kind); known {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		return Event{}, false, fmt.Errorf("event %.100q: %w", text, err)
	}
	return e, known, nil
}

// set sets a member that the events of a grant have. It returns false for any other member, and
// encoding/json then decodes the line.
func (e *Event) set(name, value []byte) bool {
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

// kindOf returns the kind, "" if it is unknown, without an allocation.
func kindOf(text []byte) string {
	for _, kind := range kinds {
		if string(text) == kind {
			return kind
		}
	}
	return ""
}
