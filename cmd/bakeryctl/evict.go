package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

func defineEvict(a *app, cmd *cobra.Command) {
	var yes, forget bool
	cmd.Long = `Declare a silent host dead, or ask a live host to leave. HOST is an id or a
name, as in bakeryctl hosts. evict first shows the host, and what will happen.

A host that still renews its lease is asked to leave: its bakeryd stops the
holders of its locks, and no other host acquires them before it has left.

A silent host is declared dead immediately, whatever the policy of the lockspace:
its locks pass to the next waiters. Make sure that the host is powered off or cut
off from the disk. If it only hangs, it may still write.

Exit codes:
  0   the host is declared dead, or asked to leave
  1   the question was answered with no: nothing was done
  64  the command line is wrong, or the host cannot be evicted
  66  the device or its lockspace is not usable
  69  bakeryd is unreachable, or refuses
  77  permission denied: only for root and the user of bakeryd`
	cmd.Example = `  bakeryctl evict 3
  bakeryctl evict db3 --yes
  bakeryctl evict 3 --forget`
	cmd.ValidArgsFunction = a.bakeryd().Host

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// All output but the result goes to standard error.
		ctx := cmd.Context()
		if err := a.mayEvict(ctx); err != nil {
			return err
		}
		status, err := show.Ask(ctx, a.socket)
		if err != nil {
			return err
		}
		h, err := show.FindHost(status, args[0])
		if err == nil {
			err = show.Eviction(a.stderr, status, h, forget)
		}
		if err == nil && !yes {
			err = a.confirm(ctx, h)
		}
		if err != nil {
			return err
		}
		return a.sendEviction(ctx, h, forget)
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&forget, "forget", false, "also free the id of a dead host for other machines")
}

// eviction is the body of POST /v1/evict.
type eviction struct {
	Host        int      `json:"host"`
	Incarnation text.Hex `json:"incarnation"`
	Forget      bool     `json:"forget"`
}

// mayEvict returns the refusal for a user that may evict no host. It asks to evict host 0, which does not exist.
func (a *app) mayEvict(ctx context.Context) error {
	var f *cli.Failure
	if a.ordinary && errors.As(call.Ask(ctx, a.socket, "POST", "/v1/evict", eviction{}, new(struct{})), &f) && f.Code == cli.ExitForbidden {
		return f
	}
	return nil
}

// confirm asks for confirmation, and then checks that the host has not changed in the meantime.
func (a *app) confirm(ctx context.Context, h *report.Host) error {
	in, ok := a.stdin.(*os.File)
	if !ok || !term.Is(in) {
		return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("%s is not evicted: standard input is not a terminal", show.HostLabel(h)), Hint: "use --yes to evict it without a question"}
	}
	fmt.Fprintf(a.stderr, "Evict %s? [y/N] ", show.HostLabel(h))
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		fmt.Fprintln(a.stderr)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return &cli.Failure{Code: cli.ExitConflict, Err: fmt.Errorf("%s is not evicted", show.HostLabel(h))}
	}
	status, err := show.Ask(ctx, a.socket)
	if err != nil {
		return err
	}
	now := status.HostByID(h.ID)
	if now == nil || now.Incarnation != h.Incarnation || now.Health != h.Health {
		return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("%s is not evicted: it has changed since it was shown", show.HostLabel(h)), Hint: "run the command again"}
	}
	return nil
}

// sendEviction makes bakeryd publish the eviction, and prints the outcome.
func (a *app) sendEviction(ctx context.Context, h *report.Host, forget bool) error {
	request := eviction{h.ID, h.Incarnation, forget}
	var answer struct{ Outcome string }
	if err := call.Ask(ctx, a.socket, "POST", "/v1/evict", request, &answer); err != nil {
		return err
	}
	outcome := "declared dead"
	switch {
	case answer.Outcome != "dead":
		outcome = "asked to leave; bakeryctl hosts shows when it has"
	case forget:
		outcome = "declared dead, its id is free for other machines"
	}
	fmt.Fprintln(a.stdout, show.HostLabel(h), outcome)
	return nil
}
