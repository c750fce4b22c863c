package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/bench"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
)

const benchLong = `Measure how fast locks are here, beside the floor: the same raw requests on the same device with nothing in between.
What is compared takes turns in one run, so that a disk that becomes slower meanwhile does so for both.

  floor        write the own slot, read the slots of the hosts that exist, write the own slot
  uncontended  have a lock that nobody else wants and let it go, through bakeryd
  in_process   the same by a host in this process, without a socket
  handover     from a host's beginning to let go until another one has the lock, which has waited for it; its floor
               is one write and two reads
  handoff      how often in a second the lock passes between 8 clients of one host, while no other host wants it:
               through bakeryd, and in this process
  wrapper      bakeryctl lock NAME -- true from its start to its end, beside flock FILE true, and true alone

The bakeryd that runs is asked, and this process joins as one more host for in_process and handover, if it may open
the device and there is an id for it. With --device no bakeryd is needed: a child process serves as one for the time,
and this process joins twice. What cannot be measured is left out, and why is told.

All is done with a lock of its own, bakeryctl-bench-PID-RANDOM, which is removed at the end, also when interrupted.
Who is killed leaves it: bakeryctl rm. The floor is measured for root and the user of bakeryd only.

Exit codes:
  0      measured
  64     the command line is wrong
  66     the device or its lockspace is not usable, or the lock directory is full
  69     bakeryd is unreachable, or refuses
  77     this user may not: it is for root and the user of bakeryd
  128+N  signal N ended it`

const benchExample = `  bakeryctl bench
  bakeryctl bench --device ./demo.img
  bakeryctl bench --only handover --duration 10s
  bakeryctl bench --json | jq '.uncontended.p50_us, .floor.p50_us'`

func newBench(a *app) *cobra.Command {
	o := bench.Options{Duration: 2 * time.Second}
	duration := cli.WaitFlag{Limit: o.Duration}
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure how fast locks are here, beside what the device allows",
		Long:    benchLong,
		Example: benchExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Duration = duration.Limit
			if err := o.Check(cmd.Flags().Changed); err != nil {
				return cli.Usage("bench", "%w", err)
			}
			return a.bench(cmd.Context(), o, asJSON)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.Device, "device", "", "measure on the lockspace at `PATH`, without bakeryd")
	f.Var(&duration, "duration", "for how long each measurement runs, as `TIME`: seconds, or 300ms")
	f.StringSliceVar(&o.Only, "only", nil, "no others than `NAME`, as handover,wrapper; may be given again")
	f.BoolVar(&asJSON, "json", false, "show it as JSON")
	return cmd
}

// bench measures, and shows what came out.
func (a *app) bench(ctx context.Context, o bench.Options, asJSON bool) (err error) {
	inbox := signals.Open(signals.Inherited())
	defer func() { inbox.Close(err) }()
	ctx, listen := inbox.Interrupts(ctx)
	defer listen()
	o.Socket, o.Stderr = a.socket, a.stderr
	report, err := bench.Run(ctx, o)
	if err != nil {
		return err
	}
	if asJSON {
		return render.WriteJSON(a.stdout, report)
	}
	return bench.Show(a.stdout, report)
}

// newBenchHost is the child's command, for nobody else to use.
func newBenchHost(a *app) *cobra.Command {
	return &cobra.Command{
		Use: bench.HostCommand + " DEVICE", Hidden: true, Args: oneDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.Serve(cmd.Context(), args[0], a.socket, a.stdin, a.stdout, a.stderr)
		},
	}
}
