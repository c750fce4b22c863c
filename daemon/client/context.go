package client

import (
	"context"
	"fmt"
	"time"
)

// Context returns a context for what may only be done under the lock. It ends when the holder is to stop, like
// Warned, so that what is done has until the deadline to come to its end; the cause is an ErrLost. It ends with
// Unlock too, and with parent. Calling cancel gives back what the context takes, and does not unlock.
func (h *Hold) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	work := h.work.context()
	ctx, end := context.WithCancelCause(parent)
	if work.Err() != nil {
		end(context.Cause(work)) // at once, not in a moment: who looks at the context first must not begin
	}
	stop := context.AfterFunc(work, func() { end(context.Cause(work)) })
	return ctx, func() {
		stop()
		end(nil)
	}
}

// Grace returns how long before the deadline the holder is told to stop: the time that it has for that.
func (h *Hold) Grace() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.grace
}

// whyStop is called with mu held.
func (h *Hold) whyStop() error {
	if h.err != nil {
		return h.err
	}
	return fmt.Errorf("%w: the lease is about to end without a renewal", ErrLost)
}
