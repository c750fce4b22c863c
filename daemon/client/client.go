// Package client takes locks from bakeryd over its Unix socket. It knows bakeryd's protocol, which
// is HTTP with a stream of events, and how long a hold is valid. It never knows a device, a
// ticket's meaning or a terminal.
//
// Begin with [Client.Lock] or [Client.TryLock], and with [Hold.Context] for the work under a lock;
// the examples show them. Every Hold must be unlocked, even a lost one.
//
// A holder learns of a loss in time. bakeryd sends the lease with the grant and with every renewal.
// This process counts it on CLOCK_BOOTTIME, so that the holder is warned and stopped by the
// deadline even if bakeryd, the disk or the network does not answer. A process that was suspended
// beyond the deadline notices only when it continues; a store that compares tokens ([Hold.Token])
// refuses its late writes.
//
// bakeryctl lock runs a command under a lock, and also stops what the command has started.
//
// Programs that use this package also compile on macOS, Windows and the BSDs. bakeryd runs on Linux
// only, so there each call returns [ErrUnsupported].
//
// A hold (hold.go) and a place in the wait queue outlive their connection: bakeryd
// knows both by a session (session.go), under which the client asks again until the deadline.
// link.go is the protocol of a connection, pool.go is what all holds of a client share, change.go
// changes a hold and reads values, call.go makes the calls that are not streams, mode.go has the
// types of modes and tokens, socket_linux.go and other.go are what depends on the system.
package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// DefaultSocket is bakeryd's default socket.
const DefaultSocket = "/run/bakery/bakeryd.sock"

// MaxValue is the length of the longest value of a lock, in bytes.
const MaxValue = layout.MaxValue

// answerTimeout is how much longer than the requested wait bakeryd may take to answer: several IO
// budgets of a slow device.
const answerTimeout = 10 * time.Second

var (
	// ErrUnreachable is returned when nothing serves the socket, or when bakeryd ends before the
	// grant and does not come back in time.
	ErrUnreachable = errors.New("bakeryd is unreachable")

	// ErrNoAnswer is returned when bakeryd does not answer in time: it is stopped or hangs, or its device
	// does. It wraps ErrUnreachable.
	ErrNoAnswer = fmt.Errorf("%w: no answer", ErrUnreachable)

	// ErrUnsupported is returned by every call on systems other than Linux. It wraps
	// errors.ErrUnsupported.
	ErrUnsupported = fmt.Errorf("bakeryd runs on Linux only: %w on %s", errors.ErrUnsupported, runtime.GOOS)

	// ErrProtocol is returned when the answer is not in bakeryd's protocol.
	ErrProtocol = errors.New("not an answer of bakeryd")

	// ErrBusy is returned by TryLock, and with Options.NonBlock, when the request would have to wait.
	ErrBusy = api.ErrBusy

	// ErrTimeout is returned when the lock was not granted within Options.Timeout.
	ErrTimeout = api.ErrTimeout

	// ErrUpgrade is returned when a shared hold cannot become exclusive, because the lock has other
	// holders or waiters.
	ErrUpgrade = api.ErrUpgrade

	// ErrNoLock is returned when no lock has that name.
	ErrNoLock = api.ErrNoLock

	// ErrForbidden is returned when the policy does not allow that to the user of this process.
	ErrForbidden = api.ErrForbidden

	// ErrLost is wrapped by Hold.Err and by the cause of Hold.Context when a hold ends without
	// Unlock.
	ErrLost = api.ErrLost
)

// Error is a refusal of bakeryd.
type Error = api.Error

// Client takes locks from the bakeryd at one socket. It reuses connections. It is safe for
// concurrent use. Its calls return an *Error, ErrUnreachable, ErrProtocol, or the cause of the end
// of their context, each as it is or wrapped.
type Client struct {
	socket string
	pool
}

// clients maps absolute socket paths to their clients.
var clients sync.Map

// New returns the client of the bakeryd at that socket, usually DefaultSocket. It does no IO. A
// second call with the same absolute path returns the same client, and so shares its connections.
func New(socket string) *Client {
	c := &Client{socket: socket, pool: pool{holds: map[*Hold]time.Duration{}}}
	if !filepath.IsAbs(socket) {
		return c // a relative path depends on the working directory
	}
	shared, _ := clients.LoadOrStore(socket, c)
	return shared.(*Client)
}

