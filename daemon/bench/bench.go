// Package bench measures how fast locks are, next to the least that the device allows: the floor.
// It knows hosts by the interface [Host], and how to reach one by bakeryd's socket or in this
// process; it never knows a flag or a terminal.
//
// Measurements that are compared alternate in small batches within one run, so that a machine or a
// disk that becomes slower affects both. Begin with [Run]. paired.go measures the uncontended lock
// and its floor, relay.go the hand-over between hosts, handoff.go that between clients of one host,
// commands.go the start of a command under a lock.
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/layout"
)

// Name is the name of a measurement.
type Name string

// The measurements, in the order in which Run makes them.
const (
	Uncontended Name = "uncontended" // an uncontended lock, through bakeryd
	InProcess   Name = "in_process"  // the same on a host in this process
	HandOver    Name = "handover"    // from one host to another
	HandOff     Name = "handoff"     // from one client of a host to the next
	Wrapper     Name = "wrapper"     // a command under a lock
)

// Names lists all measurements.
var Names = []Name{Uncontended, InProcess, HandOver, HandOff, Wrapper}

// Host is a host of the lockspace. Its clients and its floor use one lock.
type Host interface {
	// Client returns a new client.
	Client() Client
	// Floor makes the host issue the raw requests of an uncontended lock, rounds times.
	Floor(ctx context.Context, rounds int) (*measuring.Floor, error)
	// String returns a name such as "bakeryd".
	String() string
}

// Client acquires and releases the lock. One goroutine uses it.
type Client interface {
	// Lock blocks until it has acquired the lock, or until ctx ends, and then returns the cause.
	Lock(ctx context.Context) (layout.Ticket, error)
	Unlock() error
}

// Config says what to measure. Measurements that lack their means are skipped.
type Config struct {
	Bakeryd  Host            // nil: none
	Inside   []Host          // in this process
	Commands *Commands       // nil: none
	Duration time.Duration   // of each measurement; more than 0
	Only     []Name          // nil: all
	Why      map[Name]string // why a measurement lacks its means

	Begun func(name Name, lasts time.Duration) // called when a measurement begins; may be nil
}

// Result is what was measured; a skipped measurement is nil. JSON has times in whole microseconds.
type Result struct {
	Slots       int        `json:"-"` // slots that one read covers; 0 if none was made
	Floor       *Floor     `json:"floor,omitempty"`
	Uncontended *Lock      `json:"uncontended,omitempty"`
	InProcess   *Lock      `json:"in_process,omitempty"`
	HandOver    *Relay     `json:"handover,omitempty"`
	HandOff     *HandOffs  `json:"handoff,omitempty"`
	Wrapper     *Wrapped   `json:"wrapper,omitempty"`
	Skipped     []Omission `json:"skipped"` // never nil
}

// Omission is a skipped measurement.
type Omission struct {
	Name   Name   `json:"name"`
	Reason string `json:"reason"`
}

var (
	// ErrInvalid is returned when Config has no host or no duration.
	ErrInvalid = errors.New("invalid measurement")
	// ErrNothing is returned when a measurement has counted nothing in the time given.
	ErrNothing = errors.New("nothing could be measured")
)

// repeat runs batches of a measurement until Duration is over and at least one time was counted.
func (r *run) repeat(counted *latency.Recorder, batch func() error) error {
	limit := r.Duration + r.extra
	for begun := time.Now(); ; {
		if err := batch(); err != nil {
			return err
		}
		switch spent := time.Since(begun); {
		case spent >= r.Duration && counted.Count() > 0:
			return nil
		case spent >= limit:
			return fmt.Errorf("%w within %v", ErrNothing, limit)
		}
	}
}

// run is the state of one Run.
type run struct {
	Config
	extra time.Duration // how much longer than Duration a measurement runs that has counted nothing
	ctx   context.Context
	res   *Result
}

// Run makes the measurements. It returns ErrInvalid, ErrNothing, the first error of a host or a
// command, or the cause of ctx's end.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if cfg.Duration <= 0 {
		return nil, fmt.Errorf("%w: for %v, want more than 0", ErrInvalid, cfg.Duration)
	}
	if cfg.Bakeryd == nil && len(cfg.Inside) == 0 {
		return nil, fmt.Errorf("%w: no host", ErrInvalid)
	}
	r := &run{Config: cfg, extra: 10 * time.Second, ctx: ctx, res: &Result{Skipped: []Omission{}}}
	for _, step := range []struct {
		name Name
		able bool
		run  func() error
	}{
		{Uncontended, cfg.Bakeryd != nil, func() (err error) { r.res.Uncontended, err = r.paired(cfg.Bakeryd); return err }},
		{InProcess, len(cfg.Inside) > 0, func() (err error) { r.res.InProcess, err = r.paired(cfg.Inside[0]); return err }},
		{HandOver, r.pair() != nil, r.handOver},
		{HandOff, true, r.handOff},
		{Wrapper, cfg.Commands != nil, r.wrapper},
	} {
		switch {
		case cfg.Only != nil && !slices.Contains(cfg.Only, step.name):
			r.skip(step.name, "not asked for")
		case !step.able:
			r.skip(step.name, cfg.Why[step.name])
		default:
			if cfg.Begun != nil {
				cfg.Begun(step.name, cfg.Duration)
			}
			if err := step.run(); err != nil {
				return nil, fmt.Errorf("%s: %w", step.name, err)
			}
		}
	}
	if r.res.Floor == nil {
		r.skip("floor", "it is measured together with uncontended, in_process and handover")
	}
	return r.res, nil
}

func (r *run) skip(name Name, reason string) {
	r.res.Skipped = append(r.res.Skipped, Omission{name, reason})
}
