// Package tally counts what a bakeryd does, and how long that takes, from its start to its end: over all terms of
// membership. To count is a few atomic additions, and no allocation: it is done on the way to every grant and around every
// request to the device. It knows nothing of how the counts are shown; package metrics shows them to Prometheus.
//
// Begin with [Tally]. Times are in histogram.go, what is counted of each lock in locks.go.
package tally

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Tally is all that is counted. The zero value is ready for use, by any number of goroutines.
type Tally struct {
	// Of the lease.
	Joins           atomic.Uint64 // times that the host became live
	Resumed         atomic.Uint64 // of these: it went on with the incarnation of the bakeryd before
	LeasesLost      atomic.Uint64
	Renewals        Histogram     // from the begin of the read that each one takes until its write was durable
	RenewalFailures atomic.Uint64 // reads of the host table and writes of the own record that failed

	// Of other hosts.
	DeathsDeclared  atomic.Uint64 // hosts that this one declared dead
	DeathsLearned   atomic.Uint64 // hosts that another one declared dead
	Fenced          atomic.Uint64 // hosts that this one cut off
	FencingFailures atomic.Uint64
	Recoveries      atomic.Uint64 // times that what a dead host had of a lock stood in the way of this one no more
	Evictions       atomic.Uint64 // by operators of this host

	// Of locks. Those that bakeryd has for itself are in none of these.
	Waits    Histogram     // for each grant, from the request
	Holds    Histogram     // for each hold that is over
	Handoffs atomic.Uint64 // grants that came from another client of this host, not by the disk
	Locks    Locks

	Refused Codes // what clients were refused

	IO [Kinds]IO
}

// Kind is what a request to the device is for.
type Kind int

// The kinds of requests.
const (
	Lease  Kind = iota // the host table, and the own record
	Lock               // slots and directory
	Report             // the whole lockspace, for who looks at it
	Kinds  = iota
)

var kindNames = [Kinds]string{"lease", "lock", "report"}

func (k Kind) String() string { return kindNames[k] }

// IO is how requests of one kind did.
type IO struct{ Reads, Writes Requests }

// Requests are reads or writes.
type Requests struct {
	Times  Histogram // those that failed included
	Errors atomic.Uint64
}

// Add counts one request that took so long.
func (r *Requests) Add(took time.Duration, err error) {
	r.Times.Add(took)
	if err != nil {
		r.Errors.Add(1)
	}
}

// Codes counts by the code of an error, of which there are few.
type Codes struct {
	mu sync.Mutex // guards n
	n  map[string]uint64
}

// Know has codes be there before the first of each is counted.
func (c *Codes) Know(codes ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, code := range codes {
		c.add(code, 0)
	}
}

// Add counts one more.
func (c *Codes) Add(code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(code, 1)
}

func (c *Codes) add(code string, n uint64) {
	if c.n == nil {
		c.n = map[string]uint64{}
	}
	c.n[code] += n
}

// All returns how many there were of each.
func (c *Codes) All() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}
