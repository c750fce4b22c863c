package client

import (
	"context"
	"sync"
)

// lazyContext is a context that ends once. It is created on first use, because most short holds need
// none.
type lazyContext struct {
	mu    sync.Mutex // guards the fields below
	ctx   context.Context
	end   context.CancelCauseFunc
	ended bool
	cause error
}

func (s *lazyContext) done() <-chan struct{} { return s.context().Done() }

func (s *lazyContext) context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		s.ctx, s.end = context.WithCancelCause(context.Background())
		if s.ended {
			s.end(s.cause)
		}
	}
	return s.ctx
}

// close ends the context, unless it has ended.
func (s *lazyContext) close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended && s.ctx != nil {
		s.end(cause)
	}
	if !s.ended {
		s.ended, s.cause = true, cause
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
