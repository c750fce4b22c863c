// Package bench measures how fast locks are, next to the least that the device allows: the floor.
// It provides the hosts, the lock and the commands, removes them at the end, and prints the result.
// A child process serves a lockspace as bakeryd does, for which it imports package daemon. It
// knows no flags.
//
// Measurements that are compared alternate in small batches within one run, so that a machine or a
// disk that becomes slower affects both. Begin with [Run]. measure.go lists the measurements:
// paired.go measures the lock of a single client next to its floor and the toy, relay.go the
// hand-over between hosts, handoff.go that between clients of one host, commands.go the start of a
// command under a lock. toy.go is the toy, the least that a socket costs.
package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/lock"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/load"
	"github.com/bakeryd/bakeryd/daemon/report"
)

const (
	leastBench = 10 * time.Millisecond
	mostBench  = time.Hour

	// removeWithin is the timeout for removing the lock.
	removeWithin = 10 * time.Second
)

// Options select what to measure, and where.
type Options struct {
	Devices  []string // disks of the lockspace; none: ask bakeryd
	Socket   string   // of bakeryd
	Duration time.Duration
	Only     []string  // measurements; nil: all
	Stderr   io.Writer // receives the progress line and warnings
}

// Check returns an error if the options are invalid. given reports whether a flag was given.
func (o *Options) Check(given func(flag string) bool) error {
	unknown := slices.IndexFunc(o.Only, func(name string) bool { return !slices.Contains(Names, name) })
	switch {
	case o.Duration < leastBench || o.Duration > mostBench:
		return fmt.Errorf("--duration %v: want %v to %v", o.Duration, leastBench, mostBench)
	case given("only") && len(o.Only) == 0:
		return fmt.Errorf("--only is empty, want some of %s", strings.Join(Names, ", "))
	case unknown >= 0:
		return fmt.Errorf("--only %q: want some of %s", o.Only[unknown], strings.Join(Names, ", "))
	}
	return nil
}

// wants reports whether a measurement is selected.
func (o *Options) wants(name string) bool { return o.Only == nil || slices.Contains(o.Only, name) }

// Run measures, and removes the lock, hosts and child that it created.
func Run(ctx context.Context, o Options) (*Report, error) {
	p := render.StartProgress(o.Stderr)
	p.Begin("joining the lockspace", 0)
	b := &benching{run: newRun(ctx, o), stderr: p.Log()}
	b.progress = p
	err := b.measureAll()
	p.Stop()
	if err := errors.Join(failure(ctx, err), b.end()); err != nil {
		return nil, err
	}
	return b.res, nil
}

// benching is a run with all that it must remove at the end.
type benching struct {
	*run
	stderr io.Writer // shares the terminal with the progress line
	lock   string    // empty: not created

	children []*child
	joined   []*daemon.Host // in this process
}

func (b *benching) measureAll() error {
	if len(b.Devices) > 0 {
		c, err := b.startChild(append([]string{HostCommand}, b.Devices...)...)
		if err != nil {
			return err
		}
		b.Socket = c.socket
	}
	toy, err := b.startChild(ToyCommand)
	if err != nil {
		return err
	}
	defer context.AfterFunc(b.ctx, func() { _ = toy.stdin.Close() })() // its clients then wait no longer
	b.toy = (&toyClient{socket: toy.socket}).lock
	status, err := show.Ask(b.ctx, b.Socket)
	if err != nil {
		return call.OrDevice(err)
	}
	b.res.describe(status)
	if b.wants(inProcess) || b.wants(handOver) || b.wants(handOff) {
		if err := b.join(devicesOf(status)); err != nil {
			return err
		}
	}
	if err := b.create(); err != nil {
		return err
	}
	b.bakeryd = served(b.Socket, b.lock)
	for _, d := range b.joined {
		b.inside = append(b.inside, joined(d, b.lock))
	}
	if b.wants(wrapper) {
		flock, err := os.CreateTemp("", "bakeryctl-bench")
		if err != nil {
			return err
		}
		defer os.Remove(flock.Name())
		defer flock.Close()
		b.findCommands(flock.Name())
	}
	return b.measure()
}

