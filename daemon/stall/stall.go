// Package stall finds the IO of locks that blocks other hosts for too long, and suspends locks
// whose IO has ended a lease of this host. It knows rules and times, and never knows a device, a
// clock or a lease.
//
// Begin with [Watch]; [Quarantine] holds the suspended locks.
package stall

import (
	"sync"
	"time"
)

// IO is a request to the device, or a series of requests that is repeated until one succeeds.
type IO struct {
	Lock   int           // the lock whose slots or entry it is for
	Name   string        // of the lock
	Offset int64         // of its first byte
	Since  time.Duration // its beginning; for a series, that of the first request
}

// Watch tracks the IO under way that other hosts may have to wait for. It is safe for concurrent
// use.
type Watch struct {
	mu   sync.Mutex // guards the fields below
	last uint64
	ios  map[uint64]IO
}

// Begin records an IO, and returns a number for End, which is never 0.
func (w *Watch) Begin(io IO) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ios == nil {
		w.ios = map[uint64]IO{}
	}
	w.last++
	w.ios[w.last] = io
	return w.last
}

// End records that an IO is over; 0 is none.
func (w *Watch) End(number uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ios, number)
}

// Oldest returns the IO that began first; false if none is under way.
func (w *Watch) Oldest() (oldest IO, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, io := range w.ios {
		if !ok || io.Since < oldest.Since {
			oldest, ok = io, true
		}
	}
	return oldest, ok
}

// Before returns all IO under way that began at a time or earlier.
func (w *Watch) Before(at time.Duration) (found []IO) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, io := range w.ios {
		if io.Since <= at {
			found = append(found, io)
		}
	}
	return found
}
