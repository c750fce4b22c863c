// Package client takes locks from bakeryd over its Unix socket. It knows
// bakeryd's protocol, which is HTTP with a stream of events, and how long a
// hold is good for; it never knows a device, a ticket's meaning or a terminal.
//
// Begin with [Client.Lock], and for what is done under a lock with
// [Hold.Context]: the examples show both. A Hold is to be unlocked, lost or not.
//
// All that is lost is lost in time: the lease is told with the grant and with
// every renewal, and counts on CLOCK_BOOTTIME in this process, so that the
// holder is warned and stopped by the deadline whether or not bakeryd, the disk
// or the network to it still answers. A process that was suspended beyond the
// deadline finds out only when it goes on; what it writes then is turned away
// by those who compare tokens ([Hold.Token]).
//
// To run a command under a lock is more than this package does: bakeryctl lock
// also stops what the command has started.
//
// A hold (hold.go) and a place in the queue (turn.go)
// outlive their connection: bakeryd knows both by a session (session.go), under
// which the client asks again until it is too late. What goes over a
// connection is in link.go and event.go, and what is kept for all holds in keep.go. What a holder changes while it holds, and the
// values that locks have, are in change.go.
// What is answered at once goes through call.go.
package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// DefaultSocket is where bakeryd serves if it is not told otherwise.
const DefaultSocket = "/run/bakery/bakeryd.sock"

// patience is how long bakeryd may take over an answer beyond the time that it was asked to wait: several
// IO budgets of a slow device.
const patience = 10 * time.Second

var (
	// ErrUnreachable is returned when nothing serves the socket, or it stops answering before the lock was
	// granted and does not come back in time.
	ErrUnreachable = errors.New("bakeryd is unreachable")

	// ErrProtocol is returned when what serves the socket does not speak bakeryd's protocol.
	ErrProtocol = errors.New("not an answer of bakeryd")

	// ErrBusy is returned when the lock was wanted at once, and is held.
	ErrBusy = api.ErrBusy

	// ErrTimeout is returned when the lock was not granted in the time given.
	ErrTimeout = api.ErrTimeout

	// ErrUpgrade is returned when a shared hold cannot become an exclusive one, for others take part in the lock.
	ErrUpgrade = api.ErrUpgrade

	// ErrNoLock is returned when no lock has that name.
	ErrNoLock = api.ErrNoLock

	// ErrForbidden is returned when the user of this process may not do that.
	ErrForbidden = api.ErrForbidden

	// ErrLost is what Hold.Err and the cause of Hold.Context are when a hold ends that was not released.
	ErrLost = api.ErrLost
)

// Error is bakeryd's refusal.
type Error = api.Error

// Client takes locks from the bakeryd that serves one socket. A few of its connections are used again. It may be used from
// several goroutines.
type Client struct {
	socket string
	keeper keeper
}

// clients are those of absolute paths, by these.
var clients sync.Map

// New returns the client of the bakeryd that serves the socket at that path, DefaultSocket as a rule. It does no IO. Who
// asks again gets the same one, and so its connections, unless the path is relative.
func New(socket string) *Client {
	if !filepath.IsAbs(socket) {
		return &Client{socket: socket} // it may lead elsewhere the next time
	}
	c, ok := clients.Load(socket)
	if !ok {
		c, _ = clients.LoadOrStore(socket, &Client{socket: socket})
	}
	return c.(*Client)
}

// Options say how a lock is wanted. The zero value waits for an exclusive hold for as long as it takes.
type Options struct {
	Mode     layout.Mode   // layout.Exclusive, or layout.Shared
	NonBlock bool          // have it at once, or ErrBusy
	Timeout  time.Duration // not granted within it: ErrTimeout; 0: none; rounded up to milliseconds
	Permits  int           // refuse a lock that has another number of permits; 0: take what it has
	PID      int           // of the holder, for people who ask who it is; 0: this process
	Command  string        // likewise, what it does; its first 80 bytes are kept

	// Witness asks for what Inherit gives to commands, so that they keep the lock even if neither this process
	// nor bakeryd lives.
	Witness bool

	// Requests asks for what Hold.Requests gives.
	Requests bool

	// Session is the id by which bakeryd knows the request and the hold, from NewSession; empty: a
	// new one.
	Session string

	// Confirm has bakeryd pass the lock on if this process does not run when it is granted: one
	// that does not confirm the grant within 2 s, or a sixth of the lease if that is less, waits
	// again, at the end of the queue. It costs a round trip to bakeryd.
	Confirm bool

	// OnWaiting, if set, is told how many are ahead and how many wait, when the wait begins and whenever
	// that changes. It is called from within Lock, which reads on when it returns.
	OnWaiting func(ahead, queued int)

	// OnWarning, if set, is called from within Lock, with text for people, if this process runs
	// below a process that holds the lock already: the wait lasts until that has ended.
	OnWarning func(message string)
}

// limit returns how long bakeryd has to decide, 0 for as long as it takes, and the error of a Lock that it
// left undecided.
func (o Options) limit() (time.Duration, error) {
	switch {
	case o.NonBlock:
		return patience, fmt.Errorf("%w: no answer within %v", ErrUnreachable, patience)
	case o.Timeout > 0:
		return o.Timeout + patience, ErrTimeout
	}
	return 0, nil
}

// Lock waits until the lock is granted. If ctx ends first it gives up the place in the queue, and returns
// the cause; after the grant ctx has no say.
//
// A bakeryd that cannot be reached in the first place is an error at once. One that goes away during the wait
// is waited for as long as a lease, in which it keeps the place in the queue.
//
// It returns an *Error (which may be ErrBusy or ErrTimeout), ErrTimeout, ErrUnreachable, ErrProtocol, the cause of
// ctx, or, if this process cannot have another timer, the error of timerfd_create(2).
func (c *Client) Lock(ctx context.Context, name string, o Options) (*Hold, error) {
	h, err := c.lock(ctx, name, o)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	return h, nil
}

func (c *Client) lock(ctx context.Context, name string, o Options) (*Hold, error) {
	if o.Timeout < 0 {
		return nil, ErrTimeout // what is left until a deadline that has passed
	}
	if limit, late := o.limit(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, late)
		defer cancel()
	}
	w := turn{session: newSession(c, name, o), begun: time.Now(), lease: layout.MinLease}
	l, granted, err := w.grant(ctx)
	if err != nil {
		return nil, err
	}
	return newHold(w.session, l, granted)
}
