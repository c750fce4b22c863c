package main

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

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/bench"
	"github.com/bakeryd/bakeryd/daemon/client"
)

const benchLong = `Measure how fast locks are here, beside the floor: the same raw requests on the same device with nothing in between.
What is compared takes turns in one run, so that a disk that becomes slower meanwhile does so for both.

  floor        write the own slot, read the slots of the hosts that exist, write the own slot
  uncontended  have a lock that nobody else wants and let it go, through bakeryd
  in_process   the same by a host in this process, without a socket
  handover     from a host's beginning to let go until another one has the lock, which has waited for it; its floor
               is one write and two reads
  handoff      how often in a second the lock passes between 8 clients of one host, while no other host wants it:
               through bakeryd, and in this process
  wrapper      bakeryctl lock NAME -- true from its start to its end, beside flock FILE true, and true alone

The bakeryd that runs is asked, and this process joins as one more host for in_process and handover, if it may open
the device and there is an id for it. With --device no bakeryd is needed: a child process serves as one for the time,
and this process joins twice. What cannot be measured is left out, and why is told.

All is done with a lock of its own, bakeryctl-bench-PID-RANDOM, which is removed at the end, also when interrupted.
Who is killed leaves it: bakeryctl rm. The floor is measured for root and the user of bakeryd only.

Exit codes:
  0      measured
  64     the command line is wrong
  66     the device or its lockspace is not usable, or the lock directory is full
  69     bakeryd is unreachable, or refuses
  77     this user may not: it is for root and the user of bakeryd
  128+N  signal N ended it`

const benchExample = `  bakeryctl bench
  bakeryctl bench --device ./demo.img
  bakeryctl bench --only handover --duration 10s
  bakeryctl bench --json | jq '.uncontended.p50_us, .floor.p50_us'`

const (
	leastBench = 10 * time.Millisecond
	mostBench  = time.Hour

	// removeWithin bounds how long it may take to remove the lock.
	removeWithin = 10 * time.Second
)

// benchOptions are what the command line says.
type benchOptions struct {
	device   string // empty: ask bakeryd
	duration time.Duration
	only     []string
	json     bool
}

func newBench(a *app) *cobra.Command {
	o := benchOptions{duration: 2 * time.Second}
	duration := waitFlag{limit: o.duration}
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure how fast locks are here, beside what the device allows",
		Long:    benchLong,
		Example: benchExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.duration = duration.limit
			if err := o.check(cmd.Flags().Changed); err != nil {
				return &failure{code: exitUsage, err: err, hint: "see bakeryctl bench --help"}
			}
			return a.bench(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.device, "device", "", "measure on the lockspace at `PATH`, without bakeryd")
	f.Var(&duration, "duration", "for how long each measurement runs, as `TIME`: seconds, or 300ms")
	f.StringSliceVar(&o.only, "only", nil, "no others than `NAME`, as handover,wrapper; may be given again")
	f.BoolVar(&o.json, "json", false, "show it as JSON")
	return cmd
}

func (o *benchOptions) check(given func(flag string) bool) error {
	names := make([]string, len(bench.Names))
	for i, n := range bench.Names {
		names[i] = string(n)
	}
	unknown := func(name string) bool { return !slices.Contains(names, name) }
	switch {
	case given("device") && o.device == "":
		return errors.New("--device is empty, want the path of a lockspace")
	case given("device") && given("socket"):
		return errors.New("--device and --socket exclude each other: with --device no bakeryd is asked")
	case o.duration < leastBench || o.duration > mostBench:
		return fmt.Errorf("--duration %v, want %v to %v", o.duration, leastBench, mostBench)
	case given("only") && len(o.only) == 0:
		return fmt.Errorf("--only is empty, want some of %s", strings.Join(names, ", "))
	case slices.ContainsFunc(o.only, unknown):
		return fmt.Errorf("--only %q, want some of %s", o.only[slices.IndexFunc(o.only, unknown)], strings.Join(names, ", "))
	}
	return nil
}

// wants tells whether one of these is to be measured.
func (o *benchOptions) wants(names ...bench.Name) bool {
	return o.only == nil || slices.ContainsFunc(names, func(n bench.Name) bool { return slices.Contains(o.only, string(n)) })
}

