// Package join acquires a lock without bakeryd: this process joins the lockspace on a device as a host
// of its own, and leaves it with the release. It imports package daemon, which is most of the
// project, so that package acquire need not.
package join

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/acquire"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// maxWanted is the number of requests for the lock that are queued for the holder's reaction.
const maxWanted = 16

// Acquire implements acquire.Request.OnDevice.
func Acquire(ctx context.Context, o acquire.Request) (*supervise.Grant, error) {
	if o.Create {
		if err := ondevice.Create(ctx, o.Devices[0]); err != nil {
			return nil, cli.Advise(err, cli.ExitNoDevice, []cli.Advice{ondevice.NewFile})
		}
	}
	d, err := daemon.Join(ctx, daemon.Config{Devices: o.Devices, Logger: ondevice.Logger(o.Stderr)})
	if err != nil {
		return nil, failure(ctx, o, err)
	}
	o.AskBlocker(d.LockManager().Blocker)
	wanted := make(chan client.Request, maxWanted)
	h, err := acquireFrom(ctx, o, d, wanted)
	if err == nil && o.Value != nil {
		if err = h.SetValue(ctx, o.Value); err != nil {
			_ = h.Release()
		}
	}
	if err != nil {
		f := failure(ctx, o, err)
		_ = ondevice.Leave(d) // the first error is reported
		return nil, f
	}
	held := warnBefore(h)
	return &supervise.Grant{
		Held: held, Token: client.Token(h.Token()), HostID: d.HostID(), Wanted: wanted,
		Release: func() error {
			close(held.over)
			<-held.warned
			return errors.Join(h.Release(), ondevice.Leave(d))
		},
	}, nil
}

// ownHold is a hold of a host in this process, with a warning.
type ownHold struct {
	*locks.Hold
	warned chan struct{} // closed when the holder must stop, or has released the lock
	over   chan struct{} // closed by the release
}

func warnBefore(h *locks.Hold) *ownHold {
	o := &ownHold{Hold: h, warned: make(chan struct{}), over: make(chan struct{})}
	go func() {
		defer close(o.warned)
		for !supervise.IsClosed(h.Lost()) {
			left := time.Until(h.Deadline()) - h.Grace()
			if left <= 0 {
				return
			}
			select {
			case <-o.over:
				return
			case <-h.Lost():
			case <-time.After(min(left, supervise.RecheckInterval)):
			}
		}
	}()
	return o
}

// Warned returns a channel that is closed when the holder must stop.
func (o *ownHold) Warned() <-chan struct{} { return o.warned }

func acquireFrom(ctx context.Context, o acquire.Request, d *daemon.Host, wanted chan<- client.Request) (*locks.Hold, error) {
	if o.Timeout > 0 && !o.NonBlock {
		var cancel context.CancelFunc
		// The time to join does not count against the timeout.
		ctx, cancel = context.WithTimeoutCause(ctx, o.Timeout, api.ErrTimeout)
		defer cancel()
	}
	req := locks.Request{
		Name: o.Name, Mode: layout.Mode(o.Mode), Try: o.NonBlock,
		PID: os.Getpid(), Command: o.Command, OnWaiting: o.OnWaiting,
	}
	if o.Requests {
		req.OnRequest = func(r locks.Requested) {
			select {
			case wanted <- client.Request(r):
			default: // the queue is full
			}
		}
	}
	return d.Acquire(ctx, req)
}

func failure(ctx context.Context, o acquire.Request, err error) *cli.Failure {
	if f := o.GaveUp(ctx, err); f != nil {
		return f
	}
	advice := []cli.Advice{
		{Err: api.ErrInvalid, Code: cli.ExitUsage},
		{Err: lockspace.ErrNoLockspace, Hint: "to create a lockspace, run bakeryctl format " + strings.Join(o.Devices, " ") + "; it destroys the contents"},
		{Err: api.ErrFull, Hint: "remove an unused lock with bakeryctl rm, by a bakeryd, or format with more --locks"},
	}
	if !o.Create && !slices.ContainsFunc(o.Devices, func(path string) bool { return strings.HasPrefix(path, "/dev/") }) {
		advice = append(advice, cli.Advice{Err: fs.ErrNotExist, Hint: "use --create to create a lockspace in a new file"})
	}
	return cli.Advise(fmt.Errorf("lock %q on %s: %w", o.Name, strings.Join(o.Devices, ", "), err), cli.ExitNoDevice, slices.Concat(advice, ondevice.Advice))
}
