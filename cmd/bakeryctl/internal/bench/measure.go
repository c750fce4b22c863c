package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/load"
)

const (
	uncontended = "uncontended" // an uncontended lock, through bakeryd
	inProcess   = "in_process"  // the same on a host in this process
	reacquire   = "reacquire"   // again and again by the same client of bakeryd
	handOver    = "handover"    // from one host to another
	handOff     = "handoff"     // from one client of a host to the next
	wrapper     = "wrapper"     // a command under a lock

	flockName = wrapper + ".flock" // a part of wrapper
)

// Names lists all measurements, in the order in which they are made.
var Names = []string{uncontended, inProcess, reacquire, handOver, handOff, wrapper}

// errNothing is returned when a measurement has counted nothing in the time given, and when no
// measurement that was asked for is possible.
var errNothing = errors.New("nothing could be measured")

// run makes the measurements. Those that lack their means are skipped.
type run struct {
	Options
	ctx      context.Context
	progress *render.Progress
	extra    time.Duration // how much longer than Duration a measurement runs that has counted nothing
	res      *Report

	toy                  load.Lock
	bakeryd              *host             // nil: none
	inside               []*host           // in this process
	locked, flock, alone command           // of wrapper
	why                  map[string]string // why a measurement lacks its means
}

func newRun(ctx context.Context, o Options) *run {
	return &run{Options: o, ctx: ctx, extra: 10 * time.Second, res: &Report{Skipped: []omission{}}, why: map[string]string{}}
}

// measure makes the measurements. It returns errNothing, the first error of a host or a command, or
// the cause of ctx's end.
func (r *run) measure() error {
	made, unable := 0, ""
	for _, step := range []struct {
		name string
		able bool
		run  func() error
	}{
		{uncontended, r.bakeryd != nil, r.uncontended},
		{inProcess, len(r.inside) > 0, r.inProcess},
		{reacquire, r.bakeryd != nil, r.reacquire},
		{handOver, r.pair() != nil, r.handOver},
		{handOff, r.bakeryd != nil, r.handOff},
		{wrapper, r.locked.path != "", r.wrapper},
	} {
		switch {
		case !r.wants(step.name):
		case !step.able:
			r.skip(step.name, r.why[step.name])
			unable += fmt.Sprintf("; %s: %s", step.name, r.why[step.name])
		default:
			made++
			r.progress.Begin("measuring "+step.name, r.Duration)
			if err := step.run(); err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
		}
	}
	if made == 0 {
		return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("%w%s", errNothing, unable)}
	}
	if r.res.Floor == nil && r.Only == nil {
		r.skip("floor", "it is measured together with uncontended, in_process and handover")
	}
	if r.res.Toy == nil && r.Only == nil {
		r.skip("toy", "it is measured together with uncontended, reacquire and handoff")
	}
	r.res.At = time.Now().Truncate(time.Second)
	return nil
}

func (r *run) skip(name, reason string) {
	r.res.Skipped = append(r.res.Skipped, omission{name, reason})
}

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
			return fmt.Errorf("%w within %v", errNothing, limit)
		}
	}
}
