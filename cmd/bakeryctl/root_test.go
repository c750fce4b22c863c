package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
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
		require.Equal(t, []string{c.name}, names(newRoot(&app{}, []string{c.name, "--help"})))
	}
	for _, args := range [][]string{nil, {"--help"}, {"help", "lock"}, {"loc"}, {"--socket", "/s", "lock"}, {cobra.ShellCompRequestCmd, ""}} {
		require.Len(t, names(newRoot(&app{}, args)), len(commands), args)
	}
}
