package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// Request describes the lock that a client requests.
type Request struct {
	Name string
	Mode layout.Mode
	Try  bool // return ErrBusy instead of waiting
	// Permits of a new lock, and required of an existing one, 1 to the number of hosts; 0: 1 for a
	// new lock, any for an existing one
	Permits int
	PID     int    // for display: the holder
	Command string // for display: its purpose

	// OnWaiting, unless nil, is called with the number of clients before this one, and the number
	// of this host's waiting clients. It must not block.
	OnWaiting func(ahead, queued int)

	// OnRequest, unless nil, is called while the lock is held and another client requests it
	// (request.go): once per request, after a restart of bakeryd at least once. It must not block.
	OnRequest func(Requested)

	// Gone, unless nil, reports whether the client has gone away, even if that was not reported
	// yet. A hold or a place that it leaves behind does not make a lock busy. It must not block.
	Gone func() bool

	Client Client // nil if it does not outlive bakeryd
	asked  uint64 // number of its event; 0 if there is none, or it is not known
	remove bool   // remove the lock when it is acquired, instead of holding it
}

// Number returns the number by which the observer knows the request; 0 if none.
func (r *Request) Number() uint64 { return r.asked }

func (r *Request) gone() bool { return r.Gone != nil && r.Gone() }

// Client is a client that outlives bakeryd. It hears of all that the next process must know. The
// lock calls it with its mu held, so no method takes mu of a lock, or does IO. It calls Saved and
// Forget without.
type Client interface {
	Queued(lk *Lock, nth uint64)                              // it arrived as the nth
	KeepPlace(lk *Lock)                                       // its place is about to be sent
	KeepGrant(lk *Lock, token layout.Ticket)                  // the grant is about to be sent
	KeepMode(lk *Lock, token layout.Ticket, mode layout.Mode) // the mode has changed
	KeepRelease(lk *Lock, token layout.Ticket)                // the disk may still show the hold
	Saved()                                                   // blocks until the next process would know all of that
	Forget()                                                  // a restart need not know it any more
	Detached() bool                                           // it has not reconnected after a restart
	Listening() bool                                          // it receives the requests of others
	Containment() string                                      // of its command
	LeftOver() (pids []int, orphan bool)                      // whether it is gone while its command runs
	NestedUnder() *layout.Holder                              // the holder below which it waits; nil if none
}

func (r *Request) absent() bool { return r.Client != nil && r.Client.Detached() }

// Hold is one hold of a lock. It ends by Release, or when the lease is lost.
type Hold struct {
	lk    *Lock
	req   Request
	token layout.Ticket
	since time.Time
	// closed when the lock is free on the disk, or granted to the next client
	released chan struct{}
	changes  uint64 // number of changes of the mode; guarded by lk.mu
	// closed when req.Mode changes; nil if nothing waits for it; guarded by lk.mu
	changed      chan struct{}
	reportedLost bool // guarded by lk.mu
	joined       bool // taken by this host itself next to a client's hold (lock.join); not shown
	helps        bool // the releaser's goroutine may do the IO
}

// Lock returns the lock that is held.
func (h *Hold) Lock() *Lock { return h.lk }

// Since returns when the lock was granted.
func (h *Hold) Since() time.Time { return h.since }

// Token returns the fencing token of this grant.
func (h *Hold) Token() layout.Ticket { return h.token }

// Lost returns a channel that is closed when the lease, and with it the lock, is lost.
func (h *Hold) Lost() <-chan struct{} { return h.lk.mgr.mem.Lost() }

// Err returns the reason why the lock was lost, nil if it was not.
func (h *Hold) Err() error {
	select {
	case <-h.Lost():
		return fmt.Errorf("%w: %w", api.ErrLeaseLost, h.lk.mgr.mem.Err())
	default:
		return nil
	}
}

// Deadline returns the time at which the lock is lost unless the lease is renewed.
func (h *Hold) Deadline() time.Time {
	left, _ := h.lk.mgr.mem.LeaseLeft()
	return time.Now().Add(left)
}

// StopAt returns the time on CLOCK_BOOTTIME at which the holder must begin to stop unless the lease
// is renewed. It returns 0 if the lease is lost.
func (h *Hold) StopAt() time.Duration {
	m := h.lk.mgr.mem.Moments()
	if m.Lost {
		return 0
	}
	return m.Warn
}

// Grace returns the time between StopAt and the deadline.
func (h *Hold) Grace() time.Duration { return h.lk.mgr.disk.Times().Grace() }

// Release ends the hold. It blocks until the release is durable, the next client has the lock, or
// the lease is lost. It may be called more than once. If the lock was acquired with a context that
// has no end, the caller's goroutine does the IO and blocks while the device hangs.
func (h *Hold) Release() error { return h.ReleaseBecause("") }

// release ends the hold. why is the reason for the event, empty if the holder released it.
func (h *Hold) ReleaseBecause(why string) error {
	if h.moveToReleasing(why) {
		if c := h.req.Client; c != nil {
			c.Saved()
		}
		if h.helps {
			h.lk.runInline(nil)
		} else {
			h.lk.signal()
		}
	}
	select {
	case <-h.released:
		return nil
	case <-h.Lost():
		return h.Err()
	}
}

