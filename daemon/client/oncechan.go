package client

import (
	"context"
	"sync"
)

// onceChan is a channel that is closed once. It is created on first use, because most short holds
// need none.
type onceChan struct {
	mu     sync.Mutex // guards the fields below
	c      chan struct{}
	opened bool
}

func (o *onceChan) done() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.c == nil {
		o.c = make(chan struct{})
		if o.opened {
			close(o.c)
		}
	}
	return o.c
}

func (o *onceChan) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.opened && o.c != nil {
		close(o.c)
	}
	o.opened = true
}

// lazyContext is a context that ends once. It is created on first use.
type lazyContext struct {
	mu    sync.Mutex // guards the fields below
	ctx   context.Context
	end   context.CancelCauseFunc
	ended bool
	cause error
}

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
