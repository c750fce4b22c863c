package main

import (
	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/layout"
)

func newMode(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "mode shared|exclusive",
		Short: "Change how the lock is held that this command runs under",
		Long: `Change how the lock is held that this command runs under: by all who hold it together, or alone.

It is for the command of bakeryctl lock, and finds its lock by BAKERY_SESSION, BAKERY_TOKEN and BAKERY_SOCKET. The
token stays the same.

To share it lets others in that want to share it, but none that came after one who wants it alone. To have it alone is
granted at once, or refused: if another host holds it or waits for it, or another client of this host holds it. It is
never waited for: two who share a lock and both wait to have it alone would wait for ever. Who is refused has it shared
as before, and can try again, or let it go and take it exclusively. A lock of several permits cannot change its mode.

Exit codes:
  0    it is held in that mode, or was already
  1    it is held by others too
  64   the command line is wrong, or this is not run under a lock of bakeryd
  69   bakeryd is unreachable
  75   the lock is not held any more
  77   the hold is another user's`,
		Example: `  # Look for something to do among other readers, and do it alone.
  bakeryctl lock -s queue -- sh -c 'grep -q todo jobs && bakeryctl mode exclusive && ./run jobs'

  # Prepare alone, then let the readers in.
  bakeryctl lock catalogue -- sh -c './build && bakeryctl mode shared && ./verify'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usage("mode", "%d modes given, want one: shared or exclusive", len(args))
			}
			return nil
		},
		ValidArgs: []cobra.Completion{"shared", "exclusive"},

		RunE: func(cmd *cobra.Command, args []string) error {
			var mode layout.Mode
			if err := mode.UnmarshalText([]byte(args[0])); err != nil {
				return cli.Usage("mode", "mode %q, want shared or exclusive", args[0])
			}
			access, ctx, cancel, err := a.inside(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			if err := access.SetMode(ctx, mode); err != nil {
				return call.Failure(err)
			}
			if asJSON {
				return render.WriteJSON(a.stdout, map[string]any{"mode": mode})
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "show the mode as JSON")
	return cmd
}
