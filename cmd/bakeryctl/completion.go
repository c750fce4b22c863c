package main

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/daemon"
)

// completionPatience is how long somebody who has pressed the tab key waits for bakeryd: it may be joining, or be gone.
const completionPatience = 300 * time.Millisecond

// completeLock completes the name of a lock, which is the first argument, from those that there are. Nothing is said where
// bakeryd cannot be asked. What follows the name in bakeryctl lock is a command, left to the shell.
func (a *app) completeLock(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		if cmd.Name() == "lock" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), a.patience)
	defer cancel()
	var list daemon.LockList
	if err := call.Ask(ctx, a.socket, http.MethodGet, "/v1/locks", nil, &list); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, l := range list.Locks {
		if strings.HasPrefix(l.Name, begun) && !strings.ContainsRune(l.Name, '\t') { // behind a tab is a description
			names = append(names, l.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
