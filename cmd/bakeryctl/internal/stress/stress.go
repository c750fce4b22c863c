// Package stress runs workers that acquire a lock repeatedly, by package daemon/stress, and prints the result. It
// knows no flags.
package stress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/stress"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// MaxMaxTicket is the highest limit of numbers.
const MaxMaxTicket = 1 << 16

// Options are the options of the command line.
type Options struct {
	stress.Config
	Backend   string // memory, daemon, or a path
	MaxTicket int    // 0: not given
	Name      string // of the lock
	Sockets   []string
	Stderr    io.Writer // receives warnings
}

// Check returns an error if the options are invalid. given reports whether a flag was given.
func (o *Options) Check(given func(flag string) bool) error {
	least := int(stress.LeastMaxTicket(o.Workers))
	inMemory, byDaemon := o.Backend == "memory", o.Backend == "daemon"
	switch {
	case !inMemory && !byDaemon && !strings.Contains(o.Backend, "/"):
		return fmt.Errorf("--backend %q: want memory, daemon, or a path with a slash, such as ./%s", o.Backend, o.Backend)
	case given("max-ticket") && !inMemory:
		return errors.New("--max-ticket requires --backend memory: on a lockspace numbers must not restart, because tokens must increase")
	case given("max-ticket") && (o.MaxTicket < least || o.MaxTicket > MaxMaxTicket):
		return fmt.Errorf("--max-ticket %d: want %d to %d for %d workers", o.MaxTicket, least, MaxMaxTicket, o.Workers)
	case given("socket") && !byDaemon:
		return errors.New("--socket requires --backend daemon")
	case given("name") && inMemory:
		return errors.New("--name and --backend memory exclude each other")
	}
	return layout.ValidateLockName(o.Name)
}

// Run runs the workers. With an error it also returns the report until then, if work had begun.
func Run(ctx context.Context, o Options) (*Report, error) {
	backend, err := o.open(ctx)
	if err != nil {
		return nil, o.failure(err)
	}
	o.Remains = func(err error) {
		hint := "run bakeryctl rm %s, as root or the user of bakeryd"
		if errors.Is(err, api.ErrValue) {
			hint = "run bakeryctl value get %s to see the value, which another client has set"
		}
		fmt.Fprintf(o.Stderr, "bakeryctl: warning: the lock %q remains: %v\nhint: "+hint+"\n", o.Name, err, text.Printable(o.Name))
	}
	r, err := stress.Run(ctx, o.Config, backend)
	var report *Report
	if r != nil && (err == nil || ctx.Err() != nil || r.Observed > 0) {
		report = &Report{Backend: o.Backend, Bound: o.MaxTicket, Passed: r.Passed() && err == nil, Result: r}
	}
	switch {
	case ctx.Err() != nil:
		return report, &cli.Failure{Code: cli.ExitConflict, Err: errors.New("interrupted")}
	case err != nil:
		return report, o.failure(err)
	}
	return report, nil
}

// open returns the backend, and creates the lockspace of a new file.
func (o *Options) open(ctx context.Context) (stress.Backend, error) {
	switch o.Backend {
	case "memory":
		return stress.Memory(uint64(o.MaxTicket)), nil
	case "daemon":
		return stress.Clients(o.Sockets, o.Name), nil
	}
	return stress.Device(o.Backend, o.Name, ondevice.Logger(o.Stderr)), ondevice.Create(ctx, o.Backend)
}

func (o *Options) failure(err error) error {
	switch {
	case errors.Is(err, stress.ErrInvalid), errors.Is(err, api.ErrInvalid):
		return cli.Usage("stress", "%w", err)
	case o.Backend == "daemon":
		return call.Failure(err)
	}
	return ondevice.Failure(err)
}

// Report is the output of a run.
type Report struct {
	Backend string `json:"backend"` // where the lock is
	*stress.Result
	Bound  int  `json:"bound,omitempty"` // with --max-ticket
	Passed bool `json:"passed"`          // whether mutual exclusion held
}

// Show writes the report as text.
func (r *Report) Show(w io.Writer) {
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
