package locks

import (
	"context"
	"errors"
	"time"
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
	m.host.ReportRequest(&req)
	began := time.Now()
	h := &Hold{lk: lk, helps: true}
	gone := context.AfterFunc(ctx, func() { h.giveUp(ctx) })
	h.Init(lk.q, req, func(err error) {
		gone()
		if errors.Is(err, errSuperseded) {
			m.dir.Forget(lk.Entry)
			m.acquireApart(ctx, req, decided)
			return
		}
		m.host.ReportRefused(&req, lk.q, began, err)
		if err != nil {
			decided(nil, err)
			return
		}
		decided(h, nil)
	})
	if err := lk.q.Admit(&h.Item); err != nil {
		h.Decide(err)
		return
	}
	// The context or the lease may have ended before the client was in the queue.
	if ctx.Err() != nil {
		h.giveUp(ctx)
	}
	select {
	case <-m.mem.Lost():
		lk.q.RefuseLost()
	default:
		lk.runInline(&h.Item)
	}
}

// acquireApart is submit for a request that may have to wait for the directory.
func (m *Manager) acquireApart(ctx context.Context, req Request, decided func(*Hold, error)) {
	m.tasks.Go(func() { decided(m.Acquire(ctx, req)) })
}

// giveUp removes a client whose context has ended from the queue.
func (h *Hold) giveUp(ctx context.Context) {
	if h.lk.q.Withdraw(&h.Item) {
		h.Decide(context.Cause(ctx))
	}
}
