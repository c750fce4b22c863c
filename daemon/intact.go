package daemon

import (
	"errors"
	"fmt"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// errOverwritten is returned when an own slot can be read, and shows what this host has not written. A sector that was
// damaged is written anew, for nobody takes it for idle. This one may have let others pass:
//
//	holder H (ticket 5, held)     its sector               B
//	.                             zeroed, or an older one
//	.                             virgin                   claims, looks: nobody is there; enters
//	looks at its own slot: lost
var errOverwritten = errors.New("a slot of this host was overwritten: look for another bakeryd with its host id, for whoever else writes to the device, " +
	"and for storage that has lost or undone a write")

// intact looks at what a read of the own slot has shown, with no write of it under way. What others may have passed ends
// the lease, and so every hold, before anybody is let in by it; all else is written anew.
func (lk *lock) intact(v bakery.View) error {
	own, certain := lk.area.shows()
	if !certain || !v.Readable || v.Slot == own || !lk.m.Attached() {
		return nil
	}
	mine := lk.m.OwnSlot()
	if mine.Phase != layout.Idle && !sameLine(v.Slot, mine) {
		err := fmt.Errorf("%w: in lock %q it is %v by ticket %v, and was %v by %v", errOverwritten, lk.entry.Name,
			v.Slot.Phase, v.Slot.Ticket, mine.Phase, mine.Ticket)
		lk.d.mem.loseFor(err)
		return api.ErrLeaseLost
	}
	lk.d.log.Warn("own slot shows what this host has not written, rewriting it", "lock", lk.entry.Name, "host_id", lk.area.host,
		"phase", v.Slot.Phase, "ticket", v.Slot.Ticket)
	return lk.write(mine)
}

// sameLine tells whether whoever saw the one slot stood behind it exactly as behind the other: it may be an own write of
// before that landed late.
func sameLine(a, b bakery.Slot) bool {
	if a.Phase >= layout.Waiting && b.Phase >= layout.Waiting { // which are ordered alike
		a.Phase = b.Phase
	}
	return a == b
}

// shows is what the own slot was last found or written to be; not certain if it is not known, or a write of it has failed.
func (a *area) shows() (s bakery.Slot, certain bool) {
	return protocolSlot(a.own), a.known && !a.failed
}
