package api

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/layout"
)

// The kinds of event. A client skips unknown kinds, which a newer bakeryd may send.
const (
	Waiting   = "waiting"   // place of the client: when the wait begins, and when it changes
	Warning   = "warning"   // the client waits below a process that holds the lock, or bakeryd ignores a member of the request
	Granted   = "granted"   // the lock is held
	Confirmed = "confirmed" // the client's confirmation of a grant arrived
	Renewed   = "renewed"   // the lease was renewed
	Requested = "requested" // the holder is asked to release the lock
	Mode      = "mode"      // the mode of the hold has changed
	Released  = "released"  // the hold was released
	Kept      = "kept"      // a cancelled request was granted before the cancellation
	Refused   = "refused"   // the request was refused
	Lost      = "lost"      // the hold ended without a release
)

// Event is a line that bakeryd sends to a client that requested a lock. The comment of a member
// ends with the kinds that have it; other lines are without it.
type Event struct {
	Kind   string        `json:"event"`  // kind of the event
	Ahead  int           `json:"ahead"`  // number of hosts before this one and of clients of this host before this client, holders included (waiting)
	Queued int           `json:"queued"` // number of clients of this host that wait (waiting)
	Name   string        `json:"name"`   // name of the lock (granted)
	Mode   layout.Mode   `json:"mode"`   // mode of the hold (granted, mode)
	Change uint64        `json:"change"` // number of changes of the mode (granted, mode)
	Token  layout.Ticket `json:"token"`  // fencing token of the hold (granted)
	// LeaseMS is the time until the lease ends (granted, confirmed, renewed, lost), or the duration
	// of the lease (waiting).
	LeaseMS int64 `json:"lease_ms"`
	// AtMS is the time on CLOCK_BOOTTIME from which the lease counts, 0 if not known (granted,
	// confirmed, renewed, lost). Then lost has no lease_ms.
	AtMS int64 `json:"at_ms"`
	// GraceMS is the time before the end of the lease at which the holder must stop (granted).
	GraceMS int64  `json:"grace_ms"`
	Witness string `json:"witness"` // path of the requested liveness FIFO (granted)
	Code    string `json:"code"`    // reason of the refusal (refused)
	Message string `json:"message"` // text for people, or of the client that wants the lock (refused, lost, requested, warning, confirmed)
	Hint    string `json:"hint"`    // instruction to the user (refused)

	Host     int    `json:"host"`      // id of this host (granted), or of the host that wants the lock (requested)
	HostName string `json:"host_name"` // name of the host that wants the lock; empty if unknown (requested)
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
	o := line.Write(to)
	e.members(&o)
	return append(o.End(), '\n')
}

// members lists the members in the order of Append.
func (e *Event) members(o *line.Object) {
	o.Text(`"event":`, &e.Kind)
	waiting, granted := e.Kind == Waiting, e.Kind == Granted
	line.Number(o, `"ahead":`, &e.Ahead, waiting)
	line.Number(o, `"queued":`, &e.Queued, waiting)
	o.Text(`"name":`, &e.Name)
	line.Quoted(o, `"mode":`, &e.Mode, granted || e.Kind == Mode)
	line.Number(o, `"change":`, &e.Change, false)
	line.Quoted(o, `"token":`, &e.Token, false)
	line.Number(o, `"host":`, &e.Host, false)
	line.Number(o, `"lease_ms":`, &e.LeaseMS, waiting || granted || e.Kind == Confirmed || e.Kind == Renewed ||
		e.Kind == Lost && e.AtMS != 0)
	line.Number(o, `"at_ms":`, &e.AtMS, false)
	line.Number(o, `"grace_ms":`, &e.GraceMS, false)
	o.Text(`"witness":`, &e.Witness)
	o.Text(`"code":`, &e.Code)
	o.Text(`"message":`, &e.Message)
	o.Text(`"hint":`, &e.Hint)
	o.Text(`"host_name":`, &e.HostName)
}

// kinds are all kinds, the frequent ones first.
var kinds = []string{Granted, Confirmed, Released, Renewed, Waiting, Warning, Requested, Mode, Kept, Refused, Lost}

// Kinds returns all kinds of event.
func Kinds() []string { return slices.Clone(kinds) }

// DecodeEvent decodes a line. known is false for an unknown kind, whose fields may have any type.
func DecodeEvent(text []byte) (e Event, known bool, err error) {
	o := line.Read(text)
	if e.members(&o); o.Done() {
		return e, slices.Contains(kinds, e.Kind), nil
	}
	var head struct {
		Kind string `json:"event"`
	}
	var slow Event // e is not, as it would be on the heap
	err = json.Unmarshal(text, &head)
	if known = err == nil && slices.Contains(kinds, head.Kind); known {
		err = json.Unmarshal(text, &slow)
	}
	if err != nil {
		return Event{}, false, fmt.Errorf("event %.100q: %w", text, err)
	}
	return slow, known, nil
}

// LockRequest is the body of POST /v1/lock, and the lock member of a link's line.
type LockRequest struct {
	Name      string      `json:"name" jsonschema:"required"` // 1 to 128 bytes of UTF-8 without control characters
	Mode      layout.Mode `json:"mode"`                       // exclusive if not given
	NonBlock  bool        `json:"nonblock"`                   // refuse as busy instead of waiting
	TimeoutMS int64       `json:"timeout_ms"`                 // 0 if none
	Permits   int         `json:"permits"`                    // 0: the lock's
	PID       int         `json:"pid"`                        // 0: the peer's
	Command   string      `json:"command"`
	// 32 hex digits chosen by the client, to reconnect to; empty if none
	Session string `json:"session"`
	// reconnect to the hold with this token, or be refused; 0 requests the lock
	Token   layout.Ticket `json:"token"`
	Witness bool          `json:"witness"` // create a FIFO that the command holds the lock by

	// on a link: pass the lock on if the client does not confirm the grant in time
	Confirm bool `json:"confirm"`
	// notify the holder of requests for the lock; repeated when the client reconnects
	Requests bool `json:"requests"`
	// release the lock on the disk immediately: this client does not take it again soon. The members
	// confirm and witness have the same effect
	NoLinger bool `json:"no_linger"`
}

// NewSessionID returns a new id for LockRequest.Session.
func NewSessionID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// Append appends the JSON of the request.
func (r *LockRequest) Append(to []byte) []byte {
	o := line.Write(to)
	r.members(&o)
	return o.End()
}

// ReadPlain sets the members from the output of Append. It returns false for all other texts.
func (r *LockRequest) ReadPlain(text []byte) bool {
	o := line.Read(text)
	r.members(&o)
	return o.Done()
}

// members lists the members in the order of Append.
func (r *LockRequest) members(o *line.Object) {
	o.Text(`"name":`, &r.Name)
	line.Quoted(o, `"mode":`, &r.Mode, true)
	o.Flag(`"nonblock":`, &r.NonBlock)
	line.Number(o, `"timeout_ms":`, &r.TimeoutMS, false)
	line.Number(o, `"permits":`, &r.Permits, false)
	line.Number(o, `"pid":`, &r.PID, false)
	o.Text(`"command":`, &r.Command)
	o.Text(`"session":`, &r.Session)
	line.Quoted(o, `"token":`, &r.Token, false)
	o.Flag(`"witness":`, &r.Witness)
	o.Flag(`"requests":`, &r.Requests)
	o.Flag(`"confirm":`, &r.Confirm)
	o.Flag(`"no_linger":`, &r.NoLinger)
}
