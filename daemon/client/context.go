package client

import (
	"context"
	"sync"
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
func (h *Hold) Grace() time.Duration { return locked(&h.mu, &h.grace) }

// locked returns a variable that mu guards.
func locked[T any](mu *sync.Mutex, v *T) T {
	mu.Lock()
	defer mu.Unlock()
	return *v
}

// lazyContext is a context that ends once. It is created on first use, because most short holds need
// none.
type lazyContext struct {
	mu    sync.Mutex // guards the fields below
	ctx   context.Context
	end   context.CancelCauseFunc
	cause error // why it has ended; nil: it has not
}

func (s *lazyContext) context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		s.ctx, s.end = context.WithCancelCause(context.Background())
		if s.cause != nil {
			s.end(s.cause)
		}
	}
	return s.ctx
}

// close ends the context, unless it has ended. There must be a cause.
func (s *lazyContext) close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return
	}
	s.cause = cause
	if s.ctx != nil {
		s.end(cause)
	}
}

// until returns a context that also ends with end, and by the cause of that.
func until(ctx, end context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if end.Err() != nil {
		cancel(context.Cause(end)) // synchronously: the returned context must not look valid
	}
	stop := context.AfterFunc(end, func() { cancel(context.Cause(end)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
