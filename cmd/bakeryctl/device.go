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

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/check"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/probe"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
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

func defineProbe(a *app, cmd *cobra.Command) {
	var o probe.Options
	cmd.Long = `Check whether a device is suitable for locks. Every finding has a verdict: ok, warning, unfit, or unknown if it could
not be determined here; and what to do about it.

By default probe does not write to the device, nor open it for writing. It judges the effect of the device on hosts that
hang or die relative to the lease of the lockspace on it, or to a lease of 30 s.

--write measures durable writes and reads, checks that a second opening of the device, and every --path, sees each
write immediately, and suggests a lease. On a lockspace, bakeryctl joins as a host during the measurement and writes
its own slot of the lock "probe", which remains. On an empty device, it writes the first block and finally zeroes it.
Other devices are refused. If probe is killed the block may remain; format reports it, and the next probe --write
clears it.

--with checks that two hosts see each other's writes to the disk immediately, which a write-back cache on a
host would break. SOCKET (a path with a slash) belongs to another bakeryd on this machine. HOST is the id or name of
another host, on which you run the same for this host within a minute. The check creates two locks, which remain.

Exit codes:
  0   fit, maybe with warnings
  1   unfit
  64  the command line is wrong
  66  the device cannot be opened, or not be written without damage
  69  bakeryd is unreachable, or the other host did not run the check
  77  permission denied: --with is only for root and the user of bakeryd`
	cmd.Example = `  bakeryctl probe /dev/mapper/locks
  bakeryctl probe /dev/mapper/locks --write
  bakeryctl probe /dev/sdb --write --for 10m --path /dev/sdc    # two paths to one LUN
  bakeryctl probe /dev/mapper/locks --with db2                  # and on db2: --with db1
  bakeryctl probe /dev/mapper/locks --json | jq '.findings[] | select(.verdict != "ok")'`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := validateProbe(cmd, o); err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		o.Socket, o.Stderr = a.socket, a.stderr
		r, err := probe.Run(ctx, args[0], o)
		if err != nil {
			return err
		}
		return a.judge(r.Fit, r, func(w io.Writer) { _ = probe.Show(w, r, a.paint()) })
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Write, "write", false, "also write: on a lockspace or an empty device")
	flags.DurationVar(&o.Length, "for", 0, "with --write, measure for this `TIME` instead of 1000 requests of each kind")
	flags.StringArrayVar(&o.Paths, "path", nil, "with --write, another `PATH` to the same disk; may be repeated")
	flags.StringVar(&o.With, "with", "", "check with another host, `SOCKET|HOST`, that both see each other's writes")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	a.colourFlag(cmd)
}

func validateProbe(cmd *cobra.Command, o probe.Options) error {
	switch changed := cmd.Flags().Changed; {
	case changed("for") && o.Length <= 0:
		return cli.Usage("probe", "--for %v: want more than 0", o.Length)
	case changed("for") && !o.Write:
		return cli.Usage("probe", "--for requires --write")
	case changed("path") && !o.Write:
		return cli.Usage("probe", "--path requires --write")
	case changed("with") && o.With == "":
		return cli.Usage("probe", "--with is empty")
	}
	return nil
}

func defineCheck(a *app, cmd *cobra.Command) {
	var repair bool
	cmd.Long = `Verify every record of a lockspace, and their consistency. check writes nothing, and
the lockspace may be in use: suspicious records are read again before they are
reported. If a dead host could have left such a record, check watches for almost half
a lease whether that host is running.

Each finding says what to do about it. --repair does so for these records:
  - the superblock or its copy: it is rewritten from the other one.
  - the record of a host, if no bakeryd rewrites it: bakeryctl waits until that host
    cannot be running, joins with its id and leaves; the record then says left. With
    the policies fence and manual, --repair confirms that the host is off.
  - an entry of the directory: a bakeryd that has used the lock is asked to restore
    it. If a host died while writing the entry, that write is completed. Otherwise,
    if no other host is running, the entry is freed and the name of the lock is lost.

For entries bakeryctl joins the lockspace as a host. Only the host that owns a slot
writes it.

Exit codes:
  0   no errors, or all were repaired; there may be warnings and notes
  1   errors were found
  64  the command line is wrong
  66  the device or its lockspace is not usable`
	cmd.Example = `  bakeryctl check /dev/mapper/locks
  bakeryctl check /dev/mapper/locks --repair
  bakeryctl check /dev/mapper/locks --json | jq '.findings[] | select(.severity == "error")'`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		r, err := check.Run(ctx, args[0], repair, a.stderr)
		if err != nil {
			return err
		}
		return a.judge(r.Errors == 0, r, func(w io.Writer) { r.Show(w, a.paint()) })
	}
	a.colourFlag(cmd)
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&repair, "repair", false, "repair damaged records")
}

func defineDump(a *app, cmd *cobra.Command) {
	cmd.Long = `Show every record on a device as it is stored, in the order of the disk, with
its offset in bytes. Records that were never written are omitted; a record that
cannot be decoded is shown with the reason. dump writes nothing to the device.

With --json each record is one JSON object per line.`
	cmd.Example = `  bakeryctl dump /dev/mapper/locks
  bakeryctl dump /dev/mapper/locks --json | jq 'select(.error)'`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		write := show.Record
		if a.json {
			write = show.RecordJSON
		}
		dev, sb, _, err := lockspace.OpenLockspace(args[0], true)
		if err == nil {
			defer dev.Close()
			err = lockspace.Walk(dev, sb, func(r lockspace.Record) error { return write(a.stdout, r) })
		}
		if err != nil {
			return ondevice.Failure(err)
		}
		return nil
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print one JSON object per line")
}
