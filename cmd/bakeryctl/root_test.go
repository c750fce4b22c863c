package main

import (
	"testing"

	"github.com/spf13/cobra"
)

// names returns those of the commands that newRoot makes.
func names(root *cobra.Command) []string {
	var found []string
	for _, c := range root.Commands() {
		found = append(found, c.Name())
	}
	return found
}

func TestOnlyTheCommandThatIsNamedIsMade(t *testing.T) {
	for _, c := range commands {
		if got := names(newRoot(&app{}, []string{c.name, "--help"})); len(got) != 1 || got[0] != c.name {
			t.Errorf("%s: made %q", c.name, got)
		}
	}
	for _, args := range [][]string{nil, {"--help"}, {"help", "lock"}, {"loc"}, {"--socket", "/s", "lock"}, {cobra.ShellCompRequestCmd, ""}} {
		if got := names(newRoot(&app{}, args)); len(got) != len(commands) {
			t.Errorf("%q: made %q, want all of them", args, got)
		}
	}
}
