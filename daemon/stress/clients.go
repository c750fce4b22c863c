package stress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/load"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
)

// Clients returns a lock of one or several bakeryds that share a lockspace. The workers are
// distributed over their sockets.
func Clients(sockets []string, name string) Backend {
	return func(ctx context.Context, r *run) (all []access, err error) {
		first := client.New(sockets[0])
		_, created, err := first.Create(ctx, name, 1)
		if err != nil {
			return nil, err
		}
		last := &last{run: r, left: r.cfg.Workers}
		remove := func(ctx context.Context) error {
			return first.Remove(ctx, name, client.RemoveOptions{NonBlock: true, IfNoValue: true})
		}
		for i := range r.cfg.Workers {
			o := client.Options{PID: os.Getpid(), Command: commandOf(i + 1), OnWaiting: r.onWaiting(i + 1)}
			lock := load.OfBakeryd(client.New(sockets[i%len(sockets)]), name, o)
			all = append(all, guest(ctx, lock, func() error { last.leaves(created, remove); return nil }))
		}
		return all, nil
	}
}

// last removes the lock when the last worker leaves.
type last struct {
	run *run

	mu   sync.Mutex // guards the rest
	left int        // workers that have not left
}

const (
	removeWithin = 2 * time.Second        // maximum time for removing the lock, also if the device hangs
	removeEvery  = 100 * time.Millisecond // pause before the next attempt if it is busy
)

// leaves counts a worker that leaves. After the last one it removes the lock, if this run has created it. remove must
// not wait for the lock: clients of other processes, which may use it, would wait behind it. It is repeated, because a
// bakeryd keeps a lock for its next client for some time. That the lock remains is no failure of the run.
func (l *last) leaves(created bool, remove func(context.Context) error) {
	l.mu.Lock()
	l.left--
	more := l.left > 0
	l.mu.Unlock()
	if more || !created {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin) // also after an interrupt
	defer cancel()
	err := remove(ctx)
	for errors.Is(err, api.ErrBusy) && retry.Pause(ctx, removeEvery) == nil {
		err = remove(ctx)
	}
	if err != nil && !errors.Is(err, api.ErrNoLock) && l.run.cfg.Remains != nil {
		l.run.cfg.Remains(err)
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
		created := false
		if err == nil {
			_, created, err = hosts[0].Create(ctx, name, 1)
		}
		last := &last{run: r, left: len(hosts)}
		for i, d := range hosts {
			req := locks.Request{Name: name, PID: os.Getpid(), Command: commandOf(i + 1), OnWaiting: r.onWaiting(i + 1)}
			all = append(all, guest(ctx, load.OfHost(d, req), func() error {
				last.leaves(created, func(ctx context.Context) error { return d.RemoveIfNoValue(ctx, name, true) })
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
