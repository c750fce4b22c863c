package main

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/stress"
	"github.com/bakeryd/bakeryd/cmd/internal/flags"
	"github.com/bakeryd/bakeryd/layout"
)

// debugHold is the length of critical sections with --debug, so that workers wait for each other.
const debugHold = time.Millisecond

func defineStress(a *app, cmd *cobra.Command) {
	o := stress.Options{Name: "bakeryctl-stress", Stderr: a.stderr}
	o.Workers, o.Iterations = 4, 1000
	var debug bool
	cmd.Long = `Make workers acquire a lock repeatedly. Under the lock each worker increments a counter that has no other protection,
so two workers inside at once lose a count. At the end stress compares the counter with the expected value. The lock is

  memory   in the memory of this process: every worker runs the same protocol as bakeryd on a disk, as a host of
           its own, with machine words as slots. With --debug it shows every step of the bakery algorithm.
  PATH     on a lockspace: every worker joins as a host, so enough host ids must be free. A lockspace is created
           only in a file that does not exist; the file remains. The path must contain a slash.
  daemon   of bakeryd: the workers are its clients. Several --socket share the workers.

A lock that stress has created is removed at the end, even if stress is interrupted. It remains if it has a value or
other clients use it then, if bakeryd refuses, or if stress is killed: remove it with bakeryctl rm. If several stress
run at once with one --name, it may remain without a message.

Iterations are those of each worker. Max ticket is the largest number drawn. In memory it is Lamport's
number, counted from 1; on a disk it starts at the clock.

With --max-ticket N all numbers stay below N. When they approach N, no worker starts to choose until all
others have reset their numbers to zero; then numbers start at 1 again. bakeryd never does this: its numbers last
beyond the year 2110, and a restart would decrease the fencing tokens.

Exit codes:
  0    passed
  1    the counter is wrong, two workers were inside at once, tokens decreased, or stress was interrupted:
       the results until then are printed
  64   the command line is wrong
  66   the device or its lockspace is not usable
  69   bakeryd is unreachable, or refuses
  77   permission denied: this user may not use the lock`
	cmd.Example = `  # Show each step: which worker waits for which.
  bakeryctl stress --debug --workers 3 --iterations 5

  # Sixteen million critical sections, with 16-bit numbers.
  bakeryctl stress --workers 16 --iterations 1000000 --max-ticket 65536

  # Four hosts on a file, or on a formatted device.
  bakeryctl stress --backend ./demo.img --workers 4 --iterations 50

  # Clients of two daemons.
  bakeryctl stress --backend daemon --socket a.sock --socket b.sock`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		given := cmd.Flags().Changed
		if debug {
			o.Debug = a.stderr
			if !given("hold") {
				o.Hold = debugHold
			}
		}
		if err := o.Check(given); err != nil {
			return cli.Usage("stress", "%w", err)
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		context.AfterFunc(ctx, stop) // a second signal ends this process
		report, err := stress.Run(ctx, o)
		if report == nil {
			return err
		}
		return cmp.Or(err, a.judge(report.Passed, report, report.Show))
	}
	f := cmd.Flags()
	f.StringVar(&o.Backend, "backend", "memory", "where the lock is: memory, daemon, or the `PATH` of a lockspace")
	flags.Int(f, &o.Workers, "workers", "", 1, layout.MaxHosts, "use `N` workers")
	flags.Int(f, &o.Iterations, "iterations", "", 1, math.MaxInt, "acquire the lock `N` times per worker")
	flags.Int(f, &o.MaxTicket, "max-ticket", "", 1, stress.MaxMaxTicket, "keep all numbers below `N`, at most 65536; in memory only")
	f.Var((*cli.Wait)(&o.Hold), "hold", "stay inside for `TIME`: seconds, or 5ms; with --debug 1ms unless given (default 0)")
	f.StringVar(&o.Name, "name", o.Name, "`NAME` of the lock on a lockspace")
	f.StringArrayVar(&o.Sockets, "socket", []string{call.DefaultSocket()}, "`PATH` of a bakeryd's socket; also from BAKERY_SOCKET; may be repeated")
	f.BoolVar(&debug, "debug", false, "print each step of the workers on standard error")
	f.BoolVar(&a.json, "json", false, "print the result as JSON")
}
