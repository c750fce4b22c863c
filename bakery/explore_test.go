package bakery

import (
	"flag"
	"testing"

	"github.com/bakeryd/bakeryd/layout"
)

var full = flag.Bool("full", false, "explore the large scenarios too, for many minutes")

var (
	exclusive = []layout.Mode{layout.Exclusive}
	shared    = []layout.Mode{layout.Shared}
	mixed     = []layout.Mode{layout.Exclusive, layout.Shared}
	noClock   = []uint64{0}
	anyClock  = []uint64{0, 7} // behind and ahead of every number seen
)

func TestExplore(t *testing.T) {
	for _, sc := range []scenario{
		{name: "exclusive", hosts: 2, rounds: 3, permits: 1, modes: exclusive, settles: 1},
		{name: "mixed", hosts: 2, rounds: 2, permits: 1, modes: mixed, settles: 1},
		{name: "permits", hosts: 2, rounds: 2, permits: 2, modes: mixed, settles: 1},
		{name: "cancel", hosts: 2, rounds: 2, permits: 1, modes: exclusive, settles: 1, cancels: 1},
		{name: "clocks", hosts: 2, rounds: 2, permits: 1, modes: exclusive, clocks: anyClock, settles: 1},
		{name: "try", hosts: 2, rounds: 2, permits: 1, modes: exclusive, settles: 1, try: true},
		{name: "changes of mode", hosts: 2, rounds: 2, permits: 1, modes: mixed, changes: 1, settles: 1},
		{name: "death", hosts: 2, rounds: 2, permits: 1, modes: exclusive, settles: 1, crashes: 1},
		{name: "restart", hosts: 2, rounds: 2, permits: 1, modes: exclusive, settles: 1, crashes: 1, rejoin: true},
		{name: "bad slot", hosts: 2, rounds: 2, permits: 1, modes: exclusive, settles: 1, corrupt: 1, heals: 1},
		{name: "bad slot and death", hosts: 2, rounds: 2, permits: 1, modes: exclusive, corrupt: 1, crashes: 1, rejoin: true},
		{name: "removal", hosts: 2, rounds: 2, permits: 1, modes: exclusive, removes: 2, highest: 12},
		{name: "removal and cancel", hosts: 2, rounds: 2, permits: 1, modes: exclusive, removes: 1, cancels: 1, highest: 12},
		{name: "removal of permits", hosts: 2, rounds: 2, permits: 2, modes: exclusive, removes: 2, highest: 12},
		{name: "removal and death", hosts: 2, rounds: 2, permits: 1, modes: exclusive, removes: 1, crashes: 1, highest: 12},
		{name: "removal and restart", hosts: 2, rounds: 2, permits: 1, modes: exclusive, removes: 1, crashes: 1, rejoin: true, highest: 12},
		{name: "removal, death, bad slot", hosts: 2, rounds: 2, permits: 1, modes: exclusive, removes: 1, crashes: 1, corrupt: 1, highest: 12},
		{name: "exclusive", hosts: 3, rounds: 1, permits: 1, modes: exclusive, settles: 1},
	} {
		if sc.clocks == nil {
			sc.clocks = noClock
		}
		t.Run(sc.name, func(t *testing.T) { check(t, sc) })
	}
}
