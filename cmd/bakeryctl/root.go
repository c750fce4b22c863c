package main

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/bench"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/complete"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/lock"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/topics"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/usage"
	"github.com/bakeryd/bakeryd/cmd/internal/flags"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, a *app) int {
	root := newRoot(a, args)
	root.SetArgs(args)
	var once sync.Once
	ctx = client.WithWarnings(ctx, func(message string) {
		once.Do(func() { fmt.Fprintf(a.stderr, "bakeryctl: warning: %s\n", text.PrintableLine(message)) })
	})
	return cli.Report(a.stderr, root.ExecuteContext(a.patience.With(ctx)))
}

type command struct {
	use, short string
	args       cobra.PositionalArgs
	define     func(*app, *cobra.Command) // adds the help, the flags and the function
}

func (c command) create(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: c.use, Short: c.short, Args: c.args}
	c.define(a, cmd)
	cmd.Flags().SortFlags = false
	return cmd
}

// name returns the word that selects the command.
func (c command) name() string {
	name, _, _ := strings.Cut(c.use, " ")
	return name
}

var oneLock, oneDevice = usage.One("lock NAME", layout.ValidateLockName), usage.One("DEVICE", usage.NotEmpty("DEVICE"))

// commands are the commands of bakeryctl, in the order of their use.
var commands = []command{
	{lock.Use, "Run a command under a lock", cobra.ArbitraryArgs, defineLock},
	{"hold [flags] NAME", "Hold a lock for systemd units", holdArgs, defineHold},
	{"mode shared|exclusive", "Change the mode of the lock that this command runs under",
		usage.One("mode (shared or exclusive)", usage.Any), defineMode},
	{"value", "Read the value of a lock, or set it under the lock", nil, defineValue},
	{"request [flags] NAME", "Ask the holders of a lock to give it up", oneLock, defineRequest},
	{"create [flags] NAME", "Create a lock that several hosts may hold at once", oneLock, defineCreate},
	{"rm [flags] NAME", "Remove an unused lock", oneLock, defineRemove},
	{"locks", "List the locks of the lockspace", usage.None, defineLocks},
	{"status", "Show the hosts of the lockspace, the locks, their holders and waiters", usage.None, defineStatus},
	{"top", "Watch hosts, locks and events, live, in a terminal", usage.None, defineTop},
	{"hosts", "Show the hosts of the lockspace and which of them are silent", usage.None, defineHosts},
	{"disks", "Show the disks of a lockspace on several, and whether they work", usage.None, defineDisks},
	{"disk", "Change the disks of a lockspace on several", nil, defineDisk},
	{"events [NAME]", "Show the history of locks: holders, waiting clients and the reasons", usage.AtMostOne("lock NAME"), defineEvents},
	{"timeline EVENTS... -o PAGE.html", "Draw the journals of several hosts as one page: locks and holders over time",
		usage.Some("EVENTS"), defineTimeline},
	{"evict HOST", "Declare a silent host dead, or ask a live host to leave", usage.One("HOST", usage.NotEmpty("HOST")), defineEvict},
	{"format DEVICE...", "Create a lockspace on a device, or on 3 or 5", usage.Some("DEVICE"), defineFormat},
	{"probe DEVICE...", "Check whether devices are suitable for locks", usage.Some("DEVICE"), defineProbe},
	{"bench", "Measure the speed of locks, and what the device allows", usage.None, defineBench},
	{bench.HostCommand + " DEVICE...", "", usage.Some("DEVICE"), defineBenchHost},
	{bench.ToyCommand, "", usage.None, defineBenchToy},
	{"check [DEVICE...]", "Verify every record of a lockspace, and repair damage", usage.Each("DEVICE"), defineCheck},
	{"dump DEVICE", "Show every record on a device as it is stored", oneDevice, defineDump},
	{"stress", "Acquire a lock repeatedly, and verify mutual exclusion", usage.None, defineStress},
	{"version", "Print the version of bakeryctl", usage.None, defineVersion},
	{"exit-codes", "The exit codes of bakeryctl", nil, func(_ *app, cmd *cobra.Command) { topics.ExitCodes(cmd) }},
	{"environment", "The variables that bakeryctl reads and sets", nil, func(_ *app, cmd *cobra.Command) { topics.Environment(cmd) }},
}

// newRoot returns the root command. If the first argument names a command, only that one is created: creating
// all commands takes longer than running some of them.
func newRoot(a *app, args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "bakeryctl",
		Short: "Locks for hosts that share nothing but a disk",
		Long: `Locks for hosts that share nothing but a disk.

Common exit codes; the help of a command may add others: 0 done; 1 no, such as a lock that is not free; 64 the command
line is wrong; 66 the device or its lockspace is not usable; 69 bakeryd is unreachable, or refuses; 75 the lock was lost;
77 permission denied.`,
		Example: `  # Hosts share a disk. Once, on one of them:
  bakeryctl probe /dev/mapper/locks
  bakeryctl format /dev/mapper/locks --hosts 16

  # On all of them, every night; one host makes the backup:
  bakeryctl lock -q -n -E 0 nightly-backup -- /usr/local/bin/backup

  # Holders and waiters now, and holders at night:
  bakeryctl status
  bakeryctl events --since 03:00 --until 03:30 nightly-backup

  # Check the disk and the hosts:
  bakeryctl check /dev/mapper/locks && bakeryctl hosts`,
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			devices, _ := cmd.Flags().GetStringArray("device") // none if the command has no such flag
			if err := usage.NoEmptyPath(cmd); err != nil {
				return err
			}
			if len(devices) > 0 && cmd.Flags().Changed("socket") {
				return cli.Usage(usage.Path(cmd), "--device and --socket exclude each other: with --device no bakeryd is asked")
			}
			return nil
		},
	}
	usage.Group(root)
	usage.Help(root)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetVersionTemplate("bakeryctl {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		err = flags.Explain(cmd.Flags(), err)
		return usage.OfUnknown(cmd, &cli.Failure{Code: cli.ExitUsage, Err: err, Hint: usage.FlagHint(cmd, err)})
	})
	call.SocketFlag(root.PersistentFlags(), &a.socket)
	named := slices.IndexFunc(commands, func(c command) bool { return len(args) > 0 && args[0] == c.name() })
	for i, c := range commands {
		if named < 0 || named == i {
			root.AddCommand(c.create(a))
		}
	}
	if named < 0 { // perhaps a shell completes words
		usage.Completion(root)
		complete.Add(root)
	}
	return root
}

// versionResult is the output of bakeryctl version --json.
type versionResult struct {
	Version string `json:"version"` // of bakeryctl
}

func defineVersion(a *app, cmd *cobra.Command) {
	cmd.Long = `Print the version of bakeryctl, as bakeryctl --version does.`
	cmd.Example = `  bakeryctl version
  bakeryctl version --json | jq -r .version`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.print(versionResult{version()}, func(w io.Writer) { fmt.Fprintln(w, "bakeryctl", version()) })
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

// release is the version of a package build; empty: the version of the module.
var release string

func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
