// Package tally counts the operations of a bakeryd and their durations, from its start to its
// end, over all terms of membership. Counting is a few atomic additions without an allocation,
// because it happens on every grant and every request to the device. It does not know how the
// counts are shown; package metrics exports them to Prometheus.
//
// Begin with [Tally]. Durations are in histogram.go, the counts of each lock in locks.go.
package tally

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Tally holds all counts. The zero value is ready for use, by any number of goroutines.
type Tally struct {
	// Of the lease.
	Joins           atomic.Uint64 // times that the host became live
	Resumed         atomic.Uint64 // the part of Joins that resumed the incarnation of the previous bakeryd
	LeasesLost      atomic.Uint64
	Renewals        Histogram     // from the start of the read to the end of the write
	RenewalFailures atomic.Uint64 // failed reads of the host table and writes of the own record

	// Of other hosts.
	DeathsDeclared  atomic.Uint64 // hosts that this one declared dead
	DeathsLearned   atomic.Uint64 // hosts that another one declared dead
	Fenced          atomic.Uint64 // hosts that this one cut off
	FencingFailures atomic.Uint64
	Recoveries      atomic.Uint64 // number of times that a dead host's part in a lock stopped blocking this one
	Evictions       atomic.Uint64 // by operators of this host

	// Of locks, except bakeryd's internal ones.
	Waits    Histogram     // for each grant, from the request
	Holds    Histogram     // for each hold that is over
	Handoffs atomic.Uint64 // grants handed over from another client of this host, without the disk
	Locks    Locks

	Refused Codes // errors returned to clients

	IO [Kinds]IO
}

// Kind is the purpose of a request to the device.
type Kind int

// The kinds of requests.
const (
	Lease  Kind = iota // the host table, and the own record
	Lock               // slots and directory
	Report             // the whole lockspace, for display
	Kinds  = iota
)

var kindNames = [Kinds]string{"lease", "lock", "report"}

func (k Kind) String() string { return kindNames[k] }

// IO holds the counts of one kind of requests.
type IO struct{ Reads, Writes Requests }

// Requests holds the counts of reads or writes.
type Requests struct {
	Times  Histogram // including failed ones
	Errors atomic.Uint64
}

// Add counts one request and its duration.
func (r *Requests) Add(took time.Duration, err error) {
	r.Times.Add(took)
	if err != nil {
		r.Errors.Add(1)
	}
}

// Codes counts errors by code. There are few codes.
type Codes struct {
	mu sync.Mutex // guards n
	n  map[string]uint64
}

// Know creates a code with a count of 0.
func (c *Codes) Know(code string) { c.add(code, 0) }

// Add counts one error.
func (c *Codes) Add(code string) { c.add(code, 1) }

func (c *Codes) add(code string, n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]uint64{}
	}
	c.n[code] += n
}

// All returns the counts by code.
func (c *Codes) All() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}
