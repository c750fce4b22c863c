// Package probe determines whether a device is suitable for locks. From sysfs it finds the layers
// between this host and the medium, and rates them for writes that must be durable and must not
// hang. To that it adds the requirements of a lockspace on the device, a measurement by package
// daemon, and a check that two hosts see each other's writes. It also prints the result. It knows
// no flags.
//
// Begin with [Run]. examine.go collects the findings, disk.go reads sysfs, judge.go rates it.
package probe

import (
	"context"
	"errors"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
)

// Options select what to check in addition to what can be read.
type Options struct {
	Write  bool          // measure reads and writes
	Length time.Duration // of the measurement; 0: a number of requests
	Paths  []string      // other paths to the same disk
	With   string        // socket, id or name of another host for the coherence check; empty: none
	Socket string        // of bakeryd, for With
	Stderr io.Writer     // receives the progress line and instructions for the other host
}

// Result is the result of Run.
type Result struct {
	Fit  bool
	JSON any // a Report of one device, a SetReport of several
	Show func(io.Writer, render.Paint) error
}

// Run checks whether the devices at paths are suitable, each alone and several together. It returns an
// error if it could not check one of them. When SIGINT or SIGTERM has ended ctx, a second one ends the process,
// as the disk may hang.
func Run(ctx context.Context, paths []string, o Options) (Result, error) {
	defer context.AfterFunc(ctx, func() { signal.Reset(syscall.SIGINT, syscall.SIGTERM) })()
	var disks []*Report
	for _, path := range paths {
		r, err := runOne(ctx, path, o)
		if err != nil {
			return Result{}, err
		}
		disks = append(disks, r)
	}
	if len(disks) == 1 {
		disks[0].addMembers(disks)
		return Result{disks[0].Fit, disks[0], disks[0].show}, nil
	}
	all := together(disks)
	return Result{all.Fit, all, all.show}, nil
}

func runOne(ctx context.Context, path string, o Options) (*Report, error) {
	r, err := examine(ctx, thisSystem(), path)
	if err == nil && o.Write && r.opened {
		err = r.addWrites(ctx, o)
	}
	if err == nil && o.With != "" && r.opened {
		err = r.checkWith(ctx, o)
	}
	if err != nil {
		return nil, failure(ctx, err)
	}
	r.conclude()
	return r, nil
}

// failure returns err with its exit code and hint.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &cli.Failure{Code: cli.ExitInterrupted}
	}
	if f, failed := errors.AsType[*cli.Failure](err); failed {
		return f
	}
	f := ondevice.Failure(err)
	switch {
	case errors.Is(err, measure.ErrDisturbed), errors.Is(err, format.ErrProbed):
		f.Hint = "find and stop other writers of the device, on all hosts; if there are none, the device does not return what was written"
	case errors.Is(err, format.ErrOccupied):
		f.Hint = "use --write only on a lockspace or an empty device; without --write nothing is written"
	case errors.Is(err, api.ErrFull):
		f.Hint = "remove an unused lock, or format with more --locks: a probe needs a lock"
	case errors.Is(err, blockdev.ErrReadOnly):
		f.Hint = "omit --write: nothing is written then"
	}
	return f
}