// moveToReleasing moves the hold to lk.leaving. It returns false if it was there already.
func (h *Hold) moveToReleasing(why string) bool {
	lk := h.lk
	lk.mu.Lock()
	defer lk.mu.Unlock()
	i := slices.Index(lk.holds, h)
	if i < 0 {
		return false
	}
	lk.holds = slices.Delete(lk.holds, i, i+1)
	lk.leaving = append(lk.leaving, h)
	lk.reportRelease(h, why)
	if c := h.req.Client; c != nil {
		c.KeepRelease(lk, h.token)
	}
	return true
}

// Acquire takes a lock and waits for it until ctx is done. It returns ErrInvalid, ErrBusy, ErrFull,
// ErrPermits, ErrUnavailable, ErrDamaged, or the cause of ctx's end. With a context that has no
// end, the caller's own goroutine does the IO where possible. That is faster, but blocks while the
// device hangs.
func (m *Manager) Acquire(ctx context.Context, req Request) (h *Hold, err error) {
	if err := m.validate(&req); err != nil {
		return nil, err
	}
	var lk *Lock
	began := time.Now()
	m.reportRequest(&req)
	defer func() { m.reportRefused(&req, lk, began, err) }()
	for try := 0; ; try++ {
		if try > 1 { // reads of the directory may disagree
			select {
			case <-time.After(m.disk.Retry()):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		h, lk, err = m.acquireOnce(ctx, req)
		if !errors.Is(err, errSuperseded) {
			return h, err
		}
	}
}

func (m *Manager) acquireOnce(ctx context.Context, req Request) (h *Hold, lk *Lock, err error) {
	lk, err = m.Find(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	w := newWaiter(req)
	if err = lk.admit(w); err == nil {
		helps := ctx.Done() == nil
		if helps {
			lk.runInline(w)
		} else {
			lk.signal()
		}
		if h, err = lk.await(ctx, w); h != nil {
			h.helps = helps
		}
	}
	if errors.Is(err, errSuperseded) {
		m.dir.Forget(lk.Entry)
	}
	return h, lk, err
}

// Find returns the lock of a request, and creates it if needed. It does not wait for a device that
// hangs. It returns the errors of Acquire.
func (m *Manager) Find(ctx context.Context, req Request) (*Lock, error) {
	if lk := m.known(req); lk != nil {
		return lk, nil
	}
	return runDetached(ctx, m, func() (*Lock, error) { return m.lock(ctx, req) })
}

// known returns the lock if it is attached, or nil: then it may have to be read from the disk.
func (m *Manager) known(req Request) *Lock {
	e, ok := m.dir.Remembered(req.Name)
	if !ok || agree(e, req.Permits) != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if lk := m.locks[e.Lock]; lk != nil && lk.Entry == e && !lk.quarantined && !m.closing {
		return lk
	}
	return nil
}

// runDetached calls f for a client, which does not wait for a device that hangs. If the client stops
// waiting, f ends with its IO. Closing the device waits for that.
func runDetached[T any](ctx context.Context, m *Manager, f func() (T, error)) (T, error) {
	type found struct {
		v   T
		err error
	}
	out := make(chan found, 1)
	go func() {
		v, err := f()
		out <- found{v, err}
	}()
	var nothing T
	select {
	case f := <-out:
		if f.err != nil && m.Stopping() {
			return nothing, errStopped // the device may be closed already
		}
		return f.v, f.err
	case <-m.stop:
		return nothing, errStopped
	case <-ctx.Done():
		return nothing, context.Cause(ctx)
	case <-m.mem.Lost():
		return nothing, fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	}
}

func (m *Manager) validate(req *Request) error {
	if err := layout.ValidateLockName(req.Name); err != nil {
		return fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	if req.Permits < 0 || req.Permits > m.disk.SB.Geometry.Hosts {
		return fmt.Errorf("%w: permits %d, want 1 to %d, the hosts of the lockspace", api.ErrInvalid, req.Permits, m.disk.SB.Geometry.Hosts)
	}
	if req.PID < 0 || req.PID > 1<<31-1 {
		return fmt.Errorf("%w: pid %d, want 0 to 2147483647", api.ErrInvalid, req.PID)
	}
	if req.Mode > layout.Shared {
		return fmt.Errorf("%w: %v", api.ErrInvalid, req.Mode)
	}
	req.Command = layout.TruncateCommand(req.Command)
	return nil
}

// await blocks until the client is served or refused, or ctx ends.
func (lk *Lock) await(ctx context.Context, w *Waiter) (*Hold, error) {
	var err error
	select {
	case r := <-w.result:
		return r.hold, r.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-lk.mgr.mem.Lost(): // the driver may wait for IO that hangs
		err = fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	}
	if lk.withdraw(w) {
		return nil, err
	}
	// The client was served at this moment: release the hold.
	r := <-w.result
	if r.hold != nil {
		_ = r.hold.ReleaseBecause("the client was gone when the lock was granted")
	}
	return nil, err
}
