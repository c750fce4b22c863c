// Package scale measures how bakeryd grows: with the hosts of a lockspace, with
// its locks, and with those who wait for one. It runs the daemon's own code on
// a disk in memory that counts what is asked of it, so that most of what it
// finds is a count, and holds on any machine. It knows the layout only to put
// records there of hosts that it does not run.
//
// Begin with [Measure] in growth.go; waiters.go is about the waiters, joining.go
// about how long it takes to join; disk.go and crowd.go are what stands in for a
// disk and for other hosts.
package scale

import "time"

// Latency is how much longer a request takes where time matters, as on a good disk.
const Latency = 100 * time.Microsecond

// Result is all that is measured.
type Result struct {
	Points  []Point   `json:"points"`
	Waiters []Waiting `json:"waiters"`
	Joining []Joining `json:"joining"`
}

// Hosts, Locks, Waiters and Joiners are what is measured in full; the quick run has the first two of each.
var (
	Hosts   = []int{2, 16, 128, 1000, 2000}
	Locks   = []int{1, 100, 10000}
	Waiters = []int{1, 2, 4, 8, 16, 32, 64}
	Joiners = []int{2, 16, 128}
)
