package main

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/daemon/client"
)

const defaultSocket = client.DefaultSocket

// run carries out one command line and returns the exit code.
func run(ctx context.Context, args []string, a *app) int {
	root := newRoot(a)
	root.SetArgs(args)
	return a.report(root.ExecuteContext(ctx))
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "bakeryctl",
		Short: "Locks for hosts that share nothing but a disk",
		Example: `  bakeryctl format /dev/mapper/locks --hosts 16
  bakeryctl lock nightly-backup -- /usr/local/bin/backup
  bakeryctl status`,
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			return &failure{code: exitUsage, err: fmt.Errorf("no command given"), hint: "see bakeryctl --help"}
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetVersionTemplate("bakeryctl {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &failure{code: exitUsage, err: err, hint: "see " + cmd.CommandPath() + " --help"}
	})
	root.PersistentFlags().StringVar(&a.socket, "socket", envOr("BAKERY_SOCKET", defaultSocket),
		"`PATH` of bakeryd's socket; also from BAKERY_SOCKET")
	root.AddCommand(
		newLock(a),
		newHold(a),
		newMode(a),
		newValue(a),
		newRequest(a),
		newCreate(a),
		newRemove(a),
		newLocks(a),
		newStatus(a),
		newHosts(a),
		newEvents(a),
		newEvict(a),
		newFormat(a),
		newProbe(a),
		newCheck(a),
		newDump(a),
		newStress(a),
	)
	return root
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
