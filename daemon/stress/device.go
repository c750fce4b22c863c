package stress

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
)

// Device is a lock of the lockspace on a device. Every worker joins it as a separate host.
type Device struct {
	Path   string
	Name   string       // of the lock
	Logger *slog.Logger // of the hosts
}

const (
	// joiners is the number of hosts that join at a time. Fewer take longer, because each must be
	// seen by all earlier ones before it is ready. More collide as they choose their ids.
	joiners = 8

	// leaveWithin bounds the time for leaving. The other hosts will declare a host dead that
	// takes longer.
	leaveWithin = 10 * time.Second
)

func (b Device) open(ctx context.Context, r *run) ([]access, error) {
	dev, sb, _, err := lockspace.OpenLockspace(b.Path, true)
	if err != nil {
		return nil, err
	}
	if err := dev.Close(); err != nil {
		return nil, err
	}
	if n := sb.Geometry.Hosts; r.cfg.Workers > n {
		return nil, fmt.Errorf("%w: %d workers, want at most %d, the hosts of the lockspace on %s", ErrInvalid, r.cfg.Workers, n, b.Path)
	}
	all, errs := make([]access, r.cfg.Workers), make([]error, r.cfg.Workers)
	turns := make(chan struct{}, joiners)
	var joining sync.WaitGroup
	for i := range all {
		joining.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			d, err := daemon.Join(ctx, daemon.Config{Device: b.Path, Logger: b.Logger})
			all[i], errs[i] = &host{daemonAccess: daemonAccess{run: r, ctx: ctx, worker: i + 1, name: b.Name}, d: d}, err
		})
	}
	joining.Wait()
	failed := cmp.Or(errs...)
	if failed == nil {
		return all, nil
	}
	for i, err := range errs {
		if err == nil {
			_ = all[i].close() // the earlier error is returned
		}
	}
	return nil, failed
}

// daemonAccess is the common part of host and guest.
type daemonAccess struct {
	run    *run
	ctx    context.Context
	worker int
	name   string
	most   uint64
}

func (a *daemonAccess) highest() uint64 { return a.most }

func (a *daemonAccess) command() string { return fmt.Sprintf("bakeryctl stress, worker %d", a.worker) }

func (a *daemonAccess) granted(g grant) grant {
	a.most = max(a.most, g.ticket.Number())
	return g
}

// onWaiting returns a callback that reports one wait.
func (a *daemonAccess) onWaiting() func(ahead, queued int) {
	t := a.run.trace
	if t == nil {
		return nil
	}
	told := 0
	return func(ahead, _ int) {
		if ahead != told && ahead > 0 {
			t.waits(a.worker, ahead)
		}
		told = ahead
	}
}

// host takes the lock as a separate host.
type host struct {
	daemonAccess
	d *daemon.Host
	h *daemon.Hold
}

func (a *host) lock() (grant, error) {
	h, err := a.d.Acquire(a.ctx, daemon.Request{
		Name: a.name, PID: os.Getpid(), Command: a.command(), OnWaiting: a.onWaiting(),
	})
	if err != nil {
		return grant{}, err
	}
	a.h = h
	return a.granted(grant{ticket: h.Token()}), nil
}

func (a *host) unlock() error {
	lost := a.h.Err()
	return cmp.Or(lost, a.h.Release())
}

func (a *host) close() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), leaveWithin)
	defer cancel()
	return a.d.Close(ctx)
}
