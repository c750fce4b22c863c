package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/test/fusetest"
)

// fault is a fault of a host.
type fault struct {
	name string

	// spares says that bakeryd outlives it. The last host only has such faults: in its process
	// leaks would add up.
	spares bool

	// do injects the fault, and returns when its cause is removed. The recovery counts from then
	// on, unless the host set an earlier start.
	do func(context.Context, *host, *rand.Rand) error
}

// faults lists all faults. Their durations are in leases.
var faults = []fault{
	{"restart", false, killed(0, 0.5)},
	{"restart-late", false, killed(1.3, 2.5)},
	{"daemon-pause", true, pausedDaemon},
	{"host-blink", true, pausedHost(0.05, 0.6)},
	{"host-pause", true, pausedHost(1.2, 3)},
	{"power-cut", false, powerCut},
	{"late-writes", false, powerCutLate},
	{"wrapper-kill", true, wrapperKilled},
	{"command-kill", true, commandKilled},
	{"command-pause", true, commandPaused},
	{"leave", false, left(unix.SIGTERM)},
	{"drain", false, left(unix.SIGINT)},
	{"evict", false, evictedAlive},
	{"evict-dead", false, evictedDead},
	{"forget", false, forgotten},
	{"twin", true, twin},
	{"hang-brief", true, onPath(0.05, 0.5, hangs)},
	{"hang", true, onPath(1.2, 3, hangs)},
	{"io-error", true, onPath(0.1, 3, fails)},
	{"slow", true, onPath(0.5, 3, slow)},
	{"detach", true, detached},
	{"bit-flip", true, damaged(flipBits)},
	{"garbage", true, damaged(garbage)},
}

// trouble injects one fault after another into a host until ctx ends, and waits for the host's
// recovery each time.
func (s *soak) trouble(ctx, now context.Context, h *host) {
	random := rand.New(rand.NewPCG(s.o.seed, uint64(1000+h.id)))
	last := h.id == s.o.hosts
	for pauseFor(now, upTo(random, 4*s.o.lease)) == nil {
		f := s.nextFault(random)
		if last && !f.spares {
			continue
		}
		s.report.inject(f.name)
		s.logf("host %d: %s", h.id, f.name)
		h.recoversSince = time.Time{}
		err := f.do(ctx, h, random)
		if h.recoversSince.IsZero() {
			h.recoversSince = time.Now()
		}
		if err == nil {
			err = h.well(ctx)
		}
		switch {
		case errors.Is(err, errNothing):
			s.report.withdraw(f.name)
		case ctx.Err() != nil:
			return
		case err != nil:
			s.violate("host %d does not get over %q: %v", h.id, f.name, err)
			return
		default:
			s.report.recover(f.name, time.Since(h.recoversSince))
			s.logf("host %d: over it in %v", h.id, time.Since(h.recoversSince).Round(time.Millisecond))
		}
	}
}

func (s *soak) nextFault(random *rand.Rand) fault {
	if s.chaos != nil {
		return s.chaos.nextStrike(random)
	}
	return faults[random.IntN(len(faults))]
}

// errNothing is returned when there is no occasion for the fault.
var errNothing = errors.New("nothing to break")

// leases draws a duration.
func (h *host) leases(random *rand.Rand, least, most float64) time.Duration {
	return time.Duration((least + random.Float64()*(most-least)) * float64(h.s.o.lease))
}

// aim makes the host's next section last and waits for its begin, so that the fault has something
// to hit.
func (h *host) aim(ctx context.Context, random *rand.Rand) error {
	if err := h.s.store.aim(ctx, h.id, h.leases(random, 0.3, 2), h.s.o.lease); err != nil {
		return err
	}
	return pauseFor(ctx, upTo(random, 50*time.Millisecond))
}

func killed(least, most float64) func(context.Context, *host, *rand.Rand) error {
	return func(ctx context.Context, h *host, random *rand.Rand) error {
		if err := errors.Join(h.aim(ctx, random), h.kill(ctx)); err != nil {
			return err
		}
		if err := pauseFor(ctx, h.leases(random, least, most)); err != nil {
			return err
		}
		return h.up(ctx)
	}
}

func left(signal unix.Signal) func(context.Context, *host, *rand.Rand) error {
	return func(ctx context.Context, h *host, random *rand.Rand) error {
		if err := h.aim(ctx, random); err != nil {
			return err
		}
		code, err := h.end(ctx, signal)
		if err == nil && code != 0 {
			err = fmt.Errorf("bakeryd ended with code %d by %v", code, signal)
		}
		if err == nil {
			err = pauseFor(ctx, h.leases(random, 0, 2))
		}
		if err != nil {
			return err
		}
		return h.up(ctx)
	}
}

func pausedDaemon(ctx context.Context, h *host, random *rand.Rand) error {
	if err := errors.Join(h.aim(ctx, random), unix.Kill(h.daemon.pid(), unix.SIGSTOP)); err != nil {
		return err
	}
	defer func() { _ = unix.Kill(h.daemon.pid(), unix.SIGCONT) }()
	return pauseFor(ctx, h.leases(random, 0.1, 3))
}

