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

// The interval is from leastTop to mostTop.
const leastTop, mostTop = 100 * time.Millisecond, time.Hour

// topOptions are what the command line says.
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
		Short: "Watch hosts, locks and what happens, live, in a terminal",
		Long: `Watch the hosts of the lockspace and their leases, the locks, who holds them and who waits, how long the device takes, and
the last events of this host. First it says whether all is well, or what is not and what to do about it.

Keys:  q, ctrl-c  quit             up, down, page up, page down, home, end  select
       enter      details of it    tab  hosts, or locks
       /          only what some words are about: names of locks and hosts, commands, "pid 7314"
       s          sort locks by need, by name, by number of waiters, by age
       p          pause            ?    help

bakeryd is asked, for what the status page asks for: however many look, the disk is read no more often than for one. When
bakeryd is gone that is said, with what was known last, until it is back. With --device the device is read, without joining
and without bakeryd, a tenth of the time at most; that a host is silent shows there after a while, and there are no events.`,
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
	f.Var(&interval, "interval", "ask every `TIME`: seconds, as 0.5, or 300ms")
	f.BoolVar(&o.once, "once", false, "print it once, with all hosts and locks, and end")
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
		return errors.New("--once is once: it has no --interval")
	}
	return nil
}
