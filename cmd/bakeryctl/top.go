package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/top"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// The minimum and maximum of --interval.
const leastTop, mostTop = 100 * time.Millisecond, time.Hour

func defineTop(a *app, cmd *cobra.Command) {
	var once bool
	interval := time.Second
	cmd.Long = `Watch the hosts of the lockspace and their leases, the locks with their holders and waiters, the latency of the device, and
the last events of this host. The first lines say that all is well, or what is wrong and what to do about it.

Keys:

    q, ctrl-c  quit      up, down, page up, page down, home, end  select
    enter      details   tab  hosts or locks
    /          filter: names of locks and hosts, commands, "pid 7314"
    s          sort locks by need, by name, by number of waiters, by age
    p          pause     ?    help

top asks bakeryd for the data of the status page: any number of viewers cause no more reads of the disk than one. While
bakeryd does not answer, top says so and shows the last known data. With --device the device is read, without joining and
without bakeryd, for at most a tenth of the time; a silent host shows after half a lease, and there are no events.`
	cmd.Example = `  bakeryctl top
  bakeryctl top --interval 5s
  bakeryctl top --device /dev/mapper/locks
  bakeryctl top --once | mail -s locks root`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch given := cmd.Flags().Changed; {
		case interval < leastTop || interval > mostTop:
			return cli.Usage("top", "--interval %v: want %v to %v", interval, leastTop, mostTop)
		case once && given("interval"):
			return cli.Usage("top", "--once and --interval exclude each other")
		}
		ctx := cmd.Context()
		if !once { // the screen shows it
			p := cli.PatienceOf(ctx)
			ctx = cli.Patience{Limit: p.Limit}.With(ctx)
		}
		source := top.Bakeryd(a.socket)
		if len(a.devices) > 0 {
			source = top.Device(a.devices, func(paths []string) (*report.Report, error) { return ondevice.Status(ctx, paths) })
		}
		if once {
			return top.Once(ctx, source, a.stdout, a.paint())
		}
		return top.Run(ctx, source, top.Terminal{In: a.stdin, Out: a.stdout, Paint: a.paint(), Every: interval})
	}
	f := cmd.Flags()
	f.StringArrayVar(&a.devices, "device", nil, "read the lockspace at `PATH` instead of asking bakeryd; repeated for several disks")
	f.Var((*cli.Wait)(&interval), "interval", "ask every `TIME`: seconds, such as 0.5, or 300ms")
	f.BoolVar(&once, "once", false, "print all hosts and locks once, and exit")
	a.colourFlag(cmd)
}
