package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
	"github.com/bakeryd/bakeryd/daemon/report"
)

func newEvict(a *app) *cobra.Command {
	var yes, forget bool
	cmd := &cobra.Command{
		Use:   "evict HOST",
		Short: "Declare a silent host dead, or ask a live host to leave",
		Long: `Declare a silent host dead, or ask a live host to leave. HOST is an id or a
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
  77  permission denied: only for root and the user of bakeryd`,
		Example: `  bakeryctl evict 3
  bakeryctl evict db3 --yes
  bakeryctl evict 3 --forget`,
		Args: one("HOST", nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			// All output but the result goes to standard error.
			ctx := cmd.Context()
			status, err := show.Ask(ctx, a.socket)
			if err != nil {
				return err
			}
			h, err := show.FindHost(status, args[0])
			if err == nil {
				err = evictable(status, h, forget)
			}
			if err != nil {
				return err
			}
			if err := render.WriteTable(a.stderr, func(w io.Writer) { describeEviction(w, status, h, forget) }); err != nil {
				return err
			}
			if !yes {
				if err := a.confirm(ctx, h); err != nil {
					return err
				}
			}
			return a.sendEviction(ctx, h, forget)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&forget, "forget", false, "also free the id of a dead host for other machines")
	return cmd
}

// evictable returns an error if the host cannot be evicted.
func evictable(r *report.Report, h *report.Host, forget bool) error {
	no := func(what, hint string) error {
		return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("%s %s", show.HostLabel(h), what), Hint: hint}
	}
	switch show.Health(*h) {
	case report.HealthLeft:
		return no("has left: its locks are free, there is nothing to evict", "")
	case report.HealthJoining:
		return no("is joining: it holds nothing", "let it finish, or stop it on its machine")
	case report.HealthDead:
		if h.Forgotten {
			return no("is declared dead and forgotten already: its locks are free", "")
		}
		if !forget {
			return no("is declared dead already: its locks are free", "use --forget to free its id for other machines")
		}
	}
	if forget && isThisHost(r, h) {
		return no("is this host, which cannot forget itself", "stop its bakeryd, or evict it from another host")
	}
	return nil
}

func isThisHost(r *report.Report, h *report.Host) bool {
	return r.ThisHost != nil && r.ThisHost.ID == h.ID
}

// describeEviction writes the state of a host, and the effect of its eviction.
func describeEviction(w io.Writer, r *report.Report, h *report.Host, forget bool) {
	var holds, waits []string
	for _, l := range r.Locks {
		if slices.ContainsFunc(l.Holders, func(x report.Holder) bool { return x.Host == h.ID }) {
			holds = append(holds, show.LockName(l))
		}
		if slices.ContainsFunc(l.Queue, func(q report.Queued) bool { return q.Host == h.ID }) {
			waits = append(waits, show.LockName(l))
		}
	}
	fmt.Fprintf(w, "%s\n  state\t%s\n", show.HostLabel(h), show.HostState(*h))
	fmt.Fprintf(w, "  seen\t%s\n  incarnation\t%016x\n", show.Seen(*h, r.Lockspace.Policy), h.Incarnation)
	fmt.Fprintf(w, "  watchdog\t%s\n  holds\t%s\n", show.Watchdog(*h), listed(holds))
	fmt.Fprintf(w, "  waits for\t%s\n%s\n", listed(waits), consequence(r, h, forget))
}

// listed joins the names of at most 10 locks.
func listed(names []string) string {
	const most = 10
	if n := len(names); n > most {
		names = append(names[:most:most], fmt.Sprintf("%d more", n-most))
	}
	return cmp.Or(strings.Join(names, ", "), "-")
}

const (
	cutOff   = "Make sure that it is powered off or cut off from the disk: if it only hangs, it may still write."
	askText  = "It still renews its lease, so it is asked to leave: its bakeryd stops the holders of its locks,\nand no other host acquires them before it has left."
	deadText = "It is declared dead immediately: its locks pass to the next waiters NOW.\n" + cutOff
	idText   = "Its id becomes free for other machines."
)

func consequence(r *report.Report, h *report.Host, forget bool) string {
	switch kind := show.Health(*h); {
	case isThisHost(r, h):
		return "It is this host: its bakeryd stops the holders of its locks, then leaves and ends."
	case kind == report.HealthDead:
		return idText + "\n" + cutOff
	case kind != report.HealthSilent:
		return askText
	case forget:
		return deadText + "\n" + idText
	}
	return deadText
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
	now := show.HostByID(status.Hosts, h.ID)
	if now == nil || now.Incarnation != h.Incarnation || show.Health(*now) != show.Health(*h) {
		return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("%s is not evicted: it has changed since it was shown", show.HostLabel(h)), Hint: "run the command again"}
	}
	return nil
}

// sendEviction makes bakeryd publish the eviction, and prints the outcome.
func (a *app) sendEviction(ctx context.Context, h *report.Host, forget bool) error {
	request := struct {
		Host        int    `json:"host"`
		Incarnation uint64 `json:"incarnation,string"`
		Forget      bool   `json:"forget"`
	}{h.ID, h.Incarnation, forget}
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
