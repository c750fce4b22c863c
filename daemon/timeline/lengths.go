package timeline

import (
	"cmp"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
)

// The lengths that rank waits and holds.
const (
	shortest = Moment(time.Millisecond / time.Microsecond)

	// unhindered is the time that a grant may take that waits for the disk only.
	unhindered = 100 * shortest
)

// measure sets how long an attempt has waited and held, as far as the journals show. Requests of
// bakeryd itself do not count, and neither do attempts that would not wait, or found no other
// client in the way.
func (a *Attempt) measure() {
	if a.removes() || a.Command == events.Restoring {
		return
	}
	switch {
	case a.held():
		a.Waited = a.Entered - a.begin()
	case a.End != WasBusy:
		a.Waited = a.Sure - a.begin()
	}
	if a.Waited < shortest || a.Behind == "" && a.Waited < unhindered {
		a.Waited = 0
	}
	if !a.held() {
		return
	}
	until := a.Sure
	if a.End == DeclaredDead && !a.oldVerdict { // until then no other host was granted the lock
		until = a.Ended
	}
	if over := cmp.Or(a.Verdict, a.Lost); over != Never { // then others may hold it, whatever the host recorded
		until = min(until, over)
	}
	if a.Held = until - max(a.Entered, a.known); a.Held < shortest {
		a.Held = 0
	}
}

// removes reports whether an attempt is that of a removal.
func (a *Attempt) removes() bool { return a.PID == 0 && a.Command == events.Removing }
