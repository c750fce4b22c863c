// Package standing defines the meaning of the host table for the lock protocol: whether the
// incarnation that wrote a slot is over, and when a host may grant a lock. It is pure: it joins
// daemon/lease to bakery, and never knows IO, a clock or goroutines. The daemon calls it, and its
// tests explore both machines with it.
package standing

import (
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// Hosts returns the host table for the lock protocol. A record counts as readable only if its
// read was requested at since or later: after the read of the slots that it is used to judge had
// ended (VOID).
func Hosts(known []lease.Host, policy layout.Policy, since time.Duration) []bakery.Host {
	out, read := make([]bakery.Host, len(known)), TableRead(known)
	for i, h := range known {
		h = presented(h, policy, read)
		out[i] = bakery.Host{
			Readable: h.Readable && h.Read >= since, Incarnation: h.Incarnation, Gone: h.Gone, Unsettled: !h.Settled,
			Joining: h.State == layout.StateJoining, Ended: h.Ended,
		}
	}
	return out
}

// TableRead returns when the last read of the host table that showed a readable record was
// requested.
func TableRead(known []lease.Host) time.Duration {
	var at time.Duration
	for _, h := range known {
		at = max(at, h.Read)
	}
	return at
}

// presented returns a host for the lock protocol. With policy lease an abandoned host counts as
// one that has left. Each read covers all hosts that an earlier one covered, so an abandoned
// host's record was unreadable in the read of the table requested at read, or in a later one.
func presented(h lease.Host, policy layout.Policy, read time.Duration) lease.Host {
	if h.Abandoned && policy == layout.PolicyLease {
		h.Readable, h.Gone, h.Settled, h.State, h.Read = true, true, true, layout.StateLeft, read
	}
	return h
}

// over reports whether a host's incarnation is over, for a slot whose read had ended at slotsEnded.
func over(h lease.Host, incarnation uint64, slotsEnded time.Duration) bool {
	// An incarnation that is gone stays gone, whenever its record was read.
	return incarnation != 0 && (h.Over(incarnation) || h.Read > slotsEnded && h.Void(incarnation))
}

// Ended is an incarnation of a host that is over.
type Ended struct {
	Host        int
	Incarnation uint64
}

// EvaluateHostTable returns the effect of a host table on the machine of host own, which waits for a
// lock: the incarnations to report by [bakery.Machine.Over], in this order, and whether the slots must
// be read again. The machine has read the slots as views, in a read that had ended at slotsEnded: the
// time of its request would let a table count that was read meanwhile (VOID). judged is the time of the
// table that last said so ([TableRead]).
func EvaluateHostTable(m *bakery.Machine, own int, known []lease.Host, policy layout.Policy, views []bakery.View, slotsEnded, judged time.Duration) (ended []Ended, again bool) {
	read := TableRead(known)
	for i := range min(len(views), len(known)) {
		id, v, h := i+1, views[i], presented(known[i], policy, read)
		if id == own {
			continue
		}
		current, writer := m.Current(id), v.Slot.Incarnation
		active := v.Readable && v.Slot.Phase != layout.Idle && !m.IsOver(id, writer)
		if over(h, current, slotsEnded) {
			ended = append(ended, Ended{id, current})
		}
		if active && writer != current && over(h, writer, slotsEnded) {
			ended = append(ended, Ended{id, writer})
		}
		// This table may show what an earlier one did not.
		unclear := !v.Readable || active && writer != current
		again = again || unclear && h.Read > max(slotsEnded, judged)
	}
	return ended, again || len(ended) > 0
}

// MayGrant reports whether a host may grant a lock now: not if its holder would have to stop
// immediately, or if other hosts may have fenced this one (SURE).
func MayGrant(m *lease.Machine, now time.Duration) bool {
	return m.MayWrite(now) && now < min(m.WarnAt(), m.SureUntil())
}
