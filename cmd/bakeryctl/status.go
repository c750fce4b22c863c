package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/top"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

func defineStatus(a *app, cmd *cobra.Command) {
	cmd.Long = `Show the hosts of the lockspace, the locks, their holders and waiters.

Without --device bakeryd is asked. With --device the device is read, without joining
and without bakeryd; this does not show whether a host is alive.

STATE is "held, weak" if bakeryd cannot stop all processes of a command of this host,
because it has no cgroup. The field containment of --json states the reason. STATE is
"held, orphan" if the bakeryctl of a lock has ended and its command, or processes that
the command left, keep the lock. PID is then the first of these processes, and otherwise
bakeryctl.`
	cmd.Example = `  bakeryctl status
  bakeryctl status --json | jq '.locks[] | select(.holders != [])'
  bakeryctl status --device /dev/mapper/locks`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		status, err := a.status(cmd.Context())
		if err != nil {
			return err
		}
		return a.print(status, func(w io.Writer) { show.Show(w, status, time.Now(), a.paint()) })
	}
	a.colourFlag(cmd)
	cmd.Flags().StringVar(&a.device, "device", "", "read this `PATH` instead of asking bakeryd")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

// status reads the device, or asks bakeryd.
func (a *app) status(ctx context.Context) (*report.Report, error) {
	if a.device != "" {
		return ondevice.Status(a.device)
	}
	status, err := show.Ask(ctx, a.socket)
	return status, call.OrDevice(err)
}

func defineHosts(a *app, cmd *cobra.Command) {
	cmd.Long = `Show the hosts of the lockspace, their state, and when they last renewed their
lease.

  live     renews its lease
  silent   has not renewed as expected; if it does not renew, it is declared dead
           and its locks pass to the waiters
  dead     was declared dead: its locks are free
  left     has left the lockspace
  joining  not live yet; it holds nothing

VERDICTS are what a host publishes about others: dead, wish (asked to leave), or
forgotten (dead, and its id free), and the id. It does so until they return.

Without --device bakeryd is asked. With --device the device is read, without
joining and without bakeryd; this does not show whether a host is silent.`
	cmd.Example = `  bakeryctl hosts
  bakeryctl hosts --json | jq '.hosts[] | select(.health == "silent")'
  bakeryctl hosts --device /dev/mapper/locks`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		status, err := a.status(cmd.Context())
		if err != nil {
			return err
		}
		hosts := struct {
			ThisHost *report.ThisHost `json:"this_host"`
			Hosts    []report.Host    `json:"hosts"`
		}{status.ThisHost, status.Hosts}
		return a.print(hosts, func(w io.Writer) { show.HostTable(w, status, a.paint()) })
	}
	a.colourFlag(cmd)
	cmd.Flags().StringVar(&a.device, "device", "", "read this `PATH` instead of asking bakeryd")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

func defineLocks(a *app, cmd *cobra.Command) {
	cmd.Long = `List the locks in the lock directory: their names, their numbers, which are their
places on the disk, and their permits, the number of hosts that may hold each at
once. bakeryctl status shows the holders.

Without --device bakeryd is asked. With --device the device is read, without
joining and without bakeryd.`
	cmd.Example = `  bakeryctl locks
  bakeryctl locks --json | jq -r '.locks[] | select(.permits > 1).name'
  bakeryctl locks --device /dev/mapper/locks`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := a.listLocks(cmd.Context())
		if err != nil {
			return err
		}
		err = a.print(list, func(w io.Writer) {
			if len(list.Locks) > 0 {
				fmt.Fprintf(w, "NAME\tNUMBER\tPERMITS\n")
			}
			for _, l := range list.Locks {
				fmt.Fprintf(w, "%s\t%d\t%d\n", text.Printable(l.Name), l.Lock, l.Permits)
			}
		})
		if err != nil || list.Damaged == "" {
			return err
		}
		return &cli.Failure{Code: cli.ExitNoDevice, Err: fmt.Errorf("list all locks: the list may be incomplete: %s", list.Damaged),
			Hint: "run bakeryctl check to find the damaged record and its remedy"}
	}
	cmd.Flags().StringVar(&a.device, "device", "", "read this `PATH` instead of asking bakeryd")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

// listLocks reads the device, or asks bakeryd.
func (a *app) listLocks(ctx context.Context) (*directory.Listing, error) {
	if a.device != "" {
		return ondevice.Read(a.device, directory.List)
	}
	list := new(directory.Listing)
	err := call.Ask(ctx, a.socket, "GET", "/v1/locks", nil, list)
	return list, call.OrDevice(err)
}

// The minimum and maximum of --interval.
const leastTop, mostTop = 100 * time.Millisecond, time.Hour

func defineTop(a *app, cmd *cobra.Command) {
	var once bool
	interval := time.Second
	cmd.Long = `Watch the hosts of the lockspace and their leases, the locks with their holders and waiters, the latency of the device, and
the last events of this host. The first lines say that all is well, or what is wrong and what to do about it.

Keys:

    q, ctrl-c  quit             up, down, page up, page down, home, end  select
    enter      details          tab  hosts or locks
    /          filter: names of locks and hosts, commands, "pid 7314"
    s          sort locks by need, by name, by number of waiters, by age
    p          pause            ?    help

top asks bakeryd for the data of the status page: any number of viewers cause no more reads of the disk than one. While
bakeryd does not answer, top says so and shows the last known data. With --device the device is read, without joining and
without bakeryd, for at most a tenth of the time; a silent host shows after half a lease, and there are no events.`
	cmd.Example = `  bakeryctl top
  bakeryctl top --interval 5s
  bakeryctl top --device /dev/mapper/locks
  bakeryctl top --once | mail -s locks root`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch given := cmd.Flags().Changed; {
		case given("device") && a.device == "":
			return cli.Usage("top", "--device is empty, want the path of a lockspace")
		case interval < leastTop || interval > mostTop:
			return cli.Usage("top", "--interval %v, want %v to %v", interval, leastTop, mostTop)
		case once && given("interval"):
			return cli.Usage("top", "--once and --interval exclude each other")
		}
		source := top.Bakeryd(a.socket)
		if a.device != "" {
			source = top.Device(a.device, ondevice.Status)
		}
		if once {
			return top.Once(cmd.Context(), source, a.stdout, a.paint())
		}
		return top.Run(cmd.Context(), source, top.Terminal{In: a.stdin, Out: a.stdout, Paint: a.paint(), Every: interval})
	}
	f := cmd.Flags()
	f.StringVar(&a.device, "device", "", "read this `PATH` instead of asking bakeryd")
	f.Var((*cli.Wait)(&interval), "interval", "ask every `TIME`: seconds, such as 0.5, or 300ms")
	f.BoolVar(&once, "once", false, "print all hosts and locks once, and exit")
	a.colourFlag(cmd)
}
