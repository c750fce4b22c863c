package driver

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/layout"
)

// Hold is one request of a client: it waits for the lock, then it holds it. It ends by Release, or
// when the lease is lost.
type Hold struct {
	queue.Item
	lk     *Lock
	inline bool       // the client's goroutine may do the IO
	result chan error // receives the outcome; nil for Submit
}

// NewHold returns a request that is not in the queue yet. With inline, the goroutines that acquire
// and release do the IO where possible: that is faster, but they block while the device hangs.
func (lk *Lock) NewHold(req queue.Request, inline bool) *Hold {
	h := &Hold{lk: lk, inline: inline, result: make(chan error, 1)}
	h.Init(lk.Queue, req, func(err error) { h.result <- err })
	return h
}

// Acquire queues the request and blocks until it is served or refused, or ctx ends.
func (h *Hold) Acquire(ctx context.Context) error {
	if err := h.lk.Queue.Admit(&h.Item); err != nil {
		return err
	}
	if h.inline {
		h.lk.runInline(&h.Item)
	} else {
		h.lk.Queue.Signal()
	}
	return h.Await(ctx)
}

// Submit is Acquire for a caller that does not wait, inline. decided is called once, by any
// goroutine, and must not block. Submit blocks while the device hangs, but other goroutines report
// the end of ctx or of the lease in time.
func (lk *Lock) Submit(ctx context.Context, req queue.Request, decided func(*Hold, error)) {
	h := &Hold{lk: lk, inline: true}
	gone := context.AfterFunc(ctx, func() { h.giveUp(ctx) })
	h.Init(lk.Queue, req, func(err error) {
		gone()
		decided(h, err)
	})
	if err := lk.Queue.Admit(&h.Item); err != nil {
		h.Decide(err)
		return
	}
	// The context or the lease may have ended before the client was in the queue.
	if ctx.Err() != nil {
		h.giveUp(ctx)
	}
	if lk.host.IsLost() {
		lk.Queue.RefuseLost()
	} else {
		lk.runInline(&h.Item)
	}
}

// giveUp removes a client whose context has ended from the queue.
func (h *Hold) giveUp(ctx context.Context) {
	if h.lk.Queue.Withdraw(&h.Item) {
		h.Decide(context.Cause(ctx))
	}
}

// Lock returns the lock that is held.
func (h *Hold) Lock() *Lock { return h.lk }

// Lost returns a channel that is closed when the lease, and with it the lock, is lost.
func (h *Hold) Lost() <-chan struct{} { return h.lk.host.Lost }

// Err returns the reason why the lock was lost, nil if it was not.
func (h *Hold) Err() error {
	if !h.lk.host.IsLost() {
		return nil
	}
	return fmt.Errorf("%w: %w", api.ErrLeaseLost, h.lk.host.Member.Err())
}

// Deadline returns the time at which the lock is lost unless the lease is renewed.
func (h *Hold) Deadline() time.Time {
	left, _ := h.lk.host.Member.LeaseLeft()
	return time.Now().Add(left)
}

// StopAt returns the time on CLOCK_BOOTTIME at which the holder must begin to stop unless the lease
// is renewed. It returns 0 if the lease is lost.
func (h *Hold) StopAt() time.Duration {
	if m := h.lk.host.Member.Moments(); !m.Lost {
		return m.Warn
	}
	return 0
}

// Grace returns the time between StopAt and the deadline.
func (h *Hold) Grace() time.Duration { return h.lk.host.Disk.Times().Grace() }

// Release ends the hold. It blocks until that is durable, the next client has the lock or the host keeps
// it for one, or the lease is lost. It may be called more than once. If the lock was acquired with a
// context that has no end, the caller's goroutine does the IO and blocks while the device hangs.
func (h *Hold) Release() error { return h.ReleaseBecause("") }

// ReleaseBecause ends the hold. why is the reason for the event, empty if the holder released it.
func (h *Hold) ReleaseBecause(why string) error {
	if h.lk.Queue.Release(&h.Item, why) {
		if h.inline {
			h.lk.runInline(nil)
		} else {
			h.lk.Queue.Signal()
		}
	}
	select {
	case <-h.Released():
		return nil
	case <-h.Lost():
		return h.Err()
	}
}

// Await blocks until the client is served or refused, or ctx ends.
func (h *Hold) Await(ctx context.Context) error {
	var err error
	select {
	case err := <-h.result:
		return err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-h.Lost(): // the driver may wait for IO that hangs
		err = h.lk.host.Refusal()
	}
	if h.lk.Queue.Withdraw(&h.Item) {
		return err
	}
	served := <-h.result // at this moment
	if h.Removes {
		return served
	}
	if served == nil {
		_ = h.ReleaseBecause("the client was gone when the lock was granted")
	}
	return err
}

// Join takes part in a local client's hold if there is one, else it acquires the lock.
func (lk *Lock) Join(ctx context.Context) (*Hold, error) {
	h := lk.NewHold(queue.Request{Name: lk.Entry.Name, Mode: layout.Exclusive, PID: os.Getpid(), NoLinger: true, Command: events.Restoring}, false)
	if lk.Queue.Join(&h.Item) {
		return h, nil
	}
	return h, h.Acquire(ctx)
}
