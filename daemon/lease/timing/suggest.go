package timing

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// niceLeases are easy to remember.
var niceLeases = []time.Duration{
	1 * time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second,
	30 * time.Second, 45 * time.Second, time.Minute, 90 * time.Second, 2 * time.Minute, 3 * time.Minute, 5 * time.Minute,
	10 * time.Minute, 15 * time.Minute, 20 * time.Minute, 30 * time.Minute, layout.MaxLease,
}

// Suggest derives a lease from the durations of durable writes. least is the shortest lease that
// leaves each of them within its budget, and also one twice as slow as the 99.9th percentile.
// choose is the usual lease unless that is too short. ok is false if even layout.MaxLease is too short:
// such a disk hangs.
func Suggest(p999, worst, usual time.Duration) (least, choose time.Duration, ok bool) {
	budget := max(worst, 2*p999)
	for _, l := range niceLeases {
		if (Times{Lease: l}).Budget() >= budget {
			return l, max(l, usual), true
		}
	}
	return layout.MaxLease, layout.MaxLease, false
}
