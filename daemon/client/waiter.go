package client

import (
	"context"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
)

// waiter is a place in the wait queue. bakeryd, or the next process of it, keeps the place for a
// lease without a connection.
type waiter struct {
	*session
	o      Options
	begun  time.Time
	lease  time.Duration // of the lockspace; layout.MinLease until bakeryd sends it
	broken time.Duration // when the connection broke, on boottime; 0: it did not, or there was none yet
	pause  backoff
}

// grant waits until the lock is granted.
func (w *waiter) grant(ctx context.Context) (*link, api.Event, error) {
	for {
		l, granted, err := w.attempt(ctx)
		switch {
		case err == nil:
			return l, granted, nil
		case ctx.Err() != nil:
			return nil, api.Event{}, context.Cause(ctx)
		case codeOf(err) == api.CodeUnconfirmed: // this process was paused when the lock was granted
			w.broken = clock.Boottime.Now() // bakeryd may still be releasing that grant, and refuse until then
		case !w.reached || !transient(err):
			return nil, api.Event{}, err
		case w.broken == 0 && codeOf(err) != "": // a refusal on an unbroken connection is final
			return nil, api.Event{}, err
		case w.broken == 0:
			w.broken = clock.Boottime.Now()
		}
		left := w.remaining()
		if left <= 0 && w.o.Timeout > 0 && time.Since(w.begun) >= w.o.Timeout {
			err = ErrTimeout
		}
		if left <= 0 {
			return nil, api.Event{}, err
		}
		if err := w.pause.sleep(ctx, left); err != nil {
			return nil, api.Event{}, err
		}
	}
}

// attempt asks once. After a broken connection it waits for the first event at most as long as
// bakeryd keeps the place.
func (w *waiter) attempt(ctx context.Context) (*link, api.Event, error) {
	heard := func() {}
	if w.broken != 0 {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		silence := time.AfterFunc(w.remaining(), func() {
			cancel(fmt.Errorf("%w: no answer within %v", ErrUnreachable, w.lease))
		})
		defer silence.Stop()
		heard = func() { silence.Stop() }
		if w.o.Timeout > 0 {
			w.request.TimeoutMS = ceilMillis(max(w.o.Timeout-time.Since(w.begun), time.Millisecond))
		}
	}
	return w.connect(ctx, func(e api.Event) {
		heard()
		if e.LeaseMS > 0 {
			w.broken, w.lease = 0, believable(e.LeaseMS) // the place is kept for a lease
		}
		switch {
		case e.Kind == api.Warning && w.o.OnWarning != nil:
			w.o.OnWarning(e.Message)
		case e.Kind == api.Waiting && w.o.OnWaiting != nil:
			w.o.OnWaiting(max(e.Ahead, 0), max(e.Queued, 0))
		}
	})
}

// remaining returns for how long another attempt makes sense.
func (w *waiter) remaining() time.Duration {
	left := w.broken + w.lease - clock.Boottime.Now()
	if w.o.Timeout > 0 {
		left = min(left, w.o.Timeout-time.Since(w.begun))
	}
	return left
}
