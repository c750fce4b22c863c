package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
)

// place is what a client knows of its host and of the run.
type place struct {
	socket, store, sectionLog, name string
	host                            int
	lease                           time.Duration
	seed                            uint64
	sabotage                        bool
}

func (p *place) flags(fs *flag.FlagSet) {
	fs.StringVar(&p.socket, "socket", "", "of bakeryd")
	fs.StringVar(&p.store, "store", "", "the `file` that stands for what locks are for")
	fs.StringVar(&p.sectionLog, "diary", "", "`file` to write down what happens")
	fs.StringVar(&p.name, "name", "", "of the client")
	fs.IntVar(&p.host, "host", 0, "its id")
	fs.DurationVar(&p.lease, "lease", 0, "of the lockspace")
	fs.Uint64Var(&p.seed, "seed", 0, "of what is drawn")
	fs.BoolVar(&p.sabotage, "sabotage", false, "work on now and then when the lock was let go")
}

func (p place) args() []string {
	return []string{"--socket", p.socket, "--store", p.store, "--diary", p.sectionLog, "--name", p.name,
		"--host", fmt.Sprint(p.host), "--lease", p.lease.String(), "--seed", fmt.Sprint(p.seed), fmt.Sprintf("--sabotage=%t", p.sabotage)}
}

// worker is one client of the process.
type worker struct {
	place
	store      store
	sectionLog *sectionLog
	client     *client.Client
	random     *rand.Rand
}

// runWorker takes locks with several clients until the process ends.
func runWorker(ctx context.Context, args []string) error {
	var p place
	fs := flag.NewFlagSet("worker", flag.ContinueOnError)
	p.flags(fs)
	clients := fs.Int("clients", 2, "`number` of clients")
	if err := fs.Parse(args); err != nil {
		return err
	}
	st, err := openStore(p.store)
	if err != nil {
		return err
	}
	d, err := openSectionLog(p.sectionLog)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for i := range *clients {
		w := &worker{place: p, store: st, sectionLog: d, client: client.New(p.socket), random: rand.New(rand.NewPCG(p.seed, uint64(i)))}
		w.name = fmt.Sprintf("%s.%d", p.name, i)
		all.Go(func() { w.loop(ctx) })
	}
	all.Wait()
	return nil
}

func (w *worker) loop(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		l := chooseLock(w.random)
		if l.brief && w.random.IntN(25) == 0 {
			w.remove(ctx, l)
		}
		pause := w.section(ctx, l, fmt.Sprintf("%s-%d", w.name, i))
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func chooseLock(random *rand.Rand) lock {
	sum := 0
	for _, l := range locks {
		sum += l.weight
	}
	n := random.IntN(sum)
	for _, l := range locks {
		if n -= l.weight; n < 0 {
			return l
		}
	}
	panic("unreachable")
}

func chooseMode(random *rand.Rand, l lock) layout.Mode {
	if random.IntN(100) < l.shared {
		return layout.Shared
	}
	return layout.Exclusive
}

// chooseTime draws how long a section works: most are brief, and some outlast a lease.
func chooseTime(random *rand.Rand, lease time.Duration) time.Duration {
	most := 15 * time.Millisecond
	switch n := random.IntN(100); {
	case n < 2:
		most = lease * 3 / 2
	case n < 12:
		most = 100 * time.Millisecond
	}
	return upTo(random, most)
}

// section runs one section, and returns the pause before the next one.
func (w *worker) section(ctx context.Context, l lock, name string) time.Duration {
	mode := chooseMode(w.random, l)
	o := client.Options{Mode: client.Mode(mode), PID: os.Getpid(), Command: name, Witness: w.random.IntN(10) == 0}
	within := ctx
	switch w.random.IntN(10) {
	case 0:
		o.NonBlock = true
	case 1:
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, upTo(w.random, w.lease))
		defer cancel()
	case 2: // without limit
	default:
		o.Timeout = w.lease/5 + upTo(w.random, 6*w.lease)
	}
	asked := clock.Boottime.Now()
	hold, err := w.client.Lock(within, l.name, o)
	if err != nil {
		return w.failed(l, name, err)
	}
	since := clock.Boottime.Now()
	work, cancel := hold.Context(context.Background()) // the end of this process does not end a section
	defer cancel()
	s := section{store: w.store, sectionLog: w.sectionLog, random: w.random, lock: l, name: name, host: w.host, mode: mode, token: layout.Ticket(hold.Token()),
		asked: asked, since: since, lasts: chooseTime(w.random, w.lease), hold: hold, client: w.client}
	if w.sabotage && w.random.IntN(10) == 0 {
		_ = hold.Unlock()
		work = context.Background()
	}
	s.run(work)
	if err := hold.Unlock(); err != nil {
		_ = w.sectionLog.write(entry{Failed: "unlock: " + kindOf(err)})
	}
	return upTo(w.random, 20*time.Millisecond)
}

