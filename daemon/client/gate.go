package client

import (
	"context"
	"sync"
)

// gate is a channel that is closed once. It is made when somebody asks for it, which few do for a short hold.
type gate struct {
	mu     sync.Mutex // guards the rest
	c      chan struct{}
	opened bool
}

func (g *gate) wait() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.c == nil {
		g.c = make(chan struct{})
		if g.opened {
			close(g.c)
		}
	}
	return g.c
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.opened && g.c != nil {
		close(g.c)
	}
	g.opened = true
}

// span is a context that ends once, likewise.
type span struct {
	mu    sync.Mutex // guards the rest
	ctx   context.Context
	end   context.CancelCauseFunc
	ended bool
	cause error
}

func (s *span) context() context.Context {
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

// close ends it, unless it has ended.
func (s *span) close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended && s.ctx != nil {
		s.end(cause)
	}
	if !s.ended {
		s.ended, s.cause = true, cause
	}
}
