// Package bench measures the speed of locks on this machine and prints it. It provides the hosts,
// the lock and the commands that package daemon/bench measures, and removes them at the end. A
// child process serves a lockspace as bakeryd does, for which it imports package daemon. It knows
// no flags.
package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/bench"
	"github.com/bakeryd/bakeryd/daemon/client"
)

const (
	leastBench = 10 * time.Millisecond
	mostBench  = time.Hour

	// removeWithin is the timeout for removing the lock.
	removeWithin = 10 * time.Second
)

// Options select what to measure, and where.
type Options struct {
	Device   string // empty: ask bakeryd
	Socket   string // of bakeryd
	Duration time.Duration
	Only     []string
	Stderr   io.Writer // receives the progress line and warnings
}

// Check returns an error if the options are invalid. given reports whether a flag was given.
func (o *Options) Check(given func(flag string) bool) error {
	names := make([]string, len(bench.Names))
	for i, n := range bench.Names {
		names[i] = string(n)
	}
	unknown := func(name string) bool { return !slices.Contains(names, name) }
	switch {
	case given("device") && o.Device == "":
		return errors.New("--device is empty, want the path of a lockspace")
	case given("device") && given("socket"):
		return errors.New("--device and --socket exclude each other: with --device no bakeryd is asked")
	case o.Duration < leastBench || o.Duration > mostBench:
		return fmt.Errorf("--duration %v, want %v to %v", o.Duration, leastBench, mostBench)
	case given("only") && len(o.Only) == 0:
		return fmt.Errorf("--only is empty, want some of %s", strings.Join(names, ", "))
	case slices.ContainsFunc(o.Only, unknown):
		return fmt.Errorf("--only %q, want some of %s", o.Only[slices.IndexFunc(o.Only, unknown)], strings.Join(names, ", "))
	}
	return nil
}

// wants reports whether one of these is selected.
func (o *Options) wants(names ...bench.Name) bool {
	return o.Only == nil || slices.ContainsFunc(names, func(n bench.Name) bool { return slices.Contains(o.Only, string(n)) })
}

// Run measures, and removes the lock, hosts and child that it created.
func Run(ctx context.Context, o Options) (*Report, error) {
	p := render.StartProgress(o.Stderr)
	b := &benching{o: o, stderr: p.Log(), socket: o.Socket, why: map[bench.Name]string{}}
	p.Begin("joining the lockspace", 0)
	b.begun = func(name bench.Name, lasts time.Duration) { p.Begin("measuring "+string(name), lasts) }
	r, err := b.run(ctx)
	p.Stop()
	if err := errors.Join(failure(ctx, err), b.end()); err != nil {
		return nil, err
	}
	return r, nil
}

// benching is a running bench with all that it must remove at the end.
type benching struct {
	o      Options
	stderr io.Writer // shares the terminal with the progress line; the child writes to o.Stderr
	socket string
	lock   string // empty: not created
	child  *child
	inside []*daemon.Host
	why    map[bench.Name]string // why something cannot be measured
	begun  func(bench.Name, time.Duration)
}

func (b *benching) run(ctx context.Context) (*Report, error) {
	if b.o.Device != "" {
		if err := b.startChild(ctx); err != nil {
			return nil, err
		}
	}
	before, err := show.Ask(ctx, b.socket)
	if err != nil {
		return nil, call.OrDevice(err)
	}
	if b.o.wants(bench.InProcess, bench.HandOver, bench.HandOff) {
		if err := b.join(ctx, before.Lockspace.Device); err != nil {
			return nil, err
		}
	}
	if err := b.create(ctx); err != nil {
		return nil, err
	}
	cfg := bench.Config{Bakeryd: bench.Served(b.socket, b.lock), Duration: b.o.Duration, Why: b.why, Begun: b.begun}
	for _, name := range b.o.Only {
		cfg.Only = append(cfg.Only, bench.Name(name))
	}
	for _, d := range b.inside {
		cfg.Inside = append(cfg.Inside, bench.Joined(d, b.lock))
	}
	if b.o.wants(bench.Wrapper) {
		flock, err := os.CreateTemp("", "bakeryctl-bench")
		if err != nil {
			return nil, err
		}
		defer os.Remove(flock.Name())
		defer flock.Close()
		cfg.Commands = b.commands(flock.Name())
	}
	result, err := bench.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return newReport(before, result), nil
}

func (b *benching) create(ctx context.Context) error {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	name := fmt.Sprintf("bakeryctl-bench-%d-%x", os.Getpid(), random)
	// A user without permission to remove the lock must not create it, because it would remain.
	if err := removeBy(b.socket, name); err != nil {
		return err
	}
	b.lock = name // it may be created even if the answer is lost
	_, _, err := client.New(b.socket).Create(ctx, name, 1)
	return err
}

// commands returns the commands that the wrapper is compared with, or nil if it cannot be measured.
func (b *benching) commands(flocked string) *bench.Commands {
	alone, err := exec.LookPath("true")
	if err != nil {
		b.why[bench.Wrapper] = "find true(1): " + err.Error()
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		b.why[bench.Wrapper] = "find the path of bakeryctl: " + err.Error()
		return nil
	}
	c := &bench.Commands{
		Locked: bench.Command{Path: self, Args: []string{os.Args[0], "--socket", b.socket, "lock", b.lock, "--", alone}},
		True:   bench.Command{Path: alone, Args: []string{"true"}},
	}
	if flock, err := exec.LookPath("flock"); err != nil {
		c.NoFlock = "flock(1) not found; install util-linux"
	} else {
		c.Flock = bench.Command{Path: flock, Args: []string{"flock", flocked, alone}}
	}
	return c
}

// end removes the lock, and then the hosts, because a host must remove the lock.
func (b *benching) end() error {
	errs := []error{b.remove()}
	var leaving errgroup.Group
	for _, d := range b.inside {
		leaving.Go(func() error { return ondevice.Leave(d) })
	}
	errs = append(errs, leaving.Wait())
	if b.child != nil {
		errs = append(errs, b.child.end())
	}
	if err := errors.Join(errs...); err != nil {
		return &cli.Failure{Code: cli.ExitUnavailable, Err: err}
	}
	return nil
}

// remove removes the lock by bakeryd or, if that fails, by a host in this process.
func (b *benching) remove() error {
	if b.lock == "" {
		return nil
	}
	err := removeBy(b.socket, b.lock)
	for _, d := range b.inside {
		if err == nil {
			break
		}
		ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
		if e := d.Remove(ctx, b.lock, false); e == nil || errors.Is(e, api.ErrNoLock) {
			err = nil
		}
		cancel()
	}
	if err != nil {
		return fmt.Errorf("remove the lock %s, which remains: %w", b.lock, err)
	}
	return nil
}
