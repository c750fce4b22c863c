package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/daemon/client"
)

// completionTimeout is the timeout of bakeryd for a completion.
const completionTimeout = 300 * time.Millisecond

// completeLock completes the first argument with the names of existing locks. It reports no error if
// bakeryd does not answer. The shell completes the command of bakeryctl lock.
func (a *app) completeLock(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		if cmd.Name() == "lock" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), a.completionTimeout)
	defer cancel()
	locks, _ := client.New(a.socket).Locks(ctx)
	var names []cobra.Completion
	for _, l := range locks {
		if strings.HasPrefix(l.Name, begun) && !strings.ContainsRune(l.Name, '\t') { // a tab starts a description
			names = append(names, l.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
