package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/stress"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	maxMaxTicket = 1 << 16

	// debugHold is the length of critical sections with --debug, so that workers wait for each other.
	debugHold = time.Millisecond
)

// stressOptions are the options of the command line.
type stressOptions struct {
	stress.Config
	backend   string
	maxTicket uint64 // 0: not given
	name      string
	sockets   []string
}

func defineStress(a *app, cmd *cobra.Command) {
	var o stressOptions
	var debug bool
	cmd.Long = `Make workers acquire a lock repeatedly. Under the lock each worker increments a counter that has no other protection,
so two workers inside at once lose a count. At the end stress compares the counter with the expected value. The lock is

  memory   in the memory of this process: every worker runs the same protocol as bakeryd on a disk, as a host of
           its own, with machine words as slots. With --debug it shows every step of the bakery algorithm.
  PATH     on a lockspace: every worker joins as a host, so enough host ids must be free. A lockspace is created
           only in a file that does not exist; the file remains. The path must contain a slash.
  daemon   of bakeryd: the workers are its clients. Several --socket share the workers.

Iterations are those of each worker. Max ticket is the largest number drawn. In memory it is Lamport's
number, counted from 1; on a disk it starts at the clock.

With --max-ticket N all numbers stay below N. When they approach N, no worker starts to choose until all
others have reset their numbers to zero; then numbers start at 1 again. bakeryd never does this: its numbers last
beyond the year 2110, and a restart would decrease the fencing tokens.

Exit codes:
  0    passed
  1    the counter is wrong, two workers were inside at once, tokens decreased, or stress was interrupted:
       the results until then are printed
  64   the command line is wrong
  66   the device or its lockspace is not usable
  69   bakeryd is unreachable, or refuses
  77   permission denied: this user may not use the lock`
	cmd.Example = `  # Show each step: which worker waits for which.
  bakeryctl stress --debug --workers 3 --iterations 5

  # Sixteen million critical sections, with 16-bit numbers.
  bakeryctl stress --workers 16 --iterations 1000000 --max-ticket 65536

  # Four hosts on a file, or on a formatted device.
  bakeryctl stress --backend ./demo.img --workers 4 --iterations 50

  # Clients of two daemons.
  bakeryctl stress --backend daemon --socket a.sock --socket b.sock`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		given := cmd.Flags().Changed
		if debug {
			o.Debug = a.stderr
			if !given("hold") {
				o.Hold = debugHold
			}
		}
		if err := o.check(given); err != nil {
			return cli.Usage("stress", "%w", err)
		}
		return a.stress(cmd.Context(), o)
	}
	f := cmd.Flags()
	f.StringVar(&o.backend, "backend", "memory", "where the lock is: memory, daemon, or the `PATH` of a lockspace")
	f.IntVar(&o.Workers, "workers", 4, "use `N` workers")
	f.IntVar(&o.Iterations, "iterations", 1000, "acquire the lock `N` times per worker")
	f.Uint64Var(&o.maxTicket, "max-ticket", 0, "keep all numbers below `N`, at most 65536; in memory only")
	f.Var((*cli.Wait)(&o.Hold), "hold", "stay inside for `TIME`: seconds, or 5ms; with --debug 1ms unless given (default 0)")
	f.StringVar(&o.name, "name", "bakeryctl-stress", "`NAME` of the lock on a lockspace")
	f.StringArrayVar(&o.sockets, "socket", []string{call.DefaultSocket()}, "`PATH` of a bakeryd's socket; also from BAKERY_SOCKET; may be repeated")
	f.BoolVar(&debug, "debug", false, "print each step of the workers on standard error")
	f.BoolVar(&a.json, "json", false, "print the result as JSON")
}

func (o *stressOptions) check(given func(flag string) bool) error {
	inMemory, byDaemon := o.backend == "memory", o.backend == "daemon"
	switch {
	case !inMemory && !byDaemon && !strings.Contains(o.backend, "/"):
		return fmt.Errorf("--backend %q, want memory, daemon, or a path with a slash, such as ./%s", o.backend, o.backend)
	case given("max-ticket") && !inMemory:
		return errors.New("--max-ticket requires --backend memory: on a lockspace numbers must not restart, because tokens must increase")
	case given("max-ticket") && (o.maxTicket < stress.LeastMaxTicket(o.Workers) || o.maxTicket > maxMaxTicket):
		return fmt.Errorf("--max-ticket %d, want %d to %d for %d workers", o.maxTicket, stress.LeastMaxTicket(o.Workers), maxMaxTicket, o.Workers)
	case given("socket") && !byDaemon:
		return errors.New("--socket requires --backend daemon")
	case given("name") && inMemory:
		return errors.New("--name and --backend memory exclude each other")
	}
	return layout.ValidateLockName(o.name)
}

// stress runs the workers and prints the result.
func (a *app) stress(ctx context.Context, o stressOptions) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends this process
	backend, err := a.stressBackend(ctx, o)
	if err != nil {
		return a.stressFailure(o, err)
	}
	r, err := stress.Run(ctx, o.Config, backend)
	if r != nil && (err == nil || ctx.Err() != nil || r.Observed > 0) {
		shown := stressReport{Backend: o.backend, Bound: o.maxTicket, Passed: r.Passed() && err == nil, Result: r}
		if err := a.print(shown, shown.show); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return &cli.Failure{Code: cli.ExitConflict, Err: errors.New("interrupted")}
	case err != nil:
		return a.stressFailure(o, err)
	case !r.Passed():
		return &cli.Failure{Code: cli.ExitConflict}
	}
	return nil
}

func (a *app) stressBackend(ctx context.Context, o stressOptions) (stress.Backend, error) {
	switch o.backend {
	case "memory":
		return stress.Memory(o.maxTicket), nil
	case "daemon":
		return stress.Clients(o.sockets, o.name), nil
	}
	return stress.Device(o.backend, o.name, ondevice.Logger(a.stderr)), ondevice.Create(ctx, o.backend)
}

func (a *app) stressFailure(o stressOptions, err error) error {
	switch {
	case errors.Is(err, stress.ErrInvalid), errors.Is(err, api.ErrInvalid):
		return cli.Usage("stress", "%w", err)
	case o.backend == "daemon":
		return call.Refused(err, cli.ExitConflict)
	}
	return ondevice.Failure(err)
}

// stressReport is the output of a run.
type stressReport struct {
	Backend string `json:"backend"`
	*stress.Result
	Bound  uint64 `json:"bound,omitempty"`
	Passed bool   `json:"passed"`
}

func (r stressReport) show(w io.Writer) {
	fmt.Fprintf(w, "Workers:\t%d\nIterations:\t%d\n", r.Workers, r.Iterations)
	fmt.Fprintf(w, "Expected:\t%d\nObserved:\t%d\nMax ticket:\t%d\n", r.Expected, r.Observed, r.MaxTicket)
	if r.Bound > 0 {
		fmt.Fprintf(w, "Drains:\t%d\n", r.Drains)
	}
	if r.Overlaps > 0 {
		fmt.Fprintf(w, "Overlaps:\t%d\n", r.Overlaps)
	}
	if r.Disordered > 0 {
		fmt.Fprintf(w, "Disordered:\t%d\n", r.Disordered)
	}
	fmt.Fprintf(w, "Passed:\t%s\n", map[bool]string{true: "yes", false: "no"}[r.Passed])
}
