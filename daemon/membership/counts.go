package membership

import (
	"github.com/bakeryd/bakeryd/daemon/lease"
)

// count counts the actions of the lease. carryOut counts renewals, because it knows their duration.
func (mb *Member) count(a lease.Action) {
	switch a := a.(type) {
	case lease.Joined:
		mb.tally.Joins.Add(1)
		if a.Resumed {
			mb.tally.Resumed.Add(1)
		}
	case lease.Lost:
		mb.tally.LeasesLost.Add(1)
	case lease.Declared:
		switch {
		case !mb.Live(mb.clock.Now()): // the first read may report deaths of long ago
		case !mb.firstWord(a):
		case a.By == mb.ID():
			mb.tally.DeathsDeclared.Add(1)
		default:
			mb.tally.DeathsLearned.Add(1)
		}
	}
}

// firstWord reports whether this is the first report of the death. A second one may say that the id
// is free.
func (mb *Member) firstWord(a lease.Declared) bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	if mb.buried[a.Host] == a.Incarnation {
		return false
	}
	mb.buried[a.Host] = a.Incarnation
	return true
}
