//go:build packaging

package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/packaging/generate"
)

// With the build tag packaging, bakeryctl has a hidden command that writes the manual and the completions:
//
//	go run -tags packaging ./cmd/bakeryctl generate VERSION YYYY-MM-DD BAKERYD FORMAT.md POLICY OUT
//
// BAKERYD is the path of that program, FORMAT.md that of layout/FORMAT.md, and POLICY that of
// packaging/policy.example.
func init() {
	use := "generate VERSION YYYY-MM-DD BAKERYD FORMAT.md POLICY OUT"
	commands = append(commands, command{use, "", cobra.ExactArgs(6), defineGenerate})
}

func defineGenerate(_ *app, cmd *cobra.Command) {
	cmd.Hidden = true
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		date, err := time.Parse(time.DateOnly, args[1])
		if err != nil {
			return err
		}
		if err := os.Unsetenv("BAKERY_SOCKET"); err != nil { // it would be the default of --socket
			return err
		}
		return generate.Source{
			Version: args[0], Date: date, Bakeryctl: newRoot(&app{}, nil), Bakeryd: args[2], Format: args[3],
			Policy: args[4],
		}.Write(args[5])
	}
}