// devicesOf returns the paths of the disks that the bakeryd in use reaches.
func devicesOf(status *report.Report) (paths []string) {
	for _, d := range status.Disks {
		if d.Device != "" {
			paths = append(paths, d.Device)
		}
	}
	if paths == nil {
		paths = []string{status.Lockspace.Device}
	}
	return paths
}

// join joins the lockspace as hosts in this process: one next to the bakeryd in use, two next to a
// child. If that fails, it records what cannot be measured.
func (b *benching) join(devices []string) (err error) {
	n := 1
	if len(b.Devices) > 0 {
		n = 2
	}
	b.joined, err = load.Join(b.ctx, n, daemon.Config{Devices: devices, Logger: ondevice.Logger(b.stderr)})
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	if len(b.joined) == 0 {
		b.why[inProcess] = whyNotJoined(err)
		b.why[handOver] = b.why[inProcess]
	}
	return nil
}

// whyNotJoined returns why this process could not join, and the remedy.
func whyNotJoined(err error) string {
	remedy := ""
	switch {
	case errors.Is(err, lease.ErrFull):
		remedy = "; stop a host, or format for more --hosts"
	case errors.Is(err, fs.ErrNotExist):
		remedy = "; run it where the device of bakeryd is visible"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		remedy = "; run it as root, or as the user of bakeryd"
	}
	return "this process could not join as a host: " + err.Error() + remedy
}

func (b *benching) create() error {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	name := fmt.Sprintf("bakeryctl-bench-%d-%x", os.Getpid(), random)
	// A user without permission to remove the lock must not create it, because it would remain.
	if err := b.removeByBakeryd(name); err != nil {
		return err
	}
	b.lock = name // it may be created even if the answer is lost
	_, _, err := client.New(b.Socket).Create(b.ctx, name, 1)
	return err
}

// findCommands finds the commands that the wrapper is compared with, or why it cannot be measured.
func (b *benching) findCommands(flocked string) {
	alone, err := exec.LookPath("true")
	if err != nil {
		b.why[wrapper] = "find true(1): " + err.Error()
		return
	}
	self, err := os.Executable()
	if err != nil {
		b.why[wrapper] = "find the path of bakeryctl: " + err.Error()
		return
	}
	b.locked = command{lock.Program(self), []string{os.Args[0], "lock", "--socket", b.Socket, b.lock, "--", alone}}
	b.alone = command{alone, []string{"true"}}
	if flock, err := exec.LookPath("flock"); err != nil {
		b.why[flockName] = "flock(1) not found; install util-linux"
	} else {
		b.flock = command{flock, []string{"flock", flocked, alone}}
	}
}

// end removes the lock, and then the hosts, because a host must remove the lock.
func (b *benching) end() error {
	errs := []error{b.remove()}
	var leaving errgroup.Group
	for _, d := range b.joined {
		leaving.Go(func() error { return ondevice.Leave(d) })
	}
	errs = append(errs, leaving.Wait())
	for _, c := range b.children {
		errs = append(errs, c.end())
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
	err := b.removeByBakeryd(b.lock)
	for _, d := range b.joined {
		if err != nil && removeWith(func(ctx context.Context) error { return d.RemoveIfNoValue(ctx, b.lock, false) }) == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("remove the lock %s, which remains: %w", b.lock, err)
	}
	return nil
}

func (b *benching) removeByBakeryd(lock string) error {
	return removeWith(func(ctx context.Context) error {
		return client.New(b.Socket).Remove(ctx, lock, client.RemoveOptions{Timeout: removeWithin, IfNoValue: true})
	})
}

// removeWith removes a lock within removeWithin. A missing lock is no error.
func removeWith(remove func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	if err := remove(ctx); !errors.Is(err, api.ErrNoLock) {
		return err
	}
	return nil
}

// failure returns the error of a bench with its exit code and hint.
func failure(ctx context.Context, err error) error {
	by, interrupted := errors.AsType[signals.Interruption](context.Cause(ctx))
	f, failed := errors.AsType[*cli.Failure](err)
	_, refused := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		return nil
	case interrupted:
		return &cli.Failure{Code: cli.ExitSignal + int(by.Signal)}
	case failed:
		return f
	case refused, errors.Is(err, client.ErrUnreachable), errors.Is(err, client.ErrProtocol):
		return call.Failure(err)
	}
	return ondevice.Failure(err)
}
