package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
)

// turn is a place in the queue. bakeryd, or its successor, keeps it for as long as a lease without a connection.
type turn struct {
	*session
	begun  time.Time
	lease  time.Duration // of the lockspace; the least that there is until bakeryd tells
	broken time.Duration // since when there is no connection, on boottime; 0: there is one, or was none yet
	pause  backoff
}

// grant waits until the lock is granted.
func (w *turn) grant(ctx context.Context) (*link, api.Event, error) {
	for {
		l, granted, err := w.attempt(ctx)
		switch {
		case err == nil:
			return l, granted, nil
		case ctx.Err() != nil:
			return nil, api.Event{}, context.Cause(ctx)
		case isUnconfirmed(err): // this process stood still when its turn came
			w.broken = clock.Boottime.Now() // bakeryd may not be done with that grant yet, and refuse for a moment
		case !w.reached || !passing(err):
			return nil, api.Event{}, err
		case w.broken == 0:
			var refusal *Error
			if errors.As(err, &refusal) {
				return nil, api.Event{}, err // to one who has just been waiting it is meant
			}
			w.broken = clock.Boottime.Now()
		}
		left := w.left()
		if left <= 0 {
			return nil, api.Event{}, w.tooLate(err)
		}
		if err := w.pause.sleep(ctx, left); err != nil {
			return nil, api.Event{}, err
		}
	}
}

func isUnconfirmed(err error) bool {
	var refusal *Error
	return errors.As(err, &refusal) && refusal.Code == api.CodeUnconfirmed
}

// attempt asks once. Who comes back is not kept waiting for the first word by a bakeryd that stands still.
func (w *turn) attempt(ctx context.Context) (*link, api.Event, error) {
	timeout, heard := w.o.Timeout, func() {}
	if w.broken != 0 {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		silence := time.AfterFunc(w.left(), func() {
			cancel(fmt.Errorf("%w: no answer within %v", ErrUnreachable, w.lease))
		})
		defer silence.Stop()
		timeout, heard = w.timeLeft(), func() { silence.Stop() }
	}
	return w.connect(ctx, 0, timeout, func(e api.Event) {
		heard()
		if e.LeaseMS > 0 {
			w.broken, w.lease = 0, leaseOf(e) // so long this place is kept
		}
		switch {
		case e.Kind == api.Warning && w.o.OnWarning != nil:
			w.o.OnWarning(e.Message)
		case e.Kind == api.Waiting && w.o.OnWaiting != nil:
			w.o.OnWaiting(max(e.Ahead, 0), max(e.Queued, 0))
		}
	})
}

// left is for how long the broken connection is worth another attempt.
func (w *turn) left() time.Duration {
	left := w.broken + w.lease - clock.Boottime.Now()
	if w.o.Timeout > 0 {
		left = min(left, w.o.Timeout-time.Since(w.begun))
	}
	return left
}

// timeLeft is what is left of the time that the lock may take, 0 if it may take any. Zero would be no limit.
func (w *turn) timeLeft() time.Duration {
	if w.o.Timeout == 0 {
		return 0
	}
	return max(w.o.Timeout-time.Since(w.begun), time.Millisecond)
}

// tooLate is the error to end with when err was the last one.
func (w *turn) tooLate(err error) error {
	if w.o.Timeout > 0 && time.Since(w.begun) >= w.o.Timeout {
		return ErrTimeout
	}
	return err
}
