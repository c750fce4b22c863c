package lease

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// Action is a request to the driver or a notification: one of the types below. Every event returns its actions in the
// order in which they are to be carried out. Notifications come before writes.
type Action any

// ReadTable requests one read of the records of hosts 1..Hosts, begun after the event that
// returned this action. It ends in [Machine.TableRead] or [Machine.ReadFailed]. At most one is
// under way. With several members, a host that is not live needs the copies of Counted (COUNT).
type ReadTable struct {
	Hosts   int
	Counted []int
}

// Write requests a durable write of the own record, begun after the event that returned this
// action. It ends in [Machine.Written] or [Machine.WriteFailed], either only when that write has
// returned. At most one is under way.
type Write struct{ Record layout.HostRecord }

// Wait requests a [Machine.Tick] at a time. It replaces the previous one. Each event but the last
// returns one, unless the machine waits only for IO.
type Wait struct{ Until time.Duration }

// Delayed reports that joining will take until a time, and why.
type Delayed struct {
	Reason error
	Until  time.Duration
}

// Joined reports that the host is live, and the end of its lease. It may not take tickets yet:
// see [Ready].
type Joined struct {
	ID          int
	Incarnation uint64
	Deadline    time.Duration
	Generation  uint32 // of the host id; 0 with one disk
	Resumed     bool   // it continues the incarnation of [Config.Resume]
}

// Ready reports that every other host's reads cover this one: from now on it may take tickets.
type Ready struct{}

// Renewed reports the new end of the lease.
type Renewed struct{ Deadline time.Duration }

// Lost reports that the lease is over. It is the machine's last action. A write may still be under
// way: until it returns, no process may join with this id on this machine.
type Lost struct {
	Reason error
	// Incarnation is the one that ended, if it ended cleanly, else 0. Keep it and pass it like
	// that of [Left].
	Incarnation uint64
}

// Refused reports that the host cannot join. It is the machine's last action.
type Refused struct{ Reason error }

// Left reports that the host has left. It is the machine's last action.
type Left struct {
	// Incarnation is the one that left in time. It is 0 if a write still under way may overwrite
	// its record, or if its record does not say left. Kept across restarts and passed as
	// [Config.Left], it spares the next join of this machine the long claim.
	Incarnation uint64
}

// Declared reports once that an incarnation of another host is dead, and once that it is
// forgotten. The verdict is durable if it is this host's, or else was read. Writes of the
// incarnation are void if [Host.Void] says so.
type Declared struct {
	Host        int
	Incarnation uint64
	Name        string
	Verdict     layout.VerdictKind // dead or forgotten
	Again       bool               // it was declared dead before
	By          int                // the host that declared it
}

// Fence requests that a silent host is cut off from the device, in a window of this host. Report
// [Machine.Fenced] when that was confirmed. If it was not, the next host tries, and this one in its
// next window. The window ends at Until; no attempt may be under way then.
type Fence struct {
	Host        int
	Incarnation uint64
	Name        string
	PRKey       uint64
	Until       time.Duration
}

// Wished reports that a wish of [Machine.Evict] is published: the host still renews, and is asked
// to leave. It is reported once for every such wish.
type Wished struct {
	Host        int
	Incarnation uint64
	Name        string
}

// Asked reports once that this host is asked to leave. The driver stops its holders, then calls
// [Machine.Leave].
type Asked struct {
	By   int
	Name string
}

// Complained reports unreadable records that block other hosts and that this host may repair: its
// own slots, and entries of the lock directory. It comes at most once every [timing.Times.Renew].
type Complained struct{ Of []layout.Complaint }
