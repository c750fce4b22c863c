package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/probe"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
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

func newProbe(a *app) *cobra.Command {
	var o probe.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "probe DEVICE",
		Short:   "Find out whether a device is fit to hold locks",
		Long:    probeLong,
		Example: probeExample,
		Args:    oneDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := validateProbe(cmd, o); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.probe(ctx, args[0], o, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&o.Write, "write", false, "write too: on a lockspace, or where nothing is")
	flags.DurationVar(&o.Length, "for", 0, "with --write, measure for this `TIME` rather than a thousand requests of each kind")
	flags.StringArrayVar(&o.Paths, "path", nil, "with --write, another `PATH` to the same disk; may be given again")
	flags.StringVar(&o.With, "with", "", "check with another host, by `SOCKET|HOST`, that each sees the other's writes")
	flags.BoolVar(&asJSON, "json", false, "show it as JSON")
	a.colourFlag(cmd)
	return cmd
}

func validateProbe(cmd *cobra.Command, o probe.Options) error {
	switch changed := cmd.Flags().Changed; {
	case changed("for") && o.Length <= 0:
		return cli.Usage("probe", "--for %v: want more than 0", o.Length)
	case changed("for") && !o.Write:
		return cli.Usage("probe", "--for is for --write, which is not given")
	case changed("path") && !o.Write:
		return cli.Usage("probe", "--path is for --write, which is not given")
	case changed("with") && o.With == "":
		return cli.Usage("probe", "--with is empty")
	}
	return nil
}

func (a *app) probe(ctx context.Context, path string, o probe.Options, asJSON bool) error {
	o.Socket, o.Stderr = a.socket, a.stderr
	r, err := probe.Run(ctx, path, o)
	if err != nil {
		return err
	}
	if asJSON {
		err = render.WriteJSON(a.stdout, r)
	} else {
		err = probe.Show(a.stdout, r, a.paint())
	}
	if err == nil && !r.Fit {
		err = &cli.Failure{Code: cli.ExitConflict} // what it shows says why
	}
	return err
}
