package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

func newFormat(a *app) *cobra.Command {
	o := format.Options{}
	var stride, policy string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "format DEVICE",
		Short: "Make a lockspace on a device",
		Long: `Make a lockspace on a block device, or in a file, which is made if it does not exist.

All hosts that join the lockspace follow what is set here. What the device holds
is shown and kept, unless --force is given. With --force over a lockspace whose
hosts seem joined, the old lockspace is wiped first, and the new one made when
the lease of the old hosts has run out.`,
		Example: `  bakeryctl format /dev/mapper/locks --hosts 16 --name prod
  bakeryctl format ./test.img --hosts 3 --locks 16 --lease 5s
  bakeryctl format /dev/mapper/locks --policy fence --force`,
		Args: oneDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.Stride, err = parseStride(stride); err != nil {
				return formatFailure(err)
			}
			if o.Policy, err = layout.ParsePolicy(policy); err != nil {
				return formatFailure(&format.OptionError{Option: "policy", Value: strconv.Quote(policy), Want: "lease, fence or manual"})
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.format(ctx, args[0], o, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&o.Hosts, "hosts", lockspace.DefaultHosts, "`N`umber of hosts that can join, 1 to 2000")
	flags.IntVar(&o.Locks, "locks", lockspace.DefaultLocks, "`N`umber of locks there can be, 1 to 65536")
	flags.DurationVar(&o.Lease, "lease", lockspace.DefaultLease, "`TIME` for which a host may go on without reaching the device, 1s to 1h")
	flags.StringVar(&o.Name, "name", "", "`NAME` of the lockspace, for people")
	flags.StringVar(&stride, "stride", "auto", "`BYTES` from one record to the next; auto is the physical block size")
	flags.StringVar(&policy, "policy", "lease", "when a silent host counts as dead: `lease|fence|manual`")
	flags.BoolVar(&o.Force, "force", false, "destroy what the device holds")
	flags.BoolVar(&asJSON, "json", false, "show the result as JSON")
	return cmd
}

// oneDevice is for commands that take a device and nothing else.
func oneDevice(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return &failure{code: exitUsage, err: fmt.Errorf("%s wants one DEVICE, not %d", cmd.Name(), len(args)),
			hint: "see " + cmd.CommandPath() + " --help"}
	}
	return nil
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

func (a *app) format(ctx context.Context, path string, o format.Options, asJSON bool) error {
	p := a.progress()
	o.Progress, o.Counter = p.sayer(a.stderr), p.counter()
	result, err := format.Format(ctx, path, o)
	p.stop()
	if err != nil {
		return formatFailure(err)
	}
	for _, w := range result.Warnings {
		fmt.Fprintln(a.stderr, "warning:", w)
	}
	if asJSON {
		return writeFormatJSON(a.stdout, result)
	}
	sb := result.Superblock
	verb := "formatted"
	if result.Created {
		verb = "made"
	}
	w := newTable(a.stdout)
	fmt.Fprintf(w, "%s %s\n", verb, text.Printable(result.Path))
	fmt.Fprintf(w, "  uuid\t%v\n  name\t%s\n", sb.UUID, text.Printable(sb.Name))
	fmt.Fprintf(w, "  hosts\t%d\n  locks\t%d\n", sb.Geometry.Hosts, sb.Geometry.Locks)
	fmt.Fprintf(w, "  lease\t%v\n  policy\t%v\n", sb.Lease, sb.Policy)
	fmt.Fprintf(w, "  stride\t%d\n  size\t%v\n", sb.Geometry.Stride, result.Size)
	return w.Flush()
}

func writeFormatJSON(w io.Writer, r *format.Result) error {
	sb := r.Superblock
	return writeJSON(w, struct {
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
		sb.Geometry.Stride, int64(r.Size), sb.Formatted, append([]string{}, r.Warnings...)})
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// formatFailure finds the exit code and the remedy for an error of daemon.Format.
func formatFailure(err error) error {
	var option *format.OptionError
	f := &failure{code: exitNoDevice, err: err}
	switch {
	case errors.As(err, &option):
		f.code = exitUsage
		f.err = fmt.Errorf("--%w", option)
		f.hint = "see bakeryctl format --help"
	case errors.Is(err, context.Canceled):
		f.code = exitSignal + int(syscall.SIGINT)
	case errors.Is(err, format.ErrHostAlive):
		f.hint = "stop bakeryd on that host, then format; --force makes its hosts lose their locks and waits until they have"
	case errors.Is(err, format.ErrForeignVersion):
		f.hint = "use the bakeryctl of that version; or, if all its hosts are stopped, zero the beginning of the device"
	case errors.Is(err, format.ErrOccupied):
		f.hint = "--force destroys it"
	default:
		f.hint = deviceHint(err)
	}
	return f
}

// deviceHint is the remedy for an error that any command may meet on a device.
func deviceHint(err error) string {
	switch {
	case errors.Is(err, lockspace.ErrInterrupted):
		return "bakeryctl format --force completes it"
	case errors.Is(err, layout.ErrVersion):
		return "it was formatted by another version of bakeryd: use the bakeryctl of that version"
	case errors.Is(err, lockspace.ErrNoLockspace):
		return "bakeryctl format makes one; is it the right device?"
	case errors.Is(err, lockspace.ErrStride):
		return "--stride auto fits every device; a lockspace cannot move to a device with larger blocks"
	case errors.Is(err, lockspace.ErrDeviceSize), errors.Is(err, blockdev.ErrTooSmall):
		return "use a larger device, or format for fewer --hosts or --locks"
	case errors.Is(err, blockdev.ErrBusy):
		return "see who uses it: lsblk, findmnt; --force does not help"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "it takes root, or membership in the group of the device"
	}
	return ""
}
