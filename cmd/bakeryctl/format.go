package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

func newFormat(a *app) *cobra.Command {
	o := format.Options{}
	var stride, policy string
	cmd := &cobra.Command{
		Use:   "format DEVICE",
		Short: "Create a lockspace on a device",
		Long: `Create a lockspace on a block device, or in a file, which is created if it does not
exist.

The settings below apply to all hosts of the lockspace. If the device holds data,
format shows it and stops, unless --force is given. With --force over a lockspace
whose hosts may be joined, the old lockspace is erased first. The new one is
created when the lease of the old hosts has ended.`,
		Example: `  bakeryctl format /dev/mapper/locks --hosts 16 --name prod
  bakeryctl format ./test.img --hosts 3 --locks 16 --lease 5s
  bakeryctl format /dev/mapper/locks --policy fence --force`,
		Args: one("DEVICE", nil),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Stride, err = parseStride(stride); err != nil {
				return formatFailure(err)
			}
			if err := o.Policy.UnmarshalText([]byte(policy)); err != nil {
				return formatFailure(&format.OptionError{Option: "policy", Value: strconv.Quote(policy), Want: "lease, fence or manual"})
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			p := render.StartProgress(a.stderr)
			o.Progress, o.Counter = p.MessagePrinter(a.stderr), p.Counter()
			result, err := format.Format(ctx, args[0], o)
			p.Stop()
			if err != nil {
				return formatFailure(err)
			}
			for _, w := range result.Warnings {
				fmt.Fprintln(a.stderr, "warning:", w)
			}
			return a.print(formatJSON(result), func(w io.Writer) error { return showFormat(w, result) })
		},
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
	return cmd
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

func showFormat(out io.Writer, r *format.Result) error {
	sb, verb := r.Superblock, "formatted"
	if r.Created {
		verb = "created"
	}
	return render.WriteTable(out, func(w io.Writer) {
		fmt.Fprintf(w, "%s %s\n", verb, text.Printable(r.Path))
		fmt.Fprintf(w, "  uuid\t%v\n  name\t%s\n", sb.UUID, text.Printable(sb.Name))
		fmt.Fprintf(w, "  hosts\t%d\n  locks\t%d\n", sb.Geometry.Hosts, sb.Geometry.Locks)
		fmt.Fprintf(w, "  lease\t%v\n  policy\t%v\n", sb.Lease, sb.Policy)
		fmt.Fprintf(w, "  stride\t%d\n  size\t%v\n", sb.Geometry.Stride, r.Size)
	})
}

func formatJSON(r *format.Result) any {
	sb := r.Superblock
	return struct {
		Device    string        `json:"device"`
		Created   bool          `json:"created"`
		UUID      layout.UUID   `json:"uuid"`
		Name      string        `json:"name"`
		Hosts     int           `json:"hosts"`
		Locks     int           `json:"locks"`
		LeaseMS   int64         `json:"lease_ms"`
		Policy    layout.Policy `json:"policy"`
		Stride    int           `json:"stride"`
		Size      int64         `json:"size"`
		Formatted time.Time     `json:"formatted"`
		Warnings  []string      `json:"warnings"`
	}{r.Path, r.Created, sb.UUID, sb.Name, sb.Geometry.Hosts, sb.Geometry.Locks, sb.Lease.Milliseconds(), sb.Policy,
		sb.Geometry.Stride, int64(r.Size), sb.Formatted, append([]string{}, r.Warnings...)}
}

// formatFailure returns an error of format.Format with its exit code and hint.
func formatFailure(err error) error {
	var option *format.OptionError
	f := &cli.Failure{Code: cli.ExitNoDevice, Err: err}
	switch {
	case errors.As(err, &option):
		f.Code = cli.ExitUsage
		f.Err = fmt.Errorf("--%w", option)
		f.Hint = "run bakeryctl format --help"
	case errors.Is(err, context.Canceled):
		f.Code = cli.ExitInterrupted
	case errors.Is(err, format.ErrHostAlive):
		f.Hint = "stop bakeryd on that host, then format; with --force the hosts lose their locks, and format waits for that"
	case errors.Is(err, format.ErrForeignVersion):
		f.Hint = "use the bakeryctl of that version; or, if all its hosts are stopped, zero the beginning of the device"
	case errors.Is(err, format.ErrOccupied):
		f.Hint = "use --force to destroy the contents"
	case errors.Is(err, fs.ErrNotExist):
		f.Hint = "check the path; a new file is created only outside /dev, in a directory that exists"
	default:
		f.Hint = ondevice.Hint(err)
	}
	return f
}
