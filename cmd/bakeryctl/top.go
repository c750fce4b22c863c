package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/top"
)

// The minimum and maximum of --interval.
const leastTop, mostTop = 100 * time.Millisecond, time.Hour

// topOptions are the options of the command line.
type topOptions struct {
	device   string // empty: ask bakeryd
	interval time.Duration
	once     bool
}

func newTop(a *app) *cobra.Command {
	o := topOptions{interval: time.Second}
	interval := cli.WaitFlag{Limit: o.interval}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch hosts, locks and events, live, in a terminal",
		Long: `Watch the hosts of the lockspace and their leases, the locks with their holders and waiters, the latency of the device, and
the last events of this host. The first lines say that all is well, or what is wrong and what to do about it.

Keys:  q, ctrl-c  quit             up, down, page up, page down, home, end  select
       enter      details          tab  hosts or locks
       /          filter: names of locks and hosts, commands, "pid 7314"
       s          sort locks by need, by name, by number of waiters, by age
       p          pause            ?    help

top asks bakeryd for the data of the status page: any number of viewers cause no more reads of the disk than one. While
bakeryd does not answer, top says so and shows the last known data. With --device the device is read, without joining and
without bakeryd, for at most a tenth of the time; a silent host shows after half a lease, and there are no events.`,
		Example: `  bakeryctl top
  bakeryctl top --interval 5s
  bakeryctl top --device /dev/mapper/locks
  bakeryctl top --once | mail -s locks root`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.interval = interval.Limit
			if err := o.check(cmd.Flags().Changed); err != nil {
				return cli.Usage("top", "%w", err)
			}
			source := top.Bakeryd(a.socket)
			if o.device != "" {
				source = top.Device(o.device, ondevice.Status)
			}
			if o.once {
				return top.Once(cmd.Context(), source, a.stdout, a.paint())
			}
			return top.Run(cmd.Context(), source, top.Terminal{In: a.stdin, Out: a.stdout, Paint: a.paint(), Every: o.interval})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.device, "device", "", "read this `PATH` instead of asking bakeryd")
	f.Var(&interval, "interval", "ask every `TIME`: seconds, such as 0.5, or 300ms")
	f.BoolVar(&o.once, "once", false, "print all hosts and locks once, and exit")
	a.colourFlag(cmd)
	return cmd
}

func (o *topOptions) check(given func(flag string) bool) error {
	switch {
	case given("device") && o.device == "":
		return errors.New("--device is empty, want the path of a lockspace")
	case o.interval < leastTop || o.interval > mostTop:
		return fmt.Errorf("--interval %v, want %v to %v", o.interval, leastTop, mostTop)
	case o.once && given("interval"):
		return errors.New("--once and --interval exclude each other")
	}
	return nil
}
