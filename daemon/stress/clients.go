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

// Clients returns a lock of one or several bakeryds that share a lockspace. The workers are
// distributed over their sockets.
func Clients(sockets []string, name string) Backend {
	return func(ctx context.Context, r *run) (all []access, err error) {
		for i := range r.cfg.Workers {
			o := client.Options{PID: os.Getpid(), Command: commandOf(i + 1), OnWaiting: r.onWaiting(i + 1)}
			lock := load.OfBakeryd(client.New(sockets[i%len(sockets)]), name, o)
			all = append(all, guest(ctx, lock, func() error { return nil }))
		}
		return all, nil
	}
}

// leaveWithin bounds the time for leaving. The other hosts will declare a host dead that takes
// longer.
const leaveWithin = 10 * time.Second

// Device returns a lock of the lockspace on a device. Every worker joins it as a separate host.
func Device(path, name string, log *slog.Logger) Backend {
	return func(ctx context.Context, r *run) (all []access, err error) {
		dev, sb, _, err := lockspace.OpenDisks([]string{path}, lockspace.DiskOptions{ReadOnly: true})
		if err != nil {
			return nil, err
		}
		if err := dev.Close(); err != nil {
			return nil, err
		}
		if n := sb.Geometry.Hosts; r.cfg.Workers > n {
			return nil, fmt.Errorf("%w: %d workers, want at most %d, the hosts of the lockspace on %s", ErrInvalid, r.cfg.Workers, n, path)
		}
		hosts, err := load.Join(ctx, r.cfg.Workers, daemon.Config{Devices: []string{path}, Logger: log})
		for i, d := range hosts {
			req := locks.Request{Name: name, PID: os.Getpid(), Command: commandOf(i + 1), OnWaiting: r.onWaiting(i + 1)}
			all = append(all, guest(ctx, load.OfHost(d, req), func() error {
				leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
				defer cancel()
				return d.Close(leaving)
			}))
		}
		if err != nil {
			for _, a := range all {
				_ = a.close() // the earlier error is returned
			}
		}
		return all, err
	}
}

func commandOf(worker int) string { return fmt.Sprintf("bakeryctl stress, worker %d", worker) }

// guest returns the access to a daemon's lock.
func guest(ctx context.Context, lock load.Lock, leave func() error) access {
	var release func() error // of the present hold
	return access{
		lock: func() (g grant, err error) {
			g.ticket, release, err = lock(ctx)
			return g, err
		},
		unlock: func() error { return release() },
		close:  leave,
	}
}
