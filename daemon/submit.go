package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
)

// submit is Acquire for one who does not stand by: decided is called once, by
// any goroutine, and must not block. The caller's goroutine does what IO it
// takes if the lock is free: submit returns late if the device hangs then, but
// ctx's end and that of the lease are told by others in time.
func (d *Daemon) submit(ctx context.Context, req Request, decided func(*Hold, error)) {
	if err := d.validate(&req); err != nil {
		decided(nil, err)
		return
	}
	lk := d.inUse(req)
	if lk == nil {
		d.acquireApart(ctx, req, decided)
		return
	}
	if req.asked == 0 {
		req.asked = d.note(req.event(events.Request))
	}
	began := time.Now()
	w := &waiter{req: req}
	gone := context.AfterFunc(ctx, func() { lk.giveUp(ctx, w) })
	w.decided = func(r result) {
		gone()
		if errors.Is(r.err, errSuperseded) {
			d.dir.forget(lk.entry)
			d.acquireApart(ctx, req, decided)
			return
		}
		if r.hold != nil {
			r.hold.helps = true
		}
		d.noteRefused(&req, lk, began, r.err)
		decided(r.hold, r.err)
	}
	if err := lk.admit(w); err != nil {
		w.decide(result{err: err})
		return
	}
	// Either may have ended before the client was in the queue.
	if ctx.Err() != nil {
		lk.giveUp(ctx, w)
	}
	select {
	case <-d.mem.lost:
		lk.refuseLost()
	default:
		lk.help(w)
	}
}

// acquireApart is submit where it may have to wait for the directory.
func (d *Daemon) acquireApart(ctx context.Context, req Request, decided func(*Hold, error)) {
	d.sessions.tasks.Go(func() { decided(d.Acquire(ctx, req)) })
}

// giveUp takes a client out of the queue when its context has ended.
func (lk *lock) giveUp(ctx context.Context, w *waiter) {
	if lk.withdraw(w) {
		w.decide(result{err: context.Cause(ctx)})
	}
}

// refuseLost tells those who wait that the lease is lost: the driver may be
// waiting for a device that hangs.
func (lk *lock) refuseLost() {
	lk.refuse(fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost), everybody)
}
