package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/bench"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/packaging/schema"
	"github.com/bakeryd/bakeryd/test/schematest"
)

// checkedDir is the variable with a directory that has a file for each command whose output with
// --json was checked.
const checkedDir = "BAKERYCTL_TEST_CHECKED"

// unlikeTheSchema is the exit code of a checked command with other output than its schema says.
const unlikeTheSchema = 99

// checkedMain is main, and checks the output with --json.
func checkedMain() {
	path, ok := printsJSON(os.Args[1:])
	if !ok || os.Args[0] == supervise.AsStub || os.Args[0] == supervise.AsGuardian {
		main()
	}
	var kept bytes.Buffer
	a := &app{stdin: os.Stdin, stdout: io.MultiWriter(os.Stdout, &kept), stderr: os.Stderr, completionTimeout: completionTimeout}
	code := run(context.Background(), os.Args[1:], a)
	if code == cli.ExitOK || code == cli.ExitConflict && kept.Len() > 0 { // it has printed why
		if err := checkOutput(path, kept.Bytes()); err != nil {
			fmt.Fprintf(os.Stderr, "bakeryctl %s --json: %v\n", path, err)
			code = unlikeTheSchema
		}
	}
	os.Exit(code)
}

func checkOutput(path string, text []byte) error {
	if err := schematest.Output(path, text); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(os.Getenv(checkedDir), path), nil, 0o600)
}

// printsJSON returns the command of a command line, without bakeryctl, and whether it is with
// --json.
func printsJSON(args []string) (path string, ok bool) {
	if !slices.Contains(args, "--json") {
		return "", false
	}
	cmd, rest, err := newRoot(&app{}, nil).Find(args)
	if err != nil || cmd.Flags().Lookup("json") == nil || cmd.ParseFlags(rest) != nil || !cmd.Flags().Changed("json") {
		return "", false
	}
	return strings.TrimPrefix(cmd.CommandPath(), "bakeryctl "), true
}

// withJSON returns the commands with --json below a command.
func withJSON(cmd *cobra.Command) (paths []string) {
	if cmd.Flags().Lookup("json") != nil {
		paths = append(paths, strings.TrimPrefix(cmd.CommandPath(), "bakeryctl "))
	}
	for _, sub := range cmd.Commands() {
		paths = append(paths, withJSON(sub)...)
	}
	slices.Sort(paths)
	return paths
}

// checkedTests are the tests of this package. After all of them have run, each command has been
// checked.
type checkedTests struct{ m *testing.M }

// Run implements testscript.TestingM.
func (c checkedTests) Run() (code int) {
	dir, err := os.MkdirTemp("", "bakeryctl-checked.")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Setenv(checkedDir, dir); err != nil {
		panic(err)
	}
	if code = c.m.Run(); code != 0 || !schematest.AllTests() {
		return code
	}
	for _, path := range withJSON(newRoot(&app{}, nil)) {
		if _, err := os.Stat(filepath.Join(dir, path)); err != nil {
			fmt.Fprintf(os.Stderr, "FAIL: no test has run bakeryctl %s --json\n", path)
			code = 1
		}
	}
	return code
}

// TestSchemas_OfEachCommandWithJSON_Exist: and there is none of another command.
func TestSchemas_OfEachCommandWithJSON_Exist(t *testing.T) {
	t.Parallel()
	var want, got []string
	for _, path := range withJSON(newRoot(&app{}, nil)) {
		want = append(want, "bakeryctl-"+strings.ReplaceAll(path, " ", "-")+".json")
	}
	files, err := schema.Files.ReadDir(".")
	require.NoError(t, err)
	for _, f := range files {
		if f.Name() != "openapi.json" {
			got = append(got, f.Name())
		}
	}
	require.ElementsMatch(t, want, got)
}

// TestJSON_OfABakeryd_IsAsTheSchemasSay: the outputs for which a bakeryd must serve. Each process
// checks its own.
func TestJSON_OfABakeryd_IsAsTheSchemasSay(t *testing.T) {
	t.Parallel()
	s := newBenchSpace(t, lockspace.DefaultLease)
	socket := filepath.Join(t.TempDir(), "s")
	bakeryd := follow(t, bench.HostCommand, "--socket", socket, s.path)
	bakeryd.expect("serving")
	ctl := filepath.Join(t.TempDir(), asItself) // the name with which the test binary is bakeryctl
	exe, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(exe, ctl))
	done := func(args ...string) {
		t.Helper()
		begin(t, append([]string{"--socket", socket}, args...)...).exits(0)
	}
	done("create", "pair", "--permits", "2", "--json")
	done("create", "pair", "--permits", "2", "--json")
	done("lock", "--socket", socket, "x", "--", "sh", "-e", "-c", `
		for command in "value set v" "value get x --json" "request x --message please --json" \
			"status --json" "hosts --json" "mode shared --json" "mode exclusive --json"; do "$0" $command; done`, ctl)
	for _, command := range []string{"value get x", "locks", "status", "hosts", "disks", "events", "rm pair"} {
		done(append(strings.Fields(command), "--json")...)
	}
	begin(t, "--socket", socket, "value", "get", "nosuch", "--json").exits(cli.ExitConflict)
	require.NoError(t, bakeryd.stdin.Close())
	bakeryd.exits(0)
}
