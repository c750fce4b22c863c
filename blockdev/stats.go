package blockdev

import (
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
)

// Stats holds statistics of a device since it was opened.
type Stats struct {
	Read, Write, Zero Latency

	InFlight int           // requests under way
	Oldest   time.Duration // age of the oldest of them: it shows a hung device
}

// Latency is the duration of the requests of one kind, including those that failed. Requests that
// were refused for their alignment or range, or on a closed or read-only device, are not counted.
type Latency struct {
	Count, Errors uint64
	P50, P99      time.Duration // to two significant figures
	Max           time.Duration
}

// ledger tracks the requests of one device. Close waits on it and Stats reads it.
type ledger struct {
	epoch time.Time // start of the times below: a Duration costs half a clock reading less than a Time

	mu      sync.Mutex // guards the fields below
	idle    sync.Cond  // no call is under way
	closed  bool
	calls   []call // by id; a free id has the zero call
	busy    int    // number of the others
	tallies [opCount]opStats
}

// call is a request under way.
type call struct {
	op    Op
	begun time.Duration
}

// opStats sums up the requests of one kind.
type opStats struct {
	times  latency.Recorder
	errors uint64
}

func newLedger() *ledger {
	l := &ledger{epoch: time.Now()}
	l.idle.L = &l.mu
	return l
}

// begin records a request and returns its id, or false if the device is closed.
func (l *ledger) begin(op Op) (id int, ok bool) {
	now := time.Since(l.epoch)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, false
	}
	if id = slices.Index(l.calls, call{}); id < 0 {
		id = len(l.calls)
		l.calls = append(l.calls, call{})
	}
	l.calls[id] = call{op: op, begun: now}
	l.busy++
	return id, true
}

// end records that a request has returned.
func (l *ledger) end(id int, err error) {
	now := time.Since(l.epoch)
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.calls[id]
	l.calls[id] = call{}
	l.busy--
	t := &l.tallies[c.op]
	t.times.Add(now - c.begun)
	if err != nil {
		t.errors++
	}
	if l.busy == 0 {
		l.idle.Broadcast()
	}
}

// whileOpen calls f, and close waits for it. It returns ErrClosed if the device is closed: f could use a
// descriptor that is another file's by now.
func (l *ledger) whileOpen(f func() error) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.busy++
	l.mu.Unlock()
	err := f()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy--; l.busy == 0 {
		l.idle.Broadcast()
	}
	return err
}

// close refuses further requests and waits for those under way. It returns false if it was called
// before.
func (l *ledger) close() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.closed = true
	for l.busy > 0 {
		l.idle.Wait()
	}
	return true
}

func (l *ledger) stats() Stats {
	now := time.Since(l.epoch)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{
		Read:     l.tallies[OpRead].latency(),
		Write:    l.tallies[OpWrite].latency(),
		Zero:     l.tallies[OpZero].latency(),
		InFlight: l.busy,
	}
	for _, c := range l.calls {
		if c.op != OpAny {
			s.Oldest = max(s.Oldest, now-c.begun)
		}
	}
	return s
}

func (t *opStats) latency() Latency {
	return Latency{Count: uint64(t.times.Count()), Errors: t.errors, P50: t.times.At(50), P99: t.times.At(99), Max: t.times.Max()}
}