// Options describe a request for a lock. The zero value waits without limit for an exclusive hold.
type Options struct {
	Mode     Mode          // Exclusive or Shared
	NonBlock bool          // return ErrBusy instead of waiting
	Timeout  time.Duration // then ErrTimeout, at most 10 s late; 0: none; rounded up to milliseconds
	Permits  int           // refuse a lock with another number of permits; 0: accept any
	PID      int           // of the holder, shown in listings; 0: this process
	Command  string        // of the holder, shown in listings; its first 80 bytes are kept

	// Witness asks for a liveness FIFO, which Inherit passes to commands: they keep the lock even
	// if this process and bakeryd end.
	Witness bool

	// Requests enables Hold.Requests.
	Requests bool

	// Session is the id by which bakeryd knows the request and the hold, from NewSession; empty: a
	// new one.
	Session string

	// Confirm makes bakeryd serve the next waiter if this process does not run when the lock is
	// granted. A client that does not confirm the grant within 2 s, or a sixth of the lease if that
	// is less, moves to the end of the wait queue. It costs a round trip to bakeryd.
	Confirm bool

	// NoLinger makes bakeryd release the lock for the other hosts as soon as this process does. By
	// default the host of a program that locks often may keep the lock for a few milliseconds for its
	// next request, which then needs no disk IO. Set it if this request is the last one for some time,
	// or if another host is told of the release and then requests the lock with NonBlock. Confirm and
	// Witness imply it.
	NoLinger bool

	// OnWaiting, if not nil, is called when the wait begins and at each change. ahead is the number
	// of hosts before this one and of clients of this host before this client, holders included;
	// queued is that of the clients of this host that wait. Lock continues when it returns.
	OnWaiting func(ahead, queued int)

	// OnWarning, if not nil, is called by Lock with a message for the user if an ancestor of this
	// process holds the lock: the wait lasts until that ends. An older bakeryd also warns so of
	// options that it ignores.
	OnWarning func(message string)
}

// limit returns how long bakeryd has to answer, 0 for no limit, and the error of Lock if it does
// not.
func (o Options) limit() (time.Duration, error) {
	switch {
	case o.NonBlock:
		return answerTimeout, fmt.Errorf("%w within %v", ErrNoAnswer, answerTimeout)
	case o.Timeout > 0:
		limit := o.Timeout + answerTimeout
		return limit, fmt.Errorf("%w: no answer of bakeryd within %v", ErrTimeout, limit)
	}
	return 0, nil
}

func (o Options) request(name string) api.LockRequest {
	return api.LockRequest{
		Name: name, Mode: layout.Mode(o.Mode), NonBlock: o.NonBlock, TimeoutMS: ceilMillis(o.Timeout), Permits: o.Permits, PID: o.PID,
		Command: layout.TruncateCommand(o.Command), Session: o.Session, Witness: o.Witness, Requests: o.Requests, Confirm: o.Confirm,
		NoLinger: o.NoLinger,
	}
}

// TryLock is Lock without waiting: it returns ErrBusy if the lock, exclusive or shared as o.Mode says,
// is not granted immediately. It takes as long as bakeryd and the disk take to answer, 10 s at most.
// It does not use o.NonBlock, o.Timeout and o.OnWaiting.
func (c *Client) TryLock(ctx context.Context, name string, o Options) (*Hold, error) {
	o.NonBlock, o.Timeout = true, 0
	return c.Lock(ctx, name, o)
}

// Lock blocks until the lock is granted. If ctx ends first, Lock leaves the wait queue and returns
// the cause. After the grant ctx has no effect.
//
// If bakeryd cannot be reached at the first attempt, Lock returns an error immediately. If bakeryd
// goes away during the wait, Lock tries to reach it for one lease, in which bakeryd keeps the place
// in the wait queue.
//
// The error may also be ErrBusy, ErrTimeout, or that of timerfd_create(2) if this process cannot
// create a timer.
func (c *Client) Lock(ctx context.Context, name string, o Options) (*Hold, error) {
	h, err := c.lock(ctx, name, o)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	return h, nil
}

func (c *Client) lock(ctx context.Context, name string, o Options) (*Hold, error) {
	if o.Timeout < 0 {
		return nil, ErrTimeout // the caller's deadline has passed
	}
	if limit, late := o.limit(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, late)
		defer cancel()
	}
	if o.Session == "" {
		o.Session = NewSession()
	}
	w := waiter{session: &session{client: c, request: o.request(name)}, o: o, begun: time.Now(), lease: layout.MinLease}
	l, granted, err := w.grant(ctx)
	if err != nil {
		return nil, err
	}
	return newHold(w.session, l, granted)
}
