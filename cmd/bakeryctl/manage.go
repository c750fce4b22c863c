package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

func defineCreate(a *app, cmd *cobra.Command) {
	var permits int
	cmd.Long = `Create the lock NAME, which up to --permits hosts may hold at once: a semaphore.
A lock with one permit need not be created: it is created on first use.

If a lock of that name has the same permits, nothing changes. To give a lock
other permits, remove it (bakeryctl rm) and create it again.

A permit belongs to a host: its own commands hold the lock one after the other.
Shared holders (bakeryctl lock --shared) exclude all others, whatever the permits.

Exit codes:
  0   the lock exists
  64  the command line is wrong: the name, or the number of permits
  66  the device is not usable, or the lock directory is full
  69  bakeryd is unreachable, or refuses: the lock has other permits
  77  permission denied: this user may not use a lock of that name`
	cmd.Example = `  # At most two hosts reboot at once.
  bakeryctl create reboot --permits 2
  bakeryctl lock reboot -- /usr/local/bin/reboot-and-wait

  bakeryctl create reboot --permits 2 --json | jq .created`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if permits < 1 || permits > layout.MaxHosts {
			return cli.Usage("create", "--permits %d, want 1 to the number of hosts of the lockspace", permits)
		}
		lock, created, err := client.New(a.socket).Create(cmd.Context(), args[0], permits)
		if err != nil {
			return call.Failure(err)
		}
		result := struct {
			client.LockInfo
			Created bool `json:"created"`
		}{lock, created}
		return a.print(result, func(w io.Writer) {
			what := "%s exists, %s\n"
			if created {
				what = "created %s, %s\n"
			}
			fmt.Fprintf(w, what, text.Printable(lock.Name), render.Count(lock.Permits, "permit"))
		})
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print the result as JSON")
	cmd.Flags().IntVar(&permits, "permits", 1, "allow `N` hosts to hold it at once")
}

func defineRemove(a *app, cmd *cobra.Command) {
	var o client.RemoveOptions
	cmd.Long = `Remove the lock NAME with its permits and its value, so that its place in the lock
directory becomes free.

The lock is removed when it has no holder: bakeryctl rm waits in the queue as
bakeryctl lock does, unless -n or -w is given. Removal does not forbid the name: a
client that waits for the lock, or requests it later, creates it again, with one
permit. Tokens continue to increase.

If this host dies during the removal, the next host that uses the lock completes
the removal and creates the lock again.

Exit codes:
  0   the lock is removed
  1   there is no such lock, or it was not free immediately (-n) or in time (-w)
  64  the command line is wrong
  66  the device or its lockspace is not usable
  69  bakeryd is unreachable, or refuses
  77  permission denied: only for root and the user of bakeryd`
	cmd.Example = `  bakeryctl rm old-batch
  bakeryctl rm -n old-batch
  bakeryctl rm -w 30s reboot && bakeryctl create reboot --permits 3`
	cmd.ValidArgsFunction = a.completeLock

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("timeout") && o.Timeout == 0 {
			o.NonBlock = true // as with lock
		}
		if err := client.New(a.socket).Remove(cmd.Context(), args[0], o); err != nil {
			f := call.Failure(err)
			if f.Code == cli.ExitConflict && f.Hint == "" {
				f.Hint = "run bakeryctl status to see its holders"
			}
			return f
		}
		return a.print(map[string]string{"name": args[0]}, func(w io.Writer) { fmt.Fprintf(w, "removed %s\n", text.Printable(args[0])) })
	}
	cmd.Flags().BoolVarP(&o.NonBlock, "nonblock", "n", false, "give up immediately if it is not free")
	cmd.Flags().VarP((*cli.Wait)(&o.Timeout), "timeout", "w", "give up after `TIME`: seconds, such as 1.5, or 300ms, 5m, 1h30m")
	cmd.Flags().BoolVar(&a.json, "json", false, "print the result as JSON")
}

func defineRequest(a *app, cmd *cobra.Command) {
	var message string
	cmd.Long = `Ask the holders of the lock NAME, on any host, to give it up. The request goes
through the disk and arrives within about a second. The holders decide what to do:
bakeryctl lock --on-request sends their command a signal, or runs another command;
without it nothing happens. Clients that acquire the lock later are not asked.

request does not acquire the lock and does not wait for it. For that, run bakeryctl
lock, before or after.

Exit codes:
  0   the holders are asked
  1   the lock has no holder, or there is no such lock
  64  the command line is wrong
  66  the device or its lockspace is not usable
  69  bakeryd is unreachable, or refuses
  77  permission denied: this user may not use the lock`
	cmd.Example = `  # Stop the backup that runs under  bakeryctl lock --on-request TERM nightly-backup.
  bakeryctl request nightly-backup --message 'need the bandwidth'
  bakeryctl lock nightly-backup -- /usr/local/bin/restore

  bakeryctl request leader --json | jq -r '.asked[].host_name'`
	cmd.ValidArgsFunction = a.completeLock

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := layout.ValidateRequest(message); err != nil {
			return cli.Usage("request", "%w", err)
		}
		body := map[string]string{"name": args[0], "message": message}
		var answer struct {
			Asked []locks.Asked `json:"asked"`
		}
		if err := call.Ask(cmd.Context(), a.socket, "POST", "/v1/request", body, &answer); err != nil {
			return err
		}
		return a.print(answer, func(w io.Writer) {
			for _, holder := range answer.Asked {
				fmt.Fprintf(w, "asked %s, token %v\n", text.HostName(holder.Host, holder.HostName), holder.Token)
			}
		})
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	cmd.Flags().StringVarP(&message, "message", "m", "", fmt.Sprintf("send `TEXT` to the holders, at most %d bytes", layout.MaxRequest))
}

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
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// All output but the result goes to standard error.
		ctx := cmd.Context()
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
