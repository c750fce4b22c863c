// Package events keeps what has happened on one host: who asked for a lock,
// waited for whom, had it and let it go, and which hosts came, fell silent and
// died. It knows neither locks nor leases, only what it is told.
//
// Begin with [Log.Add] in log.go, which takes an event and does no IO. It goes
// into a ring in memory, from which a goroutine of the log's own (keeper.go)
// appends it to a file (file.go) that outlives bakeryd and the boot. read.go
// reads both.
package events

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// Kind is what has happened.
type Kind string

// The kinds of events.
const (
	Request  Kind = "request"  // a client asked for a lock
	Waiting  Kind = "waiting"  // it waits for who is Ahead: told anew when the one directly ahead is another
	Choosing Kind = "choosing" // the host announced on the disk that it wants the lock
	Ticket   Kind = "ticket"   // it drew a number, with those Ahead before it
	Enter    Kind = "enter"    // the lock is held, by Token; Ahead is the last one waited for
	ModeSet  Kind = "mode"     // who holds it goes on in another Mode, by the same Token
	Exit     Kind = "exit"     // it was let go
	Timeout  Kind = "timeout"  // a wait ended: it was not granted in time
	Cancel   Kind = "cancel"   // a wait ended: the client gave up, or is gone
	Busy     Kind = "busy"     // the client would not wait
	Refused  Kind = "refused"  // the lock cannot be had, for Reason
	Wanted   Kind = "wanted"   // ByHost asked the holder for the lock, for Reason
	Removed  Kind = "removed"  // the lock was removed
	Resumed  Kind = "resumed"  // after a restart bakeryd goes on with a hold (Token), a wait (no Token) or, without a Lock, its lease
	Orphan   Kind = "orphan"   // the client is gone, the command lives and keeps the lock
	Kill     Kind = "kill"     // what runs under the lock was sent a signal
	Remains  Kind = "remains"  // what runs under the lock did not end by SIGKILL, and the lease is over
	Lost     Kind = "lost"     // a hold is lost, or without a Lock the lease of the host

	Joined Kind = "joined"  // a host is live
	AtRisk Kind = "at_risk" // it does not renew its lease
	Seen   Kind = "seen"    // it does so again
	Asked  Kind = "asked"   // an operator asked it to leave
	Fenced Kind = "fenced"  // it was cut off from the device
	Dead   Kind = "dead"    // it is declared dead: its locks are free
	Left   Kind = "left"    // it has left

	Gap Kind = "gap" // events are missing here: Missed, if it is known how many
)

// Event is one line of the journal. What does not apply is left out; numbers
// of 64 bits are strings, for readers of JSON that keep 53.
type Event struct {
	// Seq grows from event to event, also over restarts. It is the wall clock in microseconds, or one more than
	// the last: a log that lost its file goes on above what it gave before.
	Seq      uint64    `json:"seq,string"`
	At       time.Time `json:"at"`        // by the wall clock of the host that keeps the journal
	UptimeMS int64     `json:"uptime_ms"` // since its boot: no step of the clock changes it
	Kind     Kind      `json:"kind"`
	Lock     string    `json:"lock,omitempty"` // none: of a host

	Host        int    `json:"host,omitempty"` // whom it is about; of a lock, the host itself
	HostName    string `json:"host_name,omitempty"`
	Incarnation uint64 `json:"incarnation,string,omitempty"`
	ByHost      int    `json:"by_host,omitempty"` // who says so of another host
	ByHostName  string `json:"by_host_name,omitempty"`
	Boot        string `json:"boot,omitempty"` // the host itself has joined, or its lease was resumed: its boot id. Of one boot are one clock and one UptimeMS

	Request uint64        `json:"request,string,omitempty"` // Seq of the request that it came of; 0: none, or one of before a restart
	PID     int           `json:"pid,omitempty"`
	Command string        `json:"command,omitempty"`
	Mode    string        `json:"mode,omitempty"`
	Permits int           `json:"permits,omitempty"` // enter, resumed: of the lock, where that has more than one
	Ticket  layout.Ticket `json:"ticket,omitzero"`
	Token   layout.Ticket `json:"token,omitzero"`

	Ahead      []Peer `json:"ahead,omitempty"`       // in order: the last one is directly ahead
	AheadCount int    `json:"ahead_count,omitempty"` // of all, where Ahead is shortened

	WaitedMS int64  `json:"waited_ms,omitempty"` // from the request on
	HeldMS   int64  `json:"held_ms,omitempty"`
	Missed   uint64 `json:"missed,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Peer is one who stands ahead: a host, as its slot on the disk shows it, or
// another client of this host.
type Peer struct {
	Host     int           `json:"host"`
	HostName string        `json:"host_name,omitempty"`
	Phase    string        `json:"phase,omitempty"` // choosing (which may be inside already), waiting, held, unreadable
	Mode     string        `json:"mode,omitempty"`
	Ticket   layout.Ticket `json:"ticket,omitzero"`
	PID      int           `json:"pid,omitempty"` // of who holds, where that is known
	Command  string        `json:"command,omitempty"`
	Request  uint64        `json:"request,string,omitempty"` // of a client of this host
}

// Self is the host that keeps the journal. What is added is about it, unless
// it says otherwise.
type Self struct {
	Host        int
	Name        string
	Incarnation uint64
}
