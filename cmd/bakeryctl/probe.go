package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/probe"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
	"github.com/bakeryd/bakeryd/daemon/text"
)

const probeLong = `Find out whether a device is fit to hold locks. Every finding has a verdict: ok, warning, unfit, or unknown, which
says that it could not be found out here; and what to do about it.

Without more nothing is written, nor opened for writing. What a device means for hosts that hang or die is told
relative to the lease of the lockspace that is on it, or to one of 30 s.

With --write durable writes and reads are timed, it is looked whether a second opening of the device, and every
--path, shows each write at once, and a lease is suggested. It takes a lockspace, which bakeryctl joins as a host of
its own for the time, to write its own slot of the lock "probe"; that lock stays. Or it takes a device on which nothing
is: the first block is written and, at the end, is zeroes again. Anything else is refused. A probe that is killed may
leave that block written; format says so then, and the next probe --write clears it.

With --with two hosts check through the disk alone that each sees what the other writes, at once: what a write-back
cache on a host would break. SOCKET (with a slash in it) is that of another bakeryd on this machine. HOST is the id or
name of another host, where the same is to be run for this one within a minute. Two locks are made for it, and stay.

Exit codes:
  0   fit, maybe with warnings
  1   unfit
  64  the command line is wrong
  66  the device cannot be opened, or not be written without harm
  69  bakeryd cannot be reached, or the other host was not met
  77  --with is for root and the user of bakeryd`

const probeExample = `  bakeryctl probe /dev/mapper/locks
  bakeryctl probe /dev/mapper/locks --write
  bakeryctl probe /dev/sdb --write --for 10m --path /dev/sdc    # two paths to one LUN
  bakeryctl probe /dev/mapper/locks --with db2                  # and on db2: --with db1
  bakeryctl probe /dev/mapper/locks --json | jq '.findings[] | select(.verdict != "ok")'`

type probeOptions struct {
	write  bool
	length time.Duration
	paths  []string
	with   string
	json   bool
}

func newProbe(a *app) *cobra.Command {
	var o probeOptions
	cmd := &cobra.Command{
		Use:     "probe DEVICE",
		Short:   "Find out whether a device is fit to hold locks",
		Long:    probeLong,
		Example: probeExample,
		Args:    oneDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(cmd); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.probe(ctx, args[0], o)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&o.write, "write", false, "write too: on a lockspace, or where nothing is")
	flags.DurationVar(&o.length, "for", 0, "with --write, measure for this `TIME` rather than a thousand requests of each kind")
	flags.StringArrayVar(&o.paths, "path", nil, "with --write, another `PATH` to the same disk; may be given again")
	flags.StringVar(&o.with, "with", "", "check with another host, by `SOCKET|HOST`, that each sees the other's writes")
	flags.BoolVar(&o.json, "json", false, "show it as JSON")
	a.colourFlag(cmd)
	return cmd
}

func probeUsage(format string, args ...any) *failure {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...), hint: "see bakeryctl probe --help"}
}

func (o *probeOptions) validate(cmd *cobra.Command) error {
	switch changed := cmd.Flags().Changed; {
	case changed("for") && o.length <= 0:
		return probeUsage("--for %v: want more than 0", o.length)
	case changed("for") && !o.write:
		return probeUsage("--for is for --write, which is not given")
	case changed("path") && !o.write:
		return probeUsage("--path is for --write, which is not given")
	case changed("with") && o.with == "":
		return probeUsage("--with is empty")
	}
	return nil
}

func (a *app) probe(ctx context.Context, path string, o probeOptions) error {
	r, err := examine(ctx, probe.New(), path)
	if err != nil {
		return probeFailure(ctx, err)
	}
	if o.write && r.opened {
		if err := a.probeWrite(ctx, r, o); err != nil {
			return probeFailure(ctx, err)
		}
	}
	if o.with != "" && r.opened {
		if err := a.probeWith(ctx, r, o.with); err != nil {
			return probeFailure(ctx, err)
		}
	}
	r.conclude()
	show := showProbe
	if o.json {
		show = writeProbeJSON
	}
	if err := show(a.stdout, r, a.paint()); err != nil {
		return err
	}
	if !r.Fit {
		return &failure{code: exitConflict} // what it shows says why
	}
	return nil
}

