package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/cmd/internal/flags"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// formatResult is the output of bakeryctl format --json.
type formatResult struct {
	report.Lockspace
	Created bool       `json:"created"` // whether the file was created
	Size    text.Bytes `json:"size"`    // bytes that the lockspace takes on a disk
	// FailoverMS is the time from the last renewal of a host that dies until the others have its
	// locks, or fence it; absent if they wait for an operator.
	FailoverMS int64         `json:"failover_ms,omitzero"`
	Disks      []show.Member `json:"disks,omitempty"` // by position; none if the lockspace is on one disk
}

func defineFormat(a *app, cmd *cobra.Command) {
	o := format.Options{Hosts: lockspace.DefaultHosts, Locks: lockspace.DefaultLocks}
	stride, policy := "auto", layout.PolicyLease.String()
	cmd.Long = `Create a lockspace on a block device, or in a file, which is created if it does not
exist. With 3 or 5 devices the lockspace is on all of them, and needs most of them
to work: 2 of 3, or 3 of 5. Give the disks of an old lockspace together.

The settings below apply to all hosts of the lockspace. If the device holds data,
format shows it and stops, unless --force is given. With --force over a lockspace
whose hosts may be joined, the old lockspace is erased first. The new one is
created when the lease of the old hosts has ended.

With --policy fence, --fence-after TIME makes a failover a matter of seconds: the
other hosts fence a host that was silent for TIME, and have its locks as soon as
that is confirmed, without waiting for the end of its lease. Know both sides:

  - It is wrong where a lock guards something that is not behind the fence. The
    command of a fenced host runs until that host notices, or its lease ends. Only
    what the fence cuts off is safe: the lock device, each --fence-device of
    bakeryd, or all of a host that --fence-exec switches off.
  - A host that is frozen for TIME, or cannot reach the device for that long,
    loses its locks.`
	cmd.Example = `  bakeryctl format /dev/mapper/locks --hosts 16 --name prod
  bakeryctl format ./test.img --hosts 3 --locks 16 --lease 5s
  bakeryctl format /dev/mapper/locks1 /dev/mapper/locks2 /dev/mapper/locks3
    bakeryctl format /dev/mapper/locks --policy fence --force
  bakeryctl format /dev/mapper/locks --policy fence --fence-after 6s`
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.Stride, err = format.ParseStride(stride); err != nil {
			return formatFailure(err)
		}
		if err := o.Policy.UnmarshalText([]byte(policy)); err != nil {
			return err
		}
		if cmd.Flags().Changed("fence-after") && o.FenceAfter == 0 {
			return formatFailure(&format.OptionError{Option: "fence-after", Value: "0s", Want: "a time, or no --fence-after to wait for the lease"})
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		p := render.StartProgress(a.stderr)
		o.Progress, o.Counter = p.Message, p.Counter()
		result, err := format.Format(ctx, args, o)
		p.Stop()
		if err != nil {
			return formatFailure(err)
		}
		created := formatResult{report.LockspaceOf(strings.Join(result.Paths, ", "), result.Superblock), result.Created, result.Size,
			show.Failover(result.Superblock).Milliseconds(), show.MembersOf(result)}
		created.Warnings = append([]string{}, result.Warnings...)
		for _, w := range created.Warnings {
			fmt.Fprintln(a.stderr, "warning:", w)
		}
		return a.print(created, func(w io.Writer) { show.Formatted(w, result) })
	}
	f := cmd.Flags()
	flags.Int(f, &o.Hosts, "hosts", "", 1, layout.MaxHosts, "maximum number `N` of hosts, 1 to 2000")
	flags.Int(f, &o.Locks, "locks", "", 1, layout.MaxLocks, "maximum number `N` of locks, 1 to 65536")
	f.DurationVar(&o.Lease, "lease", lockspace.DefaultLease, "`TIME` that a host may continue without reaching the device, 1s to 1h")
	f.StringVar(&o.Name, "name", "", "`NAME` of the lockspace, for display")
	f.StringVar(&stride, "stride", stride, "`BYTES` from one record to the next; auto is the physical block size")
	flags.Choice(f, &policy, "policy", []string{"lease", "fence", "manual"}, "when a silent host counts as dead: `lease|fence|manual`")
	f.DurationVar(&o.FenceAfter, "fence-after", 0, "with policy fence: fence a host that was silent for `TIME`, a fifth of the lease to the lease")
	f.BoolVar(&o.Force, "force", false, "destroy what the device holds")
	f.BoolVar(&a.json, "json", false, "print the result as JSON")
}

var formatAdvice = slices.Concat([]cli.Advice{
	{Err: context.Canceled, Code: cli.ExitInterrupted},
	{Err: format.ErrHostAlive, Hint: "stop bakeryd on that host, then format; with --force the hosts lose their locks, and format waits for that"},
	{Err: format.ErrDisks, Code: cli.ExitUsage, Hint: "run bakeryctl format --help"},
	{Err: format.ErrForeignVersion, Hint: "use the bakeryctl of that version; or, if all its hosts are stopped, zero the beginning of the device"},
	{Err: format.ErrOccupied, Hint: "use --force to destroy the contents"},
	{Err: lockspace.ErrDeviceSize, Hint: "use a larger device, or format for fewer --hosts or --locks"},
	ondevice.NewFile,
}, ondevice.Advice)

// formatFailure returns an error of format.Format with its exit code and hint.
func formatFailure(err error) error {
	if option, ok := errors.AsType[*format.OptionError](err); ok {
		return cli.Usage("format", "--%w", option)
	}
	return cli.Advise(err, cli.ExitNoDevice, formatAdvice)
}