// failed logs why a lock was not granted, and returns the pause.
func (w *worker) failed(l lock, name string, err error) time.Duration {
	kind := kindOf(err)
	_ = w.sectionLog.write(entry{Failed: kind})
	switch kind {
	case "busy", "timeout", "canceled":
		return upTo(w.random, 20*time.Millisecond)
	case "unreachable", "unavailable", "device", "lost":
		return 100*time.Millisecond + upTo(w.random, 100*time.Millisecond)
	}
	_ = w.store.do(record{Kind: recordWrong, Lock: l.name, Section: name, Host: w.host, Text: err.Error()})
	return time.Second
}

func kindOf(err error) string {
	var refusal *client.Error
	switch {
	case errors.Is(err, client.ErrBusy):
		return "busy"
	case errors.Is(err, client.ErrTimeout):
		return "timeout"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, client.ErrUnreachable):
		return "unreachable"
	case errors.As(err, &refusal):
		return refusal.Code
	}
	return err.Error()
}

// remove removes a lock, and in some cases creates it again.
func (w *worker) remove(ctx context.Context, l lock) {
	ctx, cancel := context.WithTimeout(ctx, 2*w.lease)
	defer cancel()
	err := w.client.Remove(ctx, l.name, client.RemoveOptions{Timeout: upTo(w.random, w.lease) + time.Millisecond})
	_ = w.sectionLog.write(entry{Failed: "remove: " + doneOr(err)})
	if w.random.IntN(2) == 0 {
		_, _, err = w.client.Create(ctx, l.name, l.permits)
		_ = w.sectionLog.write(entry{Failed: "create: " + doneOr(err)})
	}
}

func doneOr(err error) string {
	if err == nil {
		return "done"
	}
	return kindOf(err)
}

// runInside is a command under bakeryctl lock: one section.
func runInside(_ context.Context, args []string) error {
	since := clock.Boottime.Now()
	var p place
	fs := flag.NewFlagSet("inside", flag.ContinueOnError)
	p.flags(fs)
	name := fs.String("lock", "", "its `name`")
	shared := fs.Bool("shared", false, "it is shared")
	asked := fs.Duration("asked", 0, "`when` it was asked for, since boot")
	lasts := fs.Duration("for", 0, "how long to work")
	stubborn := fs.Bool("stubborn", false, "do not stop when told to")
	if err := fs.Parse(args); err != nil {
		return err
	}
	told, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	if *stubborn {
		told = context.Background()
	}
	st, err := openStore(p.store)
	if err != nil {
		return err
	}
	d, err := openSectionLog(p.sectionLog)
	if err != nil {
		return err
	}
	s := section{store: st, sectionLog: d, random: rand.New(rand.NewPCG(p.seed, 0)), lock: lockNamed(*name), name: p.name, host: p.host,
		asked: *asked, since: since, lasts: *lasts}
	if *shared {
		s.mode = layout.Shared
	}
	if err := s.token.UnmarshalText([]byte(os.Getenv("BAKERY_TOKEN"))); err != nil {
		return fmt.Errorf("BAKERY_TOKEN: %w", err)
	}
	if how := s.run(told); how != endWell {
		return exitCode(insideCodes[how])
	}
	return nil
}

// insideCodes are the exit codes of a command that failed.
var insideCodes = map[string]int{endStopped: 40, endRefused: 41, endFailed: 42}

// upTo draws a time below most.
func upTo(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(most)))
}
