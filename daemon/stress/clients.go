package stress

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/load"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
)

// Clients is a lock of one or several bakeryds that share a lockspace. The workers are
// distributed over their sockets.
type Clients struct {
	Sockets []string // at least one
	Name    string   // of the lock
}

func (b Clients) open(ctx context.Context, r *run) ([]access, error) {
	all := make([]access, r.cfg.Workers)
	for i := range all {
		o := client.Options{PID: os.Getpid(), Command: commandOf(i + 1), OnWaiting: r.onWaiting(i + 1)}
		c := client.New(b.Sockets[i%len(b.Sockets)])
		all[i] = &guest{ctx: ctx, acquire: load.OfBakeryd(c, b.Name, o)}
	}
	return all, nil
}

// Device is a lock of the lockspace on a device. Every worker joins it as a separate host.
type Device struct {
	Path   string
	Name   string       // of the lock
	Logger *slog.Logger // of the hosts
}

// leaveWithin bounds the time for leaving. The other hosts will declare a host dead that takes
// longer.
const leaveWithin = 10 * time.Second

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
	hosts, err := load.Join(ctx, r.cfg.Workers, daemon.Config{Device: b.Path, Logger: b.Logger})
	var all []access
	for i, d := range hosts {
		req := locks.Request{Name: b.Name, PID: os.Getpid(), Command: commandOf(i + 1), OnWaiting: r.onWaiting(i + 1)}
		all = append(all, &guest{ctx: ctx, acquire: load.OfHost(d, req), host: d})
	}
	if err != nil {
		for _, a := range all {
			_ = a.close() // the earlier error is returned
		}
	}
	return all, err
}

func commandOf(worker int) string { return fmt.Sprintf("bakeryctl stress, worker %d", worker) }

// guest takes the lock from a daemon.
type guest struct {
	ctx     context.Context
	acquire load.Lock
	release func() error // of the present hold
	host    *daemon.Host // of this worker alone; nil if it is a bakeryd
}

func (g *guest) lock() (held grant, err error) {
	held.ticket, g.release, err = g.acquire(g.ctx)
	return held, err
}

func (g *guest) unlock() error { return g.release() }

func (g *guest) close() error {
	if g.host == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.ctx), leaveWithin)
	defer cancel()
	return g.host.Close(ctx)
}
