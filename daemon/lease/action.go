package lease

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// Action is what the machine wants done, or tells. Every event returns its actions in the order in which they
// are to be carried out; telling comes before writing.
type Action interface{ action() }

// ReadTable asks for one read of the records of hosts 1..Hosts, begun after the event that returned this action:
// [Machine.TableRead] or [Machine.ReadFailed]. There is never more than one under way.
type ReadTable struct{ Hosts int }

// Write asks for a durable write of the own record, begun after the event that returned this action:
// [Machine.Written] or [Machine.WriteFailed], either only when that write has returned. There is never more
// than one under way.
type Write struct{ Record layout.HostRecord }

// Wait asks for a [Machine.Tick] at a time; it replaces the one before. Each event but the last returns one,
// unless only an IO is waited for.
type Wait struct{ Until time.Duration }

// Delayed tells that joining will take until a time, and why.
type Delayed struct {
	Reason error
	Until  time.Duration
}

// Joined tells that the host is live, and until when its lease runs. It may not take tickets yet: see [Ready].
type Joined struct {
	ID          int
	Incarnation uint64
	Deadline    time.Duration
	Resumed     bool // it goes on with the incarnation of [Config.Resume]
}

// Ready tells that every other host's reads cover this one: from now on it may take tickets.
type Ready struct{}

// Renewed tells that the lease runs longer.
type Renewed struct{ Deadline time.Duration }

// Lost tells that the lease is over, and is the machine's last word. A write may still be under way:
// [Machine.Writing].
type Lost struct {
	Reason error
	// Incarnation is the one that is over, if it ended cleanly, or 0. It is kept and given back as that of [Left].
	Incarnation uint64
}

// Refused tells that the host cannot join, and is the machine's last word.
type Refused struct{ Reason error }

// Left tells that the host has left, and is the machine's last word.
type Left struct {
	// Incarnation is the one that has left in good time, or 0 if its record may be overwritten by a write
	// still under way, or does not say that it left. Kept across restarts and given back as [Config.Left],
	// it spares the next join of this machine the long claim.
	Incarnation uint64
}

// Declared tells once that an incarnation of another host is dead, and once that it is forgotten: by a verdict of
// this host that is durable by now, or by one that was read. What it wrote is void, if [Host.Void] says so.
type Declared struct {
	Host        int
	Incarnation uint64
	Name        string
	Verdict     layout.VerdictKind // dead or forgotten
	By          int                // the host that declared it
}

// Fence asks to cut a silent host off from the device, for which it is this host's turn: [Machine.Fenced] when that
// was confirmed, [Machine.FenceFailed] when not. At Until the turn is over, and no attempt may be under way.
type Fence struct {
	Host        int
	Incarnation uint64
	Name        string
	PRKey       uint64
	Until       time.Duration
}

// Wished tells that a wish of [Machine.Evict] is published: the host still renews, and was asked to leave. It is told
// once for every such word.
type Wished struct {
	Host        int
	Incarnation uint64
	Name        string
}

// Asked tells once that this host is asked to leave: it is to stop its holders, then to call [Machine.Leave].
type Asked struct {
	By   int
	Name string
}

// Complained tells what others are held up by, and this host is to look at: its own slots, and entries of the lock
// directory that cannot be read. It is told no more often than every [Times.Renew].
type Complained struct{ Of []layout.Complaint }

func (ReadTable) action()  {}
func (Write) action()      {}
func (Wait) action()       {}
func (Delayed) action()    {}
func (Joined) action()     {}
func (Ready) action()      {}
func (Renewed) action()    {}
func (Lost) action()       {}
func (Refused) action()    {}
func (Left) action()       {}
func (Declared) action()   {}
func (Fence) action()      {}
func (Wished) action()     {}
func (Asked) action()      {}
func (Complained) action() {}
