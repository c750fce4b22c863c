// Package scale measures how bakeryd grows with the hosts of a lockspace, with its locks, and with
// the waiters for one. It runs the daemon's code on a disk in memory that counts requests, so most
// results are counts that hold on any machine. It knows the layout only to write records of hosts
// that do not run.
//
// Begin with [Measure] in growth.go. crowd.go measures local grants, waiters.go waiting hosts,
// joining.go the join. disk.go and simulated.go replace a disk and other hosts, lookers.go the clients
// that only look.
package scale

import "time"

// Latency is the time of a request where time matters, as on a good disk.
const Latency = 100 * time.Microsecond

// Result is all results.
type Result struct {
	Points  []Point   `json:"points"`
	Grants  []Grant   `json:"grants"`
	Waiters []Waiting `json:"waiters"`
	Joining []Joining `json:"joining"`
}

// Hosts, Locks, Waiters and Joiners are the sizes of a full run; a quick run has the first two of
// each.
var (
	Hosts   = []int{2, 16, 128, 1000, 2000}
	Locks   = []int{1, 100, 10000}
	Waiters = []int{1, 2, 4, 8, 16, 32, 64}
	Joiners = []int{2, 16, 128}
)
