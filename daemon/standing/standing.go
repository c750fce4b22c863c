// Package standing defines what the host table means for the lock protocol: which incarnations a slot's writer may
// be taken for over, and when a host may write a slot or grant a lock. It is pure: it joins daemon/lease to bakery,
// and never knows IO, a clock or goroutines. The daemon calls it, and its tests explore both machines with it.
package standing

import (
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/lease"
)

// Hosts returns the host table as the lock protocol reads it. A record counts as readable only if its read was
// asked for at since or later: after the slots that it is used to judge (VOID).
func Hosts(known []lease.Host, since time.Duration) []bakery.Host {
	out := make([]bakery.Host, len(known))
	for i, h := range known {
		out[i] = bakery.Host{
			Readable: h.Readable && h.Read >= since, Incarnation: h.Incarnation, Gone: h.Gone, Unsettled: !h.Settled,
			Ended: h.Ended,
		}
	}
	return out
}

// Over reports whether a host's incarnation is over, for a slot whose read was asked for at slotsRead.
func Over(h lease.Host, incarnation uint64, slotsRead time.Duration) bool {
	// That this very incarnation is gone stays true, whenever its record was read.
	return incarnation != 0 && (h.Over(incarnation) || h.Read > slotsRead && h.Void(incarnation))
}

// MayWrite reports whether a host may write a slot now (LAST-CALL).
func MayWrite(m *lease.Machine, now time.Duration) bool { return m.MayWrite(now) }

// MayGrant reports whether a host may grant a lock now: not if its holder would have to stop immediately.
func MayGrant(m *lease.Machine, now time.Duration) bool { return m.MayWrite(now) && now < m.WarnAt() }
