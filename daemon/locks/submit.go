package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// Submit is Acquire for a caller that does not wait. decided is called once, by any goroutine, and
// must not block. If the lock is free, the caller's goroutine does the IO: Submit then blocks while
// the device hangs, but other goroutines report the end of ctx or of the lease in time.
func (m *Manager) Submit(ctx context.Context, req Request, decided func(*Hold, error)) {
	if err := m.validate(&req); err != nil {
		decided(nil, err)
		return
	}
	lk := m.known(req)
	if lk == nil {
		m.acquireApart(ctx, req, decided)
		return
	}
	m.reportRequest(&req)
	began := time.Now()
	w := &Waiter{req: req}
	gone := context.AfterFunc(ctx, func() { lk.giveUp(ctx, w) })
	w.decided = func(r result) {
		gone()
		if errors.Is(r.err, errSuperseded) {
			m.dir.Forget(lk.Entry)
			m.acquireApart(ctx, req, decided)
			return
		}
		if r.hold != nil {
			r.hold.helps = true
		}
		m.reportRefused(&req, lk, began, r.err)
		decided(r.hold, r.err)
	}
	if err := lk.admit(w); err != nil {
		w.decide(result{err: err})
		return
	}
	// The context or the lease may have ended before the client was in the queue.
	if ctx.Err() != nil {
		lk.giveUp(ctx, w)
	}
	select {
	case <-m.mem.Lost():
		lk.refuseLost()
	default:
		lk.runInline(w)
	}
}

// acquireApart is submit for a request that may have to wait for the directory.
func (m *Manager) acquireApart(ctx context.Context, req Request, decided func(*Hold, error)) {
	m.tasks.Go(func() { decided(m.Acquire(ctx, req)) })
}

// giveUp removes a client whose context has ended from the queue.
func (lk *Lock) giveUp(ctx context.Context, w *Waiter) {
	if lk.withdraw(w) {
		w.decide(result{err: context.Cause(ctx)})
	}
}

// refuseLost reports the loss of the lease to all waiters: the driver may be waiting for a device
// that hangs.
func (lk *Lock) refuseLost() {
	lk.refuse(fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost), everybody)
}
