package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/bench"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
)

func defineBench(a *app, cmd *cobra.Command) {
	o := bench.Options{Duration: 2 * time.Second}
	cmd.Long = `Measure the speed of locks on this machine, next to the floor: the same raw requests on the same device, without
bakeryd. Compared measurements take turns within one run, so that a change of the disk's speed affects both.

  floor        write the own slot, read the slots of the existing hosts, write the own slot
  toy          acquire and release a lock of a plain socket server in a child process, which only has a queue in memory:
               two round trips, the least that a socket costs on this machine
  uncontended  acquire and release a lock that no other client wants, through bakeryd and the disk; what bakeryd adds to
               the floor, compared with the toy
  in_process   the same by a host in this process, without a socket
  reacquire    acquire and release a lock again and again, through bakeryd, which may serve the same client without the
               disk; compared with the toy
  handover     time from the start of a release on one host until a waiting host has the lock; its floor
               is one write and two reads
  handoff      number of times per second that the lock passes between 1, 8 and 64 clients of one host, while no other
               host wants it, and how long a client waits: through bakeryd, compared with the toy, and 8 in this process
  wrapper      run time of bakeryctl lock NAME -- true, next to flock FILE true, and true alone

The running bakeryd is used. For in_process and handover this process joins as one more host, if it may open
the device and a host id is free. --device requires no bakeryd: a child process serves the lockspace during the
measurement, and this process joins twice. Measurements that are impossible are skipped, with the reason.

The measurement creates its own lock, bakeryctl-bench-PID-RANDOM, and removes it at the end, even if interrupted.
If bakeryctl is killed the lock remains: remove it with bakeryctl rm. Only root and the user of bakeryd can measure
the floor.

Exit codes:
  0      measured
  64     the command line is wrong
  66     the device or its lockspace is not usable, or the lock directory is full
  69     bakeryd is unreachable, or refuses; or nothing could be measured
  77     permission denied: only for root and the user of bakeryd
  128+N  signal N ended it`
	cmd.Example = `  bakeryctl bench
  bakeryctl bench --device ./demo.img
  bakeryctl bench --only handover --duration 10s
  bakeryctl bench --json | jq '.uncontended.p50_us, .floor.p50_us'
  bakeryctl bench --json --only handoff | jq .handoff.per_second`
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := o.Check(cmd.Flags().Changed); err != nil {
			return cli.Usage("bench", "%w", err)
		}
		inbox := signals.Open(signals.Inherited())
		defer func() { inbox.Close(err) }()
		ctx, listen := inbox.Interrupts(cmd.Context())
		defer listen()
		o.Socket, o.Stderr = a.socket, a.stderr
		report, err := bench.Run(ctx, o)
		if err != nil {
			return err
		}
		return a.print(report, func(w io.Writer) { _ = bench.Show(w, report) })
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.Devices, "device", nil, "measure on the lockspace at `PATH`, without bakeryd; repeated for several disks")
	f.Var((*cli.Wait)(&o.Duration), "duration", "run each measurement for `TIME`: seconds, or 300ms")
	f.StringSliceVar(&o.Only, "only", nil, "measure only `NAME`, such as handover,wrapper; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(bench.Names, cobra.ShellCompDirectiveNoFileComp)) // no error: the flag exists
	f.BoolVar(&a.json, "json", false, "print JSON")
}

// defineBenchHost defines the hidden command of the child process that is a bakeryd.
func defineBenchHost(a *app, cmd *cobra.Command) {
	cmd.Hidden = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return bench.Serve(cmd.Context(), args, a.socket, a.stdin, a.stdout, a.stderr)
	}
}

// defineBenchToy defines that of the child process that is the toy.
func defineBenchToy(a *app, cmd *cobra.Command) {
	cmd.Hidden = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return bench.ServeToy(a.socket, a.stdin, a.stdout) }
}