func pausedHost(least, most float64) func(context.Context, *host, *rand.Rand) error {
	return func(ctx context.Context, h *host, random *rand.Rand) error {
		if err := h.aim(ctx, random); err != nil {
			return err
		}
		since := h.freeze()
		defer h.thaw(since)
		return pauseFor(ctx, h.leases(random, least, most))
	}
}

func powerCut(ctx context.Context, h *host, random *rand.Rand) error {
	if err := errors.Join(h.aim(ctx, random), h.powerOff(ctx, func() {})); err != nil {
		return err
	}
	if err := pauseFor(ctx, h.leases(random, 0, 2.5)); err != nil {
		return err
	}
	return h.reboot(ctx)
}

// powerCutLate: writes of a host that lost power land later, but before the host is up again.
func powerCutLate(ctx context.Context, h *host, random *rand.Rand) error {
	if err := h.aim(ctx, random); err != nil {
		return err
	}
	h.onPaths(func(s *fusetest.State) { s.Hang.Writes = true })
	defer h.repairPaths()
	err := until(ctx, h.s.o.lease/2, "a write hangs", func() bool {
		return slices.ContainsFunc(h.paths, func(p *path) bool { return p.faults.Hanging() > 0 })
	})
	if err != nil && !errors.Is(err, errLate) {
		return err
	}
	if err := h.powerOff(ctx, func() { h.onPaths(func(s *fusetest.State) { s.Cut = true }) }); err != nil {
		return err
	}
	if err := pauseFor(ctx, h.leases(random, 0, 2)); err != nil {
		return err
	}
	for _, p := range h.paths {
		n, err := p.file.Land()
		if err != nil {
			return err
		}
		h.s.report.count("writes that landed after a power cut", n)
	}
	h.repairPaths()
	if err := pauseFor(ctx, h.leases(random, 0, 1)); err != nil {
		return err
	}
	return h.reboot(ctx)
}

// onPaths changes the faults of the host's paths to all disks.
func (h *host) onPaths(change func(*fusetest.State)) {
	for _, p := range h.paths {
		p.faults.Change(change)
	}
}

func (h *host) repairPaths() { h.onPaths(func(s *fusetest.State) { *s = fusetest.State{} }) }

// commands returns the commands that run on a host, and their wrappers.
func (h *host) commands() (commands, wrappers []int) {
	for _, pid := range processesIn(h.dir, false) {
		if program(pid) != h.s.self {
			continue
		}
		if up := parent(pid); up != 0 && program(up) == h.s.bakeryctl {
			commands, wrappers = append(commands, pid), append(wrappers, up)
		}
	}
	return commands, wrappers
}

// oneCommand waits for a running command, and draws one.
func (h *host) oneCommand(ctx context.Context, random *rand.Rand) (command, wrapper int, err error) {
	err = until(ctx, 10*h.s.o.lease, "a command runs", func() bool {
		commands, wrappers := h.commands()
		if len(commands) == 0 {
			return false
		}
		i := random.IntN(len(commands))
		command, wrapper = commands[i], wrappers[i]
		return true
	})
	if errors.Is(err, errLate) {
		err = errNothing
	}
	return command, wrapper, err
}

// wrapperKilled waits until the processes that the wrapper left have ended: without bakeryd nothing
// would stop them.
func wrapperKilled(ctx context.Context, h *host, random *rand.Rand) error {
	command, wrapper, err := h.oneCommand(ctx, random)
	if err != nil {
		return err
	}
	_ = unix.Kill(wrapper, unix.SIGKILL)
	h.recoversSince = time.Now()
	return until(ctx, 3*h.s.o.lease+patience, "the orphan has ended", func() bool { return program(command) != h.s.self })
}

func commandKilled(ctx context.Context, h *host, random *rand.Rand) error {
	command, _, err := h.oneCommand(ctx, random)
	if err == nil {
		_ = unix.Kill(command, unix.SIGKILL)
	}
	return err
}

// commandPaused excuses no violation: the lock is kept while bakeryd renews the lease.
func commandPaused(ctx context.Context, h *host, random *rand.Rand) error {
	command, wrapper, err := h.oneCommand(ctx, random)
	if err != nil {
		return err
	}
	signal := func(s unix.Signal) {
		if program(command) == h.s.self {
			_ = unix.Kill(command, s)
		}
		if program(wrapper) == h.s.bakeryctl {
			_ = unix.Kill(wrapper, s)
		}
	}
	signal(unix.SIGSTOP)
	defer signal(unix.SIGCONT)
	return pauseFor(ctx, h.leases(random, 0.5, 2))
}

// paused reports the pause to the judge and to the logs.
func (s *soak) paused(h *host, p pause) {
	s.store.with(func(j *judge) { j.paused(h.id, p) })
}
