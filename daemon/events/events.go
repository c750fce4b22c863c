// Package events keeps the journal of one host: requests, waits, holds and releases of locks, and
// joins, silences and deaths of hosts. It knows neither locks nor leases, only the events that
// are added.
//
// Begin with [Log.Add] in log.go, which takes an event and does no IO. The event goes into a ring
// in memory. A goroutine of the log (keeper.go) appends it to a file (file.go) that survives
// bakeryd and the boot. read.go reads both.
package events

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Kind is the type of an event.
type Kind string

// The kinds of events.
const (
	Request  Kind = "request"  // a client requested a lock
	Waiting  Kind = "waiting"  // it waits for those in ahead: repeated when another one is directly ahead
	Choosing Kind = "choosing" // the host announced on the disk that it requests the lock
	Ticket   Kind = "ticket"   // it drew a number, with those ahead before it; none if it enters at once
	Enter    Kind = "enter"    // the lock is held, with a token; ahead has the last one waited for
	ModeSet  Kind = "mode"     // the holder continues in another mode, with the same token
	Exit     Kind = "exit"     // the lock was released
	Timeout  Kind = "timeout"  // a wait ended: it was not granted in time
	Cancel   Kind = "cancel"   // a wait ended: the client gave up or disconnected
	Busy     Kind = "busy"     // the request was not to wait
	Refused  Kind = "refused"  // the lock cannot be acquired, for the reason
	Wanted   Kind = "wanted"   // another host, by_host, asked the holder to release the lock, for the reason
	Removed  Kind = "removed"  // the lock was removed: by a request, or by a host that completes a removal
	Resumed  Kind = "resumed"  // after a restart bakeryd continues a hold (with a token), a wait (without one) or its lease (without a lock)
	Orphan   Kind = "orphan"   // the client has disconnected, the command runs and keeps the lock
	Kill     Kind = "kill"     // a signal was sent to the processes under the lock
	Remains  Kind = "remains"  // processes under the lock did not end after SIGKILL, and the lease is over
	Lost     Kind = "lost"     // a hold was lost, or the lease of the host (without a lock)

	Joined Kind = "joined"  // a host is live
	AtRisk Kind = "at_risk" // it does not renew its lease
	Seen   Kind = "seen"    // it renews its lease again
	Asked  Kind = "asked"   // an operator asked it to leave
	Fenced Kind = "fenced"  // it was cut off from the device
	Dead   Kind = "dead"    // it is declared dead: its locks are free
	Left   Kind = "left"    // it has left

	DiskLost Kind = "disk_lost" // a member disk of the lockspace is lost, or hangs, for the reason
	DiskBack Kind = "disk_back" // it is back
	Replaced Kind = "replaced"  // another disk is at a position of the member disks, or none, for the reason

	Gap Kind = "gap" // events are missing here: missed is their number, if known
)

// The commands of bakeryd's own requests for locks of clients.
const (
	Removing  = "remove the lock"
	Restoring = "restore the lock's directory entry"
)

// Event is one line of the journal. Fields that do not apply are omitted. Numbers of 64 bits are
// strings, because some JSON readers keep only 53 bits.
type Event struct {
	// Seq grows from event to event, also over restarts. It is the wall clock in microseconds, or
	// the last number plus one. After the loss of its file a log therefore continues above its
	// earlier numbers.
	Seq      uint64    `json:"seq,string"`
	At       time.Time `json:"at"`        // by the wall clock of the host that keeps the journal
	UptimeMS int64     `json:"uptime_ms"` // since its boot: steps of the clock do not change it
	Kind     Kind      `json:"kind"`
	Lock     string    `json:"lock,omitempty"` // empty: the event is about a host

	Host        int      `json:"host,omitempty"` // the host that the event is about; for a lock, the host itself
	HostName    string   `json:"host_name,omitempty"`
	Incarnation text.Hex `json:"incarnation,omitzero"`
	ByHost      int      `json:"by_host,omitempty"` // the host that reports this about another
	ByHostName  string   `json:"by_host_name,omitempty"`
	Boot        string   `json:"boot_id,omitempty"` // id of the boot, set when the host itself has joined, or its lease was resumed. Events of one boot have one clock

	Request uint64        `json:"request,string,omitempty"` // seq of the request that caused it, or after a restart of the event that resumed it; 0: none
	PID     int           `json:"pid,omitempty"`
	Command string        `json:"command,omitempty"`
	Mode    string        `json:"mode,omitempty" jsonschema:"enum=exclusive,enum=shared"`
	Permits int           `json:"permits,omitempty"` // enter, resumed: of the lock, if it has more than one
	Ticket  layout.Ticket `json:"ticket,omitzero"`
	Token   layout.Ticket `json:"token,omitzero"`

	Ahead      []Peer `json:"ahead,omitempty"`       // in order: the last one is directly ahead
	AheadCount int    `json:"ahead_count,omitempty"` // number of all, if that list is shortened

	WaitedMS int64  `json:"waited_ms,omitempty"` // since the request
	HeldMS   int64  `json:"held_ms,omitempty"`
	Missed   uint64 `json:"missed,omitempty"` // number of missing events
	Reason   string `json:"reason,omitempty"` // text for people
}

// Peer is a host or client that is ahead: a host, as its slot on the disk shows it, or another
// client of this host.
type Peer struct {
	Host     int           `json:"host"`
	HostName string        `json:"host_name,omitempty"`
	Phase    string        `json:"phase,omitempty" jsonschema_extras:"x-extensible-enum=choosing,x-extensible-enum=waiting,x-extensible-enum=held,x-extensible-enum=unreadable"` // choosing may hold the lock already
	Mode     string        `json:"mode,omitempty" jsonschema:"enum=exclusive,enum=shared"`
	Ticket   layout.Ticket `json:"ticket,omitzero"`
	PID      int           `json:"pid,omitempty"` // of the holder, if known
	Command  string        `json:"command,omitempty"`
	Request  uint64        `json:"request,string,omitempty"` // of a client of this host
}

// Self is the host that keeps the journal. Events are about it, unless they name another host.
type Self struct {
	Host        int
	Name        string
	Incarnation text.Hex
}
