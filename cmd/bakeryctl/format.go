package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

func defineFormat(a *app, cmd *cobra.Command) {
	o := format.Options{}
	var stride, policy string
	cmd.Long = `Create a lockspace on a block device, or in a file, which is created if it does not
exist.

The settings below apply to all hosts of the lockspace. If the device holds data,
format shows it and stops, unless --force is given. With --force over a lockspace
whose hosts may be joined, the old lockspace is erased first. The new one is
created when the lease of the old hosts has ended.`
	cmd.Example = `  bakeryctl format /dev/mapper/locks --hosts 16 --name prod
  bakeryctl format ./test.img --hosts 3 --locks 16 --lease 5s
  bakeryctl format /dev/mapper/locks --policy fence --force`
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.Stride, err = parseStride(stride); err != nil {
			return formatFailure(err)
		}
		if err := o.Policy.UnmarshalText([]byte(policy)); err != nil {
			return formatFailure(&format.OptionError{Option: "policy", Value: strconv.Quote(policy), Want: "lease, fence or manual"})
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		p := render.StartProgress(a.stderr)
		o.Progress, o.Counter = p.Message, p.Counter()
		result, err := format.Format(ctx, args[0], o)
		p.Stop()
		if err != nil {
			return formatFailure(err)
		}
		created := struct {
			report.Lockspace
			Created bool       `json:"created"`
			Size    text.Bytes `json:"size"`
		}{report.LockspaceOf(result.Path, result.Superblock), result.Created, result.Size}
		created.Warnings = append([]string{}, result.Warnings...)
		for _, w := range created.Warnings {
			fmt.Fprintln(a.stderr, "warning:", w)
		}
		return a.print(created, func(w io.Writer) { showFormat(w, result) })
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Hosts, "hosts", lockspace.DefaultHosts, "maximum `N`umber of hosts, 1 to 2000")
	flags.IntVar(&o.Locks, "locks", lockspace.DefaultLocks, "maximum `N`umber of locks, 1 to 65536")
	flags.DurationVar(&o.Lease, "lease", lockspace.DefaultLease, "`TIME` that a host may continue without reaching the device, 1s to 1h")
	flags.StringVar(&o.Name, "name", "", "`NAME` of the lockspace, for display")
	flags.StringVar(&stride, "stride", "auto", "`BYTES` from one record to the next; auto is the physical block size")
	flags.StringVar(&policy, "policy", "lease", "when a silent host counts as dead: `lease|fence|manual`")
	flags.BoolVar(&o.Force, "force", false, "destroy what the device holds")
	flags.BoolVar(&a.json, "json", false, "print the result as JSON")
}

func parseStride(text string) (int, error) {
	if text == "auto" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n == 0 {
		return 0, &format.OptionError{Option: "stride", Value: strconv.Quote(text),
			Want: fmt.Sprintf("auto, or a power of two from %d to %d", layout.MinStride, layout.MaxStride)}
	}
	return n, nil
}

func showFormat(w io.Writer, r *format.Result) {
	sb, verb := r.Superblock, "formatted"
	if r.Created {
		verb = "created"
	}
	fmt.Fprintf(w, "%s %s\n", verb, text.Printable(r.Path))
	fmt.Fprintf(w, "  uuid\t%v\n  name\t%s\n", sb.UUID, text.Printable(sb.Name))
	fmt.Fprintf(w, "  hosts\t%d\n  locks\t%d\n", sb.Geometry.Hosts, sb.Geometry.Locks)
	fmt.Fprintf(w, "  lease\t%v\n  policy\t%v\n", sb.Lease, sb.Policy)
	fmt.Fprintf(w, "  stride\t%d\n  size\t%v\n", sb.Geometry.Stride, r.Size)
}

var formatAdvice = slices.Concat([]cli.Advice{
	{Err: context.Canceled, Code: cli.ExitInterrupted},
	{Err: format.ErrHostAlive, Hint: "stop bakeryd on that host, then format; with --force the hosts lose their locks, and format waits for that"},
	{Err: format.ErrForeignVersion, Hint: "use the bakeryctl of that version; or, if all its hosts are stopped, zero the beginning of the device"},
	{Err: format.ErrOccupied, Hint: "use --force to destroy the contents"},
	{Err: fs.ErrNotExist, Hint: "check the path; a new file is created only outside /dev, in a directory that exists"},
}, ondevice.Advice)

// formatFailure returns an error of format.Format with its exit code and hint.
func formatFailure(err error) error {
	if option, ok := errors.AsType[*format.OptionError](err); ok {
		return cli.Usage("format", "--%w", option)
	}
	return cli.Advise(err, cli.ExitNoDevice, formatAdvice)
}
