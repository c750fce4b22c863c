package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/layout"
)

// leaveWithin bounds how long leaving the lockspace may take. Whoever takes longer is left for dead by the
// other hosts.
const leaveWithin = 10 * time.Second

// joinAndTake takes the lock without bakeryd: this process joins the lockspace as a host of its own.
func (a *app) joinAndTake(ctx context.Context, o lockOptions, onWaiting func(ahead, queued int)) (*grant, error) {
	if o.create {
		if err := createLockspace(ctx, o.device); err != nil {
			return nil, &failure{code: exitNoDevice, err: err}
		}
	}
	wanted := make(chan client.Request, maxWanted)
	d := daemon.New(daemon.Config{
		Device: o.device,
		Logger: slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err := d.Join(ctx); err != nil {
		return nil, deviceFailure(err, o)
	}
	h, err := takeFrom(ctx, d, o, onWaiting, wanted)
	if err != nil {
		_ = leave(d) // the first error is the one to tell
		return nil, deviceFailure(err, o)
	}
	if o.value != nil {
		if err := h.SetValue(ctx, o.value); err != nil {
			_ = h.Release()
			_ = leave(d) // the first error is the one to tell
			return nil, deviceFailure(err, o)
		}
	}
	held := warnBefore(h)
	return &grant{
		held: held, hostID: d.HostID(), bound: true, wanted: wanted,
		release: func() error {
			held.stop()
			return errors.Join(h.Release(), leave(d))
		},
	}, nil
}

// ownHold is a hold of this process's own, with a warning.
type ownHold struct {
	*daemon.Hold
	warned, over chan struct{}
	watch        sync.WaitGroup
}

func warnBefore(h *daemon.Hold) *ownHold {
	o := &ownHold{Hold: h, warned: make(chan struct{}), over: make(chan struct{})}
	o.watch.Go(func() {
		for {
			left := time.Until(h.Deadline()) - h.Grace()
			if left <= 0 {
				close(o.warned)
				return
			}
			select {
			case <-o.over:
				return
			case <-h.Lost():
				close(o.warned)
				return
			case <-time.After(min(left, lookAgain)):
			}
		}
	})
	return o
}

// Warned is closed when the holder is to stop.
func (o *ownHold) Warned() <-chan struct{} { return o.warned }

func (o *ownHold) stop() {
	close(o.over)
	o.watch.Wait()
}

func takeFrom(ctx context.Context, d *daemon.Daemon, o lockOptions, onWaiting func(ahead, queued int), wanted chan<- client.Request) (*daemon.Hold, error) {
	if o.timeout > 0 && !o.nonblock {
		var cancel context.CancelFunc
		// The time to join does not count: it says nothing about the lock.
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, api.ErrTimeout)
		defer cancel()
	}
	req := daemon.Request{
		Name: o.name, Mode: o.mode, Try: o.nonblock,
		PID: os.Getpid(), Command: strings.Join(o.argv, " "), OnWaiting: onWaiting,
	}
	if !o.request.none() {
		req.OnRequest = func(r daemon.Requested) {
			select {
			case wanted <- client.Request(r):
			default: // so many have asked already
			}
		}
	}
	return d.Acquire(ctx, req)
}

func leave(d *daemon.Daemon) error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	return d.Close(ctx)
}

// createLockspace makes the file if there is none, and never touches one that exists.
func createLockspace(ctx context.Context, path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err := format.Format(ctx, path, format.Options{
		Hosts: lockspace.DefaultHosts, Locks: lockspace.DefaultLocks, Lease: lockspace.DefaultLease, Policy: layout.PolicyLease,
	})
	if errors.Is(err, fs.ErrExist) || errors.Is(err, format.ErrOccupied) {
		return nil // another one was faster; joining tells whether it is a lockspace
	}
	return err
}

func deviceFailure(err error, o lockOptions) *failure {
	if errors.Is(err, api.ErrBusy) || errors.Is(err, api.ErrTimeout) {
		return &failure{code: o.conflict} // silent, as flock(1) is
	}
	f := &failure{code: exitNoDevice, err: fmt.Errorf("lock %q on %s: %w", o.name, o.device, err)}
	switch {
	case errors.Is(err, api.ErrInvalid):
		f.code = exitUsage
	case errors.Is(err, lockspace.ErrNoLockspace):
		f.hint = "bakeryctl format " + o.device + " makes it one, and destroys what is on it"
	case errors.Is(err, api.ErrFull):
		f.hint = "remove a lock that is not used any more (bakeryctl rm, by a bakeryd), or format with more --locks"
	case errors.Is(err, fs.ErrNotExist) && !o.create:
		f.hint = "--create makes a lockspace in a file that does not exist"
	}
	return f
}
