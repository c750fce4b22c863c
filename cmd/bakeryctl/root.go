package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, a *app) int {
	root := newRoot(a, args)
	root.SetArgs(args)
	return cli.Report(a.stderr, root.ExecuteContext(ctx))
}

type command struct {
	name string
	make func(*app) *cobra.Command
}

// commands are the commands of bakeryctl, in the order of their use.
var commands = []command{
	{"lock", newLock},
	{"hold", newHold},
	{"mode", newMode},
	{"value", newValue},
	{"request", newRequest},
	{"create", newCreate},
	{"rm", newRemove},
	{"locks", newLocks},
	{"status", newStatus},
	{"top", newTop},
	{"hosts", newHosts},
	{"events", newEvents},
	{"timeline", newTimeline},
	{"evict", newEvict},
	{"format", newFormat},
	{"probe", newProbe},
	{"bench", newBench},
	{"bench-host", newBenchHost},
	{"check", newCheck},
	{"dump", newDump},
	{"stress", newStress},
	{"exit-codes", newExitCodes},
	{"environment", newEnvironment},
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
  bakeryctl lock -n -E 0 nightly-backup -- /usr/local/bin/backup

  # Holders and waiters now, and holders at night:
  bakeryctl status
  bakeryctl events --since 03:00 --until 03:30 nightly-backup

  # Check the disk and the hosts:
  bakeryctl check /dev/mapper/locks && bakeryctl hosts`,
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("no command given"), Hint: "run bakeryctl --help"}
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetVersionTemplate("bakeryctl {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &cli.Failure{Code: cli.ExitUsage, Err: err, Hint: "run " + cmd.CommandPath() + " --help"}
	})
	root.PersistentFlags().StringVar(&a.socket, "socket", envSocket(), "`PATH` of bakeryd's socket; also from BAKERY_SOCKET")
	named := slices.IndexFunc(commands, func(c command) bool { return len(args) > 0 && args[0] == c.name })
	for i, c := range commands {
		if named < 0 || named == i {
			cmd := c.make(a)
			cmd.Flags().SortFlags = false
			root.AddCommand(cmd)
		}
	}
	return root
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
