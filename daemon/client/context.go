package client

import (
	"context"
	"time"
)

// Context returns a context for work that needs the lock. It ends when Warned is closed, so that
// the work has until the deadline to stop; the cause is an ErrLost. It also ends with Unlock and
// with parent. cancel frees the context's resources and does not unlock.
func (h *Hold) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	return until(parent, h.work.context())
}

// Grace returns how long before the deadline Warned is closed: the time that the holder has to
// stop.
func (h *Hold) Grace() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.grace
}