// bench measures, and shows what came out.
func (a *app) bench(ctx context.Context, o benchOptions) (err error) {
	signals := openInbox(inheritedSignals())
	defer func() { signals.close(err) }()
	ctx, listen := signals.interrupts(ctx)
	defer listen()
	p := a.progress()
	own := *a
	own.stderr = p.log(a.stderr)
	b := &benching{app: &own, console: a.stderr, o: o, socket: a.socket, why: map[bench.Name]string{}}
	p.begin("joining the lockspace", 0)
	b.begun = func(name bench.Name, lasts time.Duration) { p.begin("measuring "+string(name), lasts) }
	report, err := b.run(ctx)
	p.stop()
	err = errors.Join(a.benchFailure(ctx, o, err), b.end())
	if err != nil {
		return err
	}
	if o.json {
		return writeJSON(a.stdout, report)
	}
	return showBench(a.stdout, report)
}

// benching is a bench under way, and what it has to leave as it was.
type benching struct {
	*app
	o      benchOptions
	socket string
	lock   string // empty: it was not made
	child  *benchChild
	inside []*daemon.Daemon
	why    map[bench.Name]string // what cannot be measured
	begun  func(bench.Name, time.Duration)

	console io.Writer // of the child, which writes by itself
}

func (b *benching) run(ctx context.Context) (*benchReport, error) {
	if b.o.device != "" {
		if err := b.startChild(ctx); err != nil {
			return nil, err
		}
	}
	asked := *b.app
	asked.socket = b.socket
	before, err := asked.status(ctx, "")
	if err != nil {
		return nil, err
	}
	if b.o.wants(bench.InProcess, bench.HandOver, bench.HandOff) {
		if err := b.join(ctx, before.Lockspace.Device); err != nil {
			return nil, err
		}
	}
	if err := b.create(ctx); err != nil {
		return nil, err
	}
	cfg := bench.Config{Bakeryd: bench.Served(b.socket, b.lock), Duration: b.o.duration, Why: b.why, Begun: b.begun}
	for _, name := range b.o.only {
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
	return newBenchReport(before, result), nil
}

// create makes the lock.
func (b *benching) create(ctx context.Context) error {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	name := fmt.Sprintf("bakeryctl-bench-%d-%x", os.Getpid(), random)
	// Who may not remove the lock is not to make it: it would stay.
	if err := removeBy(b.socket, name); err != nil {
		return err
	}
	b.lock = name // it may be made though the answer does not come
	_, _, err := client.New(b.socket).Create(ctx, name, 1)
	return err
}

// commands are what the wrapper is compared by; nil if there is none.
func (b *benching) commands(flocked string) *bench.Commands {
	alone, err := exec.LookPath("true")
	if err != nil {
		b.why[bench.Wrapper] = "there is no true(1): " + err.Error()
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		b.why[bench.Wrapper] = "it is not known which program this is: " + err.Error()
		return nil
	}
	c := &bench.Commands{
		Locked: bench.Command{Path: self, Args: []string{os.Args[0], "--socket", b.socket, "lock", b.lock, "--", alone}},
		True:   bench.Command{Path: alone, Args: []string{"true"}},
	}
	if flock, err := exec.LookPath("flock"); err != nil {
		c.NoFlock = "there is no flock(1); install util-linux"
	} else {
		c.Flock = bench.Command{Path: flock, Args: []string{"flock", flocked, alone}}
	}
	return c
}

// end leaves all as it was: first the lock, while there is a host to remove it.
func (b *benching) end() error {
	errs := []error{b.remove()}
	left := make([]error, len(b.inside))
	all := make(chan struct{})
	for i, d := range b.inside {
		go func() {
			left[i] = leave(d)
			all <- struct{}{}
		}()
	}
	for range b.inside {
		<-all
	}
	errs = append(errs, left...)
	if b.child != nil {
		errs = append(errs, b.child.end())
	}
	if err := errors.Join(errs...); err != nil {
		return &failure{code: exitUnavailable, err: err}
	}
	return nil
}

// remove removes the lock, by bakeryd or, if that fails, by a host in this process.
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
		return fmt.Errorf("the lock was not removed, bakeryctl rm %s does that: %w", b.lock, err)
	}
	return nil
}