// probeWrite measures the device, and adds what that means.
func (a *app) probeWrite(ctx context.Context, r *probeReport, o probeOptions) (err error) {
	p := a.progress()
	defer p.stop()
	p.begin("opening "+text.Printable(r.Device), 0)
	po := measure.Options{For: o.length, Counter: p.counter()}
	for _, path := range append([]string{r.Device}, o.paths...) {
		other, err := blockdev.Open(path, blockdev.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		defer other.Close()
		if err := r.sameDisk(other); err != nil {
			return err
		}
		po.Others = append(po.Others, other)
	}
	if r.space != nil {
		cfg := daemon.Config{Device: r.Device, Logger: slog.New(slog.NewTextHandler(p.log(a.stderr), &slog.HandlerOptions{Level: slog.LevelError}))}
		r.Measured, err = daemon.ProbeLockspace(ctx, cfg, po)
	} else {
		r.Measured, err = probeVacant(ctx, r.Device, po)
	}
	if err != nil {
		return err
	}
	r.Findings = append(r.Findings, r.Measured.JudgeLatency(r.currentLease()))
	for i, s := range r.Measured.Sights {
		r.Findings = append(r.Findings, sightFinding(s, i == 0))
	}
	return nil
}

func probeVacant(ctx context.Context, path string, o measure.Options) (*measure.Measurement, error) {
	dev, err := blockdev.Open(path, blockdev.Options{Exclusive: true})
	if err != nil {
		return nil, err
	}
	m, err := format.ProbeVacant(ctx, dev, o)
	return m, errors.Join(err, dev.Close())
}

// sameDisk refuses another path that plainly leads to another disk.
func (r *probeReport) sameDisk(other blockdev.Device) error {
	no := func(why string) error {
		return probeUsage("%s is another disk than %s: %s", other.Info().Path, r.Device, why)
	}
	sb, _, err := lockspace.FindLockspace(other)
	switch {
	case other.Info().Size != r.Size:
		return no(fmt.Sprintf("%v, not %v", text.Bytes(other.Info().Size), text.Bytes(r.Size)))
	case r.space == nil && err == nil:
		return no("it holds lockspace " + sb.UUID.String())
	case r.space != nil && errors.Is(err, lockspace.ErrNoLockspace):
		return no("it holds no lockspace")
	case r.space != nil && err != nil:
		return err
	case r.space != nil && sb.UUID != r.space.UUID:
		return no("it holds lockspace " + sb.UUID.String())
	}
	return nil
}

// sightFinding says what it means how writes looked by another way to the disk; own: by another opening of the device.
func sightFinding(s measure.Sight, own bool) probe.Finding {
	f := probe.Finding{ID: "visibility", Verdict: probe.OK}
	way := "by " + text.Printable(s.Path)
	if own {
		way = "by a second opening of the device"
	}
	switch {
	case s.Never:
		f.Verdict = probe.Unfit
		f.Detail = fmt.Sprintf("a write is not seen %s, not even later", way)
		f.Remedy = "is it the same disk? Then switch the cache off that is on this path"
	case s.Stale > 0:
		f.Verdict, f.Remedy = probe.Unfit, "switch the cache off that is on this path"
		f.Detail = fmt.Sprintf("%d of %d writes were not seen at once %s", s.Stale, s.Writes, way)
	default:
		f.Detail = fmt.Sprintf("each of %d writes was seen at once %s", s.Writes, way)
	}
	return f
}

// probeFailure finds the exit code and the remedy for an error.
func probeFailure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &failure{code: exitSignal + int(syscall.SIGINT)}
	}
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	f = &failure{code: exitNoDevice, err: err, hint: deviceHint(err)}
	switch {
	case errors.Is(err, measure.ErrDisturbed), errors.Is(err, format.ErrProbed):
		f.hint = "find out who else writes to the device, from any host; if nobody does, it does not return what was written"
	case errors.Is(err, format.ErrOccupied):
		f.hint = "--write wants a lockspace, or a device on which nothing is; without --write nothing is written"
	case errors.Is(err, api.ErrFull):
		f.hint = "the lock that a probe writes has no room; format with more --locks"
	case errors.Is(err, blockdev.ErrReadOnly):
		f.hint = "without --write nothing is written"
	}
	return f
}

// isSocket tells a path from a host's id or name.
func isSocket(with string) bool { return strings.Contains(with, "/") }
