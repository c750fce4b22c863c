// Package acquire takes a lock for the commands lock and hold: from bakeryd, or on a device as a
// host of its own, for which it imports package daemon. While it waits it shows the place in the
// queue at a terminal. It knows nothing of what is done under the lock: it returns a
// supervise.Grant.
package acquire

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

// Request says which lock is wanted, how, and of whom.
type Request struct {
	Name     string
	Mode     layout.Mode
	NonBlock bool
	Timeout  time.Duration // 0: none
	Conflict int           // the exit code if it is not granted
	Value    []byte        // to set when it is granted; nil: leave it as it is
	Argv     []string      // of the command, to be told to others
	Close    bool          // the command does not inherit the lock
	Requests bool          // what others ask for the lock by is wanted
	Socket   string        // of bakeryd
	Session  string        // of the request to bakeryd
	Device   string        // to take it on, without bakeryd; empty: ask bakeryd
	Create   bool          // make the lockspace on device, if there is none
	Stderr   io.Writer     // gets the line at a terminal, and warnings
}

// Acquire blocks until the lock is granted, or a signal ends the wait. onWaiting is called with the
// place in the queue, as the line at a terminal is.
func (o Request) Acquire(ctx context.Context, inbox *signals.Inbox, onWaiting func(ahead, queued int)) (*supervise.Grant, error) {
	ctx, listen := inbox.Interrupts(ctx)
	line := startWaitLine(o.Stderr, o.Name)
	both := func(ahead, queued int) {
		line.update(ahead, queued)
		onWaiting(ahead, queued)
	}
	var g *supervise.Grant
	var err error
	if o.Device != "" {
		g, err = o.joinAndTake(ctx, both)
	} else {
		g, err = o.askBakeryd(ctx, both, line.warn)
	}
	line.stop()
	listen()
	var by signals.Interruption
	if !errors.As(context.Cause(ctx), &by) {
		return g, err
	}
	if g != nil {
		_ = g.Release() // the signal came with the grant; nothing ran
	}
	return nil, &cli.Failure{Code: cli.ExitSignal + int(by.Signal)}
}

// askBakeryd takes the lock from bakeryd.
func (o Request) askBakeryd(ctx context.Context, onWaiting func(ahead, queued int), warn func(string)) (*supervise.Grant, error) {
	h, err := client.New(o.Socket).Lock(ctx, o.Name, client.Options{
		Mode: o.Mode, NonBlock: o.NonBlock, Timeout: o.Timeout, Session: o.Session, Confirm: true,
		PID: os.Getpid(), Command: strings.Join(o.Argv, " "), Witness: !o.Close, OnWaiting: onWaiting,
		OnWarning: warn, Requests: o.Requests,
	})
	if err != nil {
		return nil, call.Refused(err, o.Conflict)
	}
	if o.Value != nil {
		if err := h.SetValue(ctx, o.Value); err != nil {
			_ = h.Unlock() // the first error is the one to tell
			return nil, call.Failure(err)
		}
	}
	g := &supervise.Grant{Held: h, HostID: h.HostID(), Silent: h.Silent(), Wanted: h.Requests(), Weak: h.Uncontainable(), Session: h.Session(), Socket: o.Socket, Release: h.Unlock}
	if !o.Close {
		g.Inherit, g.There = h.Inherit, h.Connected
	}
	return g, nil
}
