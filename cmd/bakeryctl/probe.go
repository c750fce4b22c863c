package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/probe"
)

func defineProbe(a *app, cmd *cobra.Command) {
	var o probe.Options
	cmd.Long = `Check whether devices are suitable for locks. Every finding has a verdict: ok, warning, unfit, or unknown if it could
not be determined here; and what to do about it.

Several devices are checked one by one, and then together: whether two are the same disk, or may fail together, as far
as sysfs shows: partitions of a disk, LUNs of an array or an iSCSI target, files on a file system.

By default probe does not write to the device, nor open it for writing. It judges the effect of the device on hosts that
hang or die relative to the lease of the lockspace on it, or to a lease of 30 s.

--write measures durable writes and reads, checks that a second opening of the device, and every --path, sees each
write immediately, and suggests a lease. On a lockspace, bakeryctl joins as a host during the measurement and writes
its own slot of the lock "probe", which it creates and removes. On an empty device, it writes the first block and finally zeroes it.
Other devices are refused, and a single disk of a lockspace on several. If probe is killed the block may remain; format
reports it, and the next probe --write clears it.

--with checks that two hosts see each other's writes to the disk immediately, which a write-back cache on a
host would break. SOCKET (a path with a slash) belongs to another bakeryd on this machine. HOST is the id or name of
another host, on which you run the same for this host within a minute. The check creates two locks, and removes them.

If bakeryctl is interrupted it removes its locks, too. If that fails, a message names them.

Exit codes:
  0   fit, maybe with warnings
  1   unfit
  64  the command line is wrong
  66  the device cannot be opened, or not be written without damage
  69  bakeryd is unreachable, or the other host did not run the check
  77  permission denied: --with is only for root and the user of bakeryd`
	cmd.Example = `  bakeryctl probe /dev/mapper/locks
  bakeryctl probe /dev/mapper/locks --write
  bakeryctl probe /dev/mapper/locks1 /dev/mapper/locks2 /dev/mapper/locks3
  bakeryctl probe /dev/sdb --write --path /dev/sdc   # two paths to one LUN
  bakeryctl probe /dev/mapper/locks --with db2       # on db2: --with db1
  bakeryctl probe /dev/mapper/locks --json | jq '.findings[].verdict'`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := validateProbe(cmd, args, o); err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		o.Socket, o.Stderr = a.socket, a.stderr
		r, err := probe.Run(ctx, args, o)
		if err != nil {
			return err
		}
		return a.judge(r.Fit, r.JSON, func(w io.Writer) { _ = r.Show(w, a.paint()) })
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Write, "write", false, "also write: on a lockspace or an empty device")
	flags.DurationVar(&o.Length, "for", 0, "with --write, measure for this `TIME` instead of 1000 requests of each kind")
	flags.StringArrayVar(&o.Paths, "path", nil, "with --write, another `PATH` to the same disk; may be repeated")
	flags.StringVar(&o.With, "with", "", "check with another host, `SOCKET|HOST`, that both see each other's writes")
	_ = cmd.RegisterFlagCompletionFunc("with", a.bakeryd().HostOrFile) // no error: the flag exists
	flags.BoolVar(&a.json, "json", false, "print JSON")
	a.colourFlag(cmd)
}

func validateProbe(cmd *cobra.Command, devices []string, o probe.Options) error {
	switch changed := cmd.Flags().Changed; {
	case len(devices) > 1 && (changed("path") || changed("with")):
		return cli.Usage("probe", "--path and --with are for one DEVICE, not %d", len(devices))
	case changed("for") && o.Length <= 0:
		return cli.Usage("probe", "--for %v: want more than 0", o.Length)
	case changed("for") && !o.Write:
		return cli.Usage("probe", "--for requires --write")
	case changed("path") && !o.Write:
		return cli.Usage("probe", "--path requires --write")
	case changed("with") && o.With == "":
		return cli.Usage("probe", "--with is empty, want a SOCKET or a HOST")
	}
	return nil
}
