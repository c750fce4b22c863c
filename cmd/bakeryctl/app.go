package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/acquire"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

// app is the environment of all commands.
type app struct {
	stdin             io.Reader
	stdout, stderr    io.Writer
	socket            string        // of bakeryd
	colour            render.Colour // of text output
	json              bool          // print JSON instead of text
	device            string        // read instead of asking bakeryd; empty: ask bakeryd
	completionTimeout time.Duration // of bakeryd, for shell completion
}

// envSocket returns the default of the flag --socket.
func envSocket() string { return cmp.Or(os.Getenv("BAKERY_SOCKET"), client.DefaultSocket) }

// colourFlag adds the flag --color to a command.
func (a *app) colourFlag(cmd *cobra.Command) {
	cmd.Flags().Var(&a.colour, "color", "use colours: `auto|always|never`; auto: on a terminal, unless NO_COLOR is set")
}

// paint returns the colours for standard output.
func (a *app) paint() render.Paint { return render.Paint(a.colour.On(a.stdout, os.Getenv)) }

// print writes v to standard output as JSON with --json, or otherwise by calling text.
func (a *app) print(v any, text func(w io.Writer) error) error {
	if a.json {
		return render.WriteJSON(a.stdout, v)
	}
	return text(a.stdout)
}

// judge prints v, and returns a failure without a message unless ok is true: the output says why.
func (a *app) judge(ok bool, v any, text func(w io.Writer) error) error {
	if err := a.print(v, text); err != nil || ok {
		return err
	}
	return &cli.Failure{Code: cli.ExitConflict}
}

// interruptible returns a context that SIGINT or SIGTERM ends.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// one accepts exactly one argument that check, unless nil, accepts.
func one(what string, check func(string) error) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		command := strings.TrimPrefix(cmd.CommandPath(), "bakeryctl ")
		if len(args) != 1 {
			return cli.Usage(command, "%s takes one %s, not %d", command, what, len(args))
		}
		if check != nil {
			if err := check(args[0]); err != nil {
				return cli.Usage(command, "%w", err)
			}
		}
		return nil
	}
}

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

// period is the value of the flags --since and --until.
type period struct{ since, until string }

// parse returns the two times; a zero time is no limit.
func (p period) parse(now time.Time) (from, until time.Time, err error) {
	if p.since != "" {
		if from, err = cli.ParseMoment(p.since, now); err != nil {
			return from, until, fmt.Errorf("--since: %w", err)
		}
	}
	if p.until != "" {
		if until, err = cli.ParseMoment(p.until, now); err != nil {
			return from, until, fmt.Errorf("--until: %w", err)
		}
		if !until.After(from) {
			err = fmt.Errorf("--until %s is not after --since %s", show.EventTime(until), show.EventTime(from))
		}
	}
	return from, until, err
}

// takeOptions are the options that lock and hold have in common.
type takeOptions struct {
	acquire.Request
	shared, exclusive bool // from the command line; resolve sets Mode from them
}

func (o *takeOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&o.exclusive, "exclusive", "x", false, "hold it alone (the default)")
	f.BoolVarP(&o.shared, "shared", "s", false, "share it with other holders")
	f.BoolVarP(&o.NonBlock, "nonblock", "n", false, "give up immediately if it is not free")
	f.VarP((*cli.Wait)(&o.Timeout), "timeout", "w", "give up after `TIME`: seconds, such as 1.5, or 300ms, 5m, 1h30m")
	f.IntVarP(&o.Conflict, "conflict-exit-code", "E", cli.ExitConflict, "exit with `N` after giving up")
}

// resolve validates the parsed flags and completes the request.
func (o *takeOptions) resolve(cmd *cobra.Command) error {
	if o.shared && o.exclusive {
		return cli.Usage(cmd.Name(), "--shared and --exclusive exclude each other")
	}
	if o.shared {
		o.Mode = layout.Shared
	}
	if cmd.Flags().Changed("timeout") && o.Timeout == 0 {
		o.NonBlock = true // as with flock(1)
	}
	if o.Conflict < 0 || o.Conflict > 255 {
		return cli.Usage(cmd.Name(), "--conflict-exit-code %d, want 0 to 255", o.Conflict)
	}
	return nil
}
