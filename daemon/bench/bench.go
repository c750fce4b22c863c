// Package bench measures how fast locks are, beside the least that the device allows: the floor. It knows hosts by
// what they do ([Host]), and how to reach one by bakeryd's socket or in this process; it never knows a flag or a
// terminal.
//
// What is compared is measured in turns of a few rounds each, in one run, so that a machine or a disk that becomes
// slower meanwhile does so for both. Begin with [Run]; paired.go is the uncontended lock and its floor, relay.go the
// hand-over between hosts, handoff.go that between clients of one, commands.go the start of a command under a lock.
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// Name is the name of a measurement.
type Name string

// The measurements, in the order in which they are made.
const (
	Uncontended Name = "uncontended" // a lock that nobody else wants, of bakeryd
	InProcess   Name = "in_process"  // the same of a host in this process
	HandOver    Name = "handover"    // from one host to another
	HandOff     Name = "handoff"     // from one client of a host to the next
	Wrapper     Name = "wrapper"     // a command under a lock
)

// Names are all of them.
var Names = []Name{Uncontended, InProcess, HandOver, HandOff, Wrapper}

// Host is a host of the lockspace, by whatever way it is reached. Its clients and its floor are those of one lock.
type Host interface {
	// Client returns a new client.
	Client() Client
	// Floor has the host issue the raw requests of an uncontended lock so many times, and tells each round.
	Floor(ctx context.Context, rounds int, each func(Round)) error
	// Slots is how many are read at once, as of the last Floor.
	Slots() int
	// String says what it is: bakeryd, say.
	String() string
}

// Client takes the lock and lets it go. One goroutine uses it.
type Client interface {
	// Lock waits for the lock, or for the end of ctx, whose cause it returns then.
	Lock(ctx context.Context) (layout.Ticket, error)
	Unlock() error
}

// Round is how long the requests of a host took that found the lock free and let it go again.
type Round struct{ Claim, Look, Release time.Duration }

func (r Round) whole() time.Duration { return r.Claim + r.Look + r.Release }

// Config is what is to be measured. What it has no means for is left out.
type Config struct {
	Bakeryd  Host            // nil: none
	Inside   []Host          // in this process
	Commands *Commands       // nil: none
	Duration time.Duration   // of each measurement; more than 0
	Only     []Name          // nil: all
	Why      map[Name]string // why there are no means

	Begun func(name Name, lasts time.Duration) // is told of each measurement that begins; may be nil
}

// Result is what was measured; what was left out is nil. Times are in whole microseconds as JSON.
type Result struct {
	Slots       int        `json:"-"` // that a read covers; 0: there was none
	Floor       *Floor     `json:"floor,omitempty"`
	Uncontended *Lock      `json:"uncontended,omitempty"`
	InProcess   *Lock      `json:"in_process,omitempty"`
	HandOver    *Relay     `json:"handover,omitempty"`
	HandOff     *HandOffs  `json:"handoff,omitempty"`
	Wrapper     *Wrapped   `json:"wrapper,omitempty"`
	Skipped     []Omission `json:"skipped"` // never nil
}

// Omission is a measurement that was left out.
type Omission struct {
	Name   Name   `json:"name"`
	Reason string `json:"reason"`
}

var (
	// ErrInvalid is returned when there is nothing to measure by.
	ErrInvalid = errors.New("invalid measurement")
	// ErrNothing is returned when what is to be measured does not come about.
	ErrNothing = errors.New("nothing could be measured")
)

// patience is for how much longer than asked for a measurement is tried that has come to nothing so far.
const patience = 10 * time.Second

// repeat does turns of a measurement until its time is over and it has counted something.
func (r *run) repeat(counted *Times, turn func() error) error {
	return r.repeatFor(counted, r.Duration+patience, turn)
}

func (r *run) repeatFor(counted *Times, limit time.Duration, turn func() error) error {
	for begun := time.Now(); ; {
		if err := turn(); err != nil {
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

// run is a run under way.
type run struct {
	Config
	ctx context.Context
	res *Result
}

// Run measures. It returns ErrInvalid, the first error of a host or a command, or the cause of ctx's end.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if cfg.Duration <= 0 {
		return nil, fmt.Errorf("%w: for %v, want more than 0", ErrInvalid, cfg.Duration)
	}
	if cfg.Bakeryd == nil && len(cfg.Inside) == 0 {
		return nil, fmt.Errorf("%w: no host", ErrInvalid)
	}
	r := &run{Config: cfg, ctx: ctx, res: &Result{Skipped: []Omission{}}}
	for _, step := range []struct {
		name Name
		able bool
		run  func() error
	}{
		{Uncontended, cfg.Bakeryd != nil, r.uncontended},
		{InProcess, len(cfg.Inside) > 0, r.inProcess},
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
		r.skip("floor", "it is measured beside uncontended, in_process and handover")
	}
	return r.res, nil
}

func (r *run) skip(name Name, reason string) {
	r.res.Skipped = append(r.res.Skipped, Omission{name, reason})
}
