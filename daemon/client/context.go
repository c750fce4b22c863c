package client

import (
	"context"
	"fmt"
	"time"
)

// Context returns a context for work that needs the lock. It ends when Warned is closed, so that
// the work has until the deadline to stop; the cause is an ErrLost. It also ends with Unlock and
// with parent. cancel frees the context's resources and does not unlock.
func (h *Hold) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	work := h.work.context()
	ctx, end := context.WithCancelCause(parent)
	if work.Err() != nil {
		end(context.Cause(work)) // synchronously: the returned context must not look valid
	}
	stop := context.AfterFunc(work, func() { end(context.Cause(work)) })
	return ctx, func() {
		stop()
		end(nil)
	}
}

// Grace returns how long before the deadline Warned is closed: the time that the holder has to
// stop.
func (h *Hold) Grace() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.grace
}

// whyStop returns why the holder must stop. It is called with mu held.
func (h *Hold) whyStop() error {
	if h.err != nil {
		return h.err
	}
	return fmt.Errorf("%w: the lease is about to end without a renewal", ErrLost)
}
