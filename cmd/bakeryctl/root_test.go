package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

// names returns the names of the commands of root.
func names(root *cobra.Command) []string {
	var found []string
	for _, c := range root.Commands() {
		found = append(found, c.Name())
	}
	return found
}

func TestNewRoot_CommandNamed_CreatesOnlyThatOne(t *testing.T) {
	for _, c := range commands {
		require.Equal(t, []string{c.name()}, names(newRoot(&app{}, []string{c.name(), "--help"})))
	}
	for _, args := range [][]string{nil, {"--help"}, {"help", "lock"}, {"loc"}, {"--socket", "/s", "lock"}, {cobra.ShellCompRequestCmd, ""}} {
		require.Len(t, names(newRoot(&app{}, args)), len(commands)+1, args) // and completion
	}
}

func TestOne_TwoArguments_NamesTheCommand(t *testing.T) {
	for command, want := range map[string]string{
		"mode":      "mode takes one mode (shared or exclusive), not 2: unexpected \"b\"\nhint: usage: bakeryctl mode shared|exclusive [flags]\n",
		"value get": "value get takes one lock NAME, not 2: unexpected \"b\"\nhint: usage: bakeryctl value get NAME [flags]\n",
		"rm":        "rm takes one lock NAME, not 2: unexpected \"b\"\nhint: usage: bakeryctl rm [flags] NAME\n",
	} {
		code, out, errs := ctl(t, "/nonesuch", append(strings.Fields(command), "a", "b")...)
		require.Equal(t, []any{cli.ExitUsage, "", "bakeryctl: " + want}, []any{code, out, errs})
	}
}
