//go:build packaging

package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/bench"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/check"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/probe"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/stress"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/replacement"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/packaging/generate"
	"github.com/bakeryd/bakeryd/packaging/schema"
)

// With the build tag packaging, bakeryctl has a hidden command that writes the manual and the completions:
//
//	go run -tags packaging ./cmd/bakeryctl generate VERSION YYYY-MM-DD BAKERYD FORMAT.md POLICY OUT
//
// BAKERYD is the path of that program, FORMAT.md that of layout/FORMAT.md, and POLICY that of
// packaging/policy.example. Another one writes the files of packaging/schema into a directory:
//
//	go run -tags packaging ./cmd/bakeryctl generate-schemas packaging/schema
func init() {
	use := "generate VERSION YYYY-MM-DD BAKERYD FORMAT.md POLICY OUT"
	commands = append(commands, command{use, "", cobra.ExactArgs(6), defineGenerate})
	commands = append(commands, command{"generate-schemas OUT", "", cobra.ExactArgs(1), defineGenerateSchemas})
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

// outputs has the types of the output of each command with --json.
func outputs() []schema.Command {
	line, records := show.Dumped()
	return []schema.Command{
		{Path: "bench", Output: []any{bench.Report{}}},
		{Path: "check", Output: []any{check.Report{}}},
		{Path: "create", Output: []any{createResult{}}},
		{Path: "disk replace", Output: []any{replacement.Replaced{}}},
		{Path: "disks", Output: []any{diskList{}}},
		{Path: "dump", Lines: true, Output: []any{line}, Inside: records},
		{Path: "events", Lines: true, Output: []any{events.Event{}}},
		{Path: "format", Output: []any{formatResult{}}},
		{Path: "hosts", Output: []any{hostList{}}},
		{Path: "locks", Output: []any{directory.Listing{}}},
		{Path: "mode", Output: []any{modeResult{}}},
		{Path: "probe", Output: []any{probe.Report{}, probe.SetReport{}}},
		{Path: "request", Output: []any{requestResult{}}},
		{Path: "rm", Output: []any{removeResult{}}},
		{Path: "status", Output: []any{report.Report{}}},
		{Path: "stress", Output: []any{stress.Report{}}},
		{Path: "value get", Output: []any{locks.Value{}}},
		{Path: "version", Output: []any{versionResult{}}},
	}
}

func defineGenerateSchemas(_ *app, cmd *cobra.Command) {
	cmd.Hidden = true
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		var operations []schema.Operation
		for _, o := range server.Operations() {
			operations = append(operations, schema.Operation(o))
		}
		return schema.Write(args[0], outputs(), server.About, operations)
	}
}
