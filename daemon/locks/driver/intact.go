package driver

import (
	"errors"
	"fmt"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// ErrOverwritten is returned when an own slot is readable and shows what this host did not write. A
// damaged sector is only rewritten, because no host takes it for idle. This slot may have let other
// hosts in:
//
//	holder H (ticket 5, held)     its sector               B
//	.                             zeroed, or an older slot
//	.                             blank                    claims, looks: no host is there; enters
//	looks at its own slot: lost
var ErrOverwritten = errors.New("a slot of this host was overwritten: look for another bakeryd with this host id, another program that writes to the device, " +
	"or storage that lost or undid a write")

// intact checks a read of the own slot, with no write of it in flight. If the slot may have let
// other hosts in, the lease and every hold end, before this host admits a client by that read. In
// all other cases intact rewrites the slot.
func (lk *Lock) intact(v bakery.View) error {
	own, certain := lk.slots.Shows()
	if !certain || !v.Readable || v.Slot == own || !lk.m.Attached() {
		return nil
	}
	mine := lk.m.OwnSlot()
	if mine.Phase != layout.Idle && !sameLine(v.Slot, mine) {
		err := fmt.Errorf("%w: in lock %q it is %v by ticket %v, and was %v by %v", ErrOverwritten, lk.Entry.Name,
			v.Slot.Phase, v.Slot.Ticket, mine.Phase, mine.Ticket)
		lk.host.Member.LoseFor(err)
		return api.ErrLeaseLost
	}
	lk.host.Observer.Trouble("own slot was overwritten, rewriting it", lk.Entry, "host", lk.host.ID,
		"phase", v.Slot.Phase, "ticket", v.Slot.Ticket)
	return lk.write(mine)
}

// sameLine reports whether a host that saw a waited for this one exactly as if it saw b. Then a may
// be an earlier own write that landed late.
func sameLine(a, b bakery.Slot) bool {
	if a.Phase >= layout.Waiting && b.Phase >= layout.Waiting { // these are ordered alike
		a.Phase = b.Phase
	}
	return a == b
}
