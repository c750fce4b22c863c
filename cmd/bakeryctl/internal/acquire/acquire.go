// Package acquire acquires a lock for the commands lock and hold: from bakeryd, or by a function of
// its caller on a device. It prints what the lock waits for during the wait, and when it gives up. It
// returns a supervise.Grant and knows nothing of what runs under the lock.
//
// Start reading at Request.Acquire; waitline.go has the line.
package acquire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
	"github.com/bakeryd/bakeryd/daemon/client"
)

// Request says which lock to acquire, how, and from which bakeryd or device.
type Request struct {
	client.Options // also for a lock on a device; Acquire sets Witness, Confirm, PID and the functions

	Name     string
	Conflict int       // exit code if the lock is not granted
	Quiet    bool      // do not print that it waits, or gave up
	Value    []byte    // new value of the lock once granted; nil: unchanged
	Close    bool      // the command does not inherit the lock
	Socket   string    // of bakeryd
	Devices  []string  // disks of the lockspace to join without bakeryd; none: ask bakeryd
	Create   bool      // create the lockspace on the one device if it does not exist
	OnDevice OnDevice  // acquires the lock if there are Devices
	Stderr   io.Writer // receives the wait line and warnings

	line *waitLine // set by Acquire
}

// OnDevice acquires a lock without bakeryd, as package join does. Programs without it need not link
// the rest of a host.
type OnDevice func(context.Context, Request) (*supervise.Grant, error)

// Acquire blocks until the lock is granted or a signal ends the wait. It calls onWaiting and
// updates the wait line with the number of waiters ahead.
func (o Request) Acquire(ctx context.Context, inbox *signals.Inbox, onWaiting func(ahead int)) (*supervise.Grant, error) {
	ctx, listen := inbox.Interrupts(ctx)
	o.line = startWaitLine(o.Stderr, o.Name, o.Quiet)
	o.OnWarning = o.line.warn
	o.OnWaiting = func(ahead, _ int) {
		o.line.update(ahead)
		onWaiting(ahead)
	}
	var g *supervise.Grant
	var err error
	if len(o.Devices) > 0 {
		g, err = o.OnDevice(ctx, o)
	} else {
		g, err = o.askBakeryd(ctx)
	}
	o.line.stop()
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

// Blocker returns in words what a client that requests the lock waits for, such as its holder; "" if
// that is not known.
type Blocker func(ctx context.Context, name string) (string, error)

// AskBlocker sets the function that the lines ask. It must be called before OnWaiting.
func (o Request) AskBlocker(b Blocker) { o.line.blocker = b }

// GaveUp returns the failure of a request that was not granted immediately or in time. It returns nil
// for all other errors. The failure has an explanation unless Quiet is set, or to print it could block
// or end this process: the caller needs the exit code.
func (o Request) GaveUp(ctx context.Context, err error) *cli.Failure {
	if !errors.Is(err, client.ErrBusy) && !errors.Is(err, client.ErrTimeout) {
		return nil
	}
	f := &cli.Failure{Code: o.Conflict}
	if o.Quiet {
		return f // as flock(1) is
	}
	what := fmt.Sprintf("gave up waiting for %q after %s", o.Name, formatTimeout(o.Timeout))
	if o.NonBlock {
		what = fmt.Sprintf("%q is not free", o.Name)
	}
	what = sentence(what, o.line.ask(ctx), o.line.place())
	if term.Writable(o.Stderr) {
		f.Err = errors.New(what)
	}
	return f
}

// formatTimeout formats a timeout for a sentence: 0.5 s, 90 s, 5 min.
func formatTimeout(d time.Duration) string {
	if d >= 2*time.Minute && d%time.Minute == 0 {
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}

// blockerOfBakeryd is the Blocker of a lock of bakeryd.
func (o Request) blockerOfBakeryd(ctx context.Context, name string) (string, error) {
	var answer struct {
		Text string `json:"text"`
	}
	err := call.Ask(ctx, o.Socket, "GET", "/v1/blocker?name="+url.QueryEscape(name), nil, &answer)
	return answer.Text, err
}

// Remove removes the lock by bakeryd, once it is free. It uses Name, Conflict, Quiet, Socket, Stderr,
// NonBlock and Timeout.
func (o Request) Remove(ctx context.Context) error {
	o.line = startWaitLine(o.Stderr, o.Name, o.Quiet)
	o.AskBlocker(o.blockerOfBakeryd)
	o.line.update(unknown)
	asking, give := context.WithCancelCause(ctx)
	over := call.Watch(ctx, o.Socket, "", give)
	err := client.New(o.Socket).Remove(asking, o.Name, client.RemoveOptions{NonBlock: o.NonBlock, Timeout: o.Timeout})
	over()
	o.line.stop()
	if err != nil {
		return cmp.Or(o.GaveUp(ctx, err), call.Failure(err))
	}
	return nil
}

// askBakeryd acquires the lock from bakeryd.
func (o Request) askBakeryd(ctx context.Context) (*supervise.Grant, error) {
	o.Confirm, o.Witness, o.PID = true, !o.Close, os.Getpid()
	o.AskBlocker(o.blockerOfBakeryd)
	if !o.Quiet {
		answered, onWaiting := call.Watch(ctx, o.Socket, call.Busy(o.Socket), nil), o.OnWaiting // without a limit
		defer answered()
		o.OnWaiting = func(ahead, queued int) {
			answered()
			onWaiting(ahead, queued)
		}
	}
	h, err := client.New(o.Socket).Lock(ctx, o.Name, o.Options)
	if err != nil {
		return nil, cmp.Or(o.GaveUp(ctx, err), call.Failure(err))
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
