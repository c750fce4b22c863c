// Package acquire acquires a lock for the commands lock and hold: from bakeryd, or by a function of
// its caller on a device. During the wait it shows the position in the queue on a terminal. It
// returns a supervise.Grant and knows nothing of what runs under the lock.
package acquire

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon/client"
)

// Request says which lock to acquire, how, and from which bakeryd or device.
type Request struct {
	client.Options // also for a lock on a device; Acquire sets Witness, Confirm, PID and the functions

	Name     string
	Conflict int       // exit code if the lock is not granted
	Value    []byte    // new value of the lock once granted; nil: unchanged
	Close    bool      // the command does not inherit the lock
	Socket   string    // of bakeryd
	Devices  []string  // disks of the lockspace to join without bakeryd; none: ask bakeryd
	Create   bool      // create the lockspace on the one device if it does not exist
	OnDevice OnDevice  // acquires the lock if there are Devices
	Stderr   io.Writer // receives the wait line and warnings
}

// OnDevice acquires a lock without bakeryd, as package join does. Programs without it need not link
// the rest of a host.
type OnDevice func(context.Context, Request) (*supervise.Grant, error)

// Acquire blocks until the lock is granted or a signal ends the wait. It calls onWaiting and
// updates the wait line with the number of waiters ahead.
func (o Request) Acquire(ctx context.Context, inbox *signals.Inbox, onWaiting func(ahead int)) (*supervise.Grant, error) {
	ctx, listen := inbox.Interrupts(ctx)
	line := startWaitLine(o.Stderr, o.Name)
	o.OnWarning = line.warn
	o.OnWaiting = func(ahead, _ int) {
		line.update(ahead)
		onWaiting(ahead)
	}
	var g *supervise.Grant
	var err error
	if len(o.Devices) > 0 {
		g, err = o.OnDevice(ctx, o)
	} else {
		g, err = o.askBakeryd(ctx)
	}
	line.stop()
	listen()
	var by signals.Interruption
	if !errors.As(context.Cause(ctx), &by) {
		return g, err
	}
	if g != nil {
		_ = g.Release() // the signal arrived together with the grant; no command was started
	}
	return nil, &cli.Failure{Code: cli.ExitSignal + int(by.Signal)}
}

// askBakeryd acquires the lock from bakeryd.
func (o Request) askBakeryd(ctx context.Context) (*supervise.Grant, error) {
	o.Confirm, o.Witness, o.PID = true, !o.Close, os.Getpid()
	h, err := client.New(o.Socket).Lock(ctx, o.Name, o.Options)
	if err != nil {
		return nil, call.Refused(err, o.Conflict)
	}
	if o.Value != nil {
		if err := h.SetValue(ctx, o.Value); err != nil {
			_ = h.Unlock() // the first error is reported
			return nil, call.Failure(err)
		}
	}
	g := &supervise.Grant{Held: h, Token: h.Token(), HostID: h.HostID(), Silent: h.Silent(), Wanted: h.Requests(), Weak: h.Uncontainable(), Release: h.Unlock}
	if !o.Close {
		g.Inherit, g.There = h.Inherit, h.Connected
	}
	return g, nil
}
