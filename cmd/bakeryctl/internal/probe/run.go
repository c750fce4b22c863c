// Package probe finds out whether a device is fit to hold locks: it puts together what package
// blockdev/probe finds, what a lockspace on the device asks for, what a measurement by package
// daemon shows, and whether two hosts see each other's writes; and it shows that. It knows no
// flags.
package probe

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/probe"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
)

// Options say what to find out beside what can be read.
type Options struct {
	Write  bool          // measure, by writing too
	Length time.Duration // of the measurement; 0: a number of requests
	Paths  []string      // others to the same disk
	With   string        // the socket, id or name of another host to check with; empty: none
	Socket string        // of bakeryd, for with
	Stderr io.Writer     // gets the line of progress, and what is to be done on the other host
}

// Run finds out whether the device at path is fit. An error says why that could not be found out.
func Run(ctx context.Context, path string, o Options) (*Report, error) {
	r, err := examine(ctx, probe.New(), path)
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

// failure finds the exit code and the remedy for an error.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &cli.Failure{Code: cli.ExitSignal + int(syscall.SIGINT)}
	}
	var f *cli.Failure
	if errors.As(err, &f) {
		return f
	}
	f = ondevice.Failure(err)
	switch {
	case errors.Is(err, measure.ErrDisturbed), errors.Is(err, format.ErrProbed):
		f.Hint = "find out who else writes to the device, from any host; if nobody does, it does not return what was written"
	case errors.Is(err, format.ErrOccupied):
		f.Hint = "--write wants a lockspace, or a device on which nothing is; without --write nothing is written"
	case errors.Is(err, api.ErrFull):
		f.Hint = "the lock that a probe writes has no room; format with more --locks"
	case errors.Is(err, blockdev.ErrReadOnly):
		f.Hint = "without --write nothing is written"
	}
	return f
}
