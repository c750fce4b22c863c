// Package stress makes workers take a lock repeatedly, each time to raise a counter that only the
// lock guards, and checks the result. The lock is in memory, on a device, or bakeryd's. The
// package knows no flags, and not how a result is shown.
//
// In memory it is the bakery in its smallest form. Every worker is a host and drives the machine
// of package bakery, the same that the daemon drives on a disk, over an array of slots. Begin
// with visitor.go; memory.go carries out its actions. gate.go bounds the numbers of tickets,
// which only this package does. clients.go uses the daemon.
package stress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bakeryd/bakeryd/layout"
)

// ErrInvalid is returned when the configuration cannot be run.
var ErrInvalid = errors.New("invalid run")

const (
	maxIterations = 1 << 40

	// yieldEvery is the interval of sections that yield in the middle. Without that, a broken
	// lock would often go unnoticed, especially on one processor.
	yieldEvery = 16
)

// Config configures a run.
type Config struct {
	Workers    int           // 1 to layout.MaxHosts
	Iterations int           // critical sections of each worker, at least 1
	Hold       time.Duration // additional duration of each section
	Debug      io.Writer     // receives a line for each wait; nil: none
	Remains    func(error)   // is called if the lock that this run has created cannot be removed; nil: none

	distort func(v *visitor, w word) word // tests: that of visitors in memory
	blind   bool                          // tests: only the lock under test orders the sections
}

// Result is the outcome of a run.
type Result struct {
	Workers    int    `json:"workers"`          // number of workers
	Iterations int    `json:"iterations"`       // of each worker
	Expected   uint64 `json:"expected"`         // counter value that is correct
	Observed   uint64 `json:"observed"`         // counter value at the end
	MaxTicket  uint64 `json:"max_ticket"`       // the largest number of a ticket
	Drains     uint64 `json:"drains,omitempty"` // number of times that the numbers began at zero again
	Overlaps   uint64 `json:"overlaps"`         // sections begun while another worker was inside
	Disordered uint64 `json:"disordered"`       // grants whose token was not greater than the one before; with bounded numbers, of an earlier era
	ElapsedMS  int64  `json:"elapsed_ms"`
}

// Passed reports whether the lock kept its promises.
func (r *Result) Passed() bool {
	return r.Observed == r.Expected && r.Overlaps == 0 && r.Disordered == 0
}

// Backend is the kind of lock: [Memory], [Device] or [Clients]. It gives every worker its access to
// the lock. A waiting worker gives up when ctx ends.
type Backend func(ctx context.Context, r *run) ([]access, error)

// access is one worker's access to the lock.
type access struct {
	lock   func() (grant, error) // returns the cause of ctx's end, if that came first
	unlock func() error          // returns an error also if the lock was lost
	close  func() error          // after the last unlock
}

// grant is a hold, to be compared with the previous one.
type grant struct {
	ticket  layout.Ticket
	era     uint64 // number of drains
	bounded bool   // numbers are bounded: their order has no meaning while they are drained
}

// after reports whether g may follow h.
func (g grant) after(h grant) bool {
	if g.bounded {
		return g.era >= h.era
	}
	return g.ticket > h.ticket
}

// run is a run under way.
type run struct {
	cfg   Config
	trace *trace // nil: no trace

	inside   atomic.Int32
	overlaps atomic.Uint64

	// Guarded only by the lock under test.
	res  Result
	last grant
}

// Run runs the workers. It returns ErrInvalid, the cause of ctx's end, or the error of a device
// or daemon. With the last two it also returns the result up to then, if work had begun.
func Run(ctx context.Context, cfg Config, b Backend) (*Result, error) {
	if cfg.Workers < 1 || cfg.Workers > layout.MaxHosts {
		return nil, fmt.Errorf("%w: %d workers, want 1 to %d", ErrInvalid, cfg.Workers, layout.MaxHosts)
	}
	if cfg.Iterations < 1 || cfg.Iterations > maxIterations {
		return nil, fmt.Errorf("%w: %d iterations, want 1 to %d", ErrInvalid, cfg.Iterations, maxIterations)
	}
	r := &run{cfg: cfg, res: Result{Workers: cfg.Workers, Iterations: cfg.Iterations, Expected: uint64(cfg.Workers) * uint64(cfg.Iterations)}}
	if cfg.Debug != nil {
		r.trace = &trace{out: cfg.Debug}
	}
	workers, ctx := errgroup.WithContext(ctx)
	all, err := b(ctx, r)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	for i, a := range all {
		workers.Go(func() error { return r.work(ctx, i+1, a) })
	}
	err = workers.Wait()
	r.res.Drains, r.res.Overlaps, r.res.ElapsedMS = r.last.era, r.overlaps.Load(), time.Since(begun).Milliseconds()
	return &r.res, err
}

// work is the loop of one worker.
func (r *run) work(ctx context.Context, worker int, a access) (err error) {
	defer func() { err = errors.Join(err, a.close()) }()
	for range r.cfg.Iterations {
		g, err := a.lock()
		if err != nil {
			return err
		}
		r.section(ctx, worker, g)
		if err := a.unlock(); err != nil {
			return err
		}
	}
	return nil
}

// section raises the counter, in two steps that no other worker must come between.
func (r *run) section(ctx context.Context, worker int, g grant) {
	if !r.cfg.blind && r.inside.Add(1) != 1 {
		r.overlaps.Add(1)
	}
	if r.trace != nil {
		r.trace.enters(worker, g)
	}
	value := r.res.Observed
	if !g.after(r.last) {
		r.res.Disordered++
	}
	r.last, r.res.MaxTicket = g, max(r.res.MaxTicket, g.ticket.Number())
	switch {
	case r.cfg.Hold > 0:
		select {
		case <-ctx.Done():
		case <-time.After(r.cfg.Hold):
		}
	case value%yieldEvery == 0:
		runtime.Gosched()
	}
	r.res.Observed = value + 1
	if r.trace != nil {
		r.trace.leaves()
	}
	if !r.cfg.blind {
		r.inside.Add(-1)
	}
}
