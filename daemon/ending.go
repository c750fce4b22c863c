package daemon

import "sync"

// ending is how far the end of a host has come.
type ending struct {
	drained    chan struct{} // closed when holders must stop, for drainedFor
	drainedFor string
	ended      chan struct{} // closed when no commands must be watched any more
	once       sync.Once
}

func newEnding() *ending {
	return &ending{drained: make(chan struct{}), ended: make(chan struct{})}
}

// drain makes every holder stop.
func (e *ending) drain(why string) {
	e.drainedFor = why
	close(e.drained)
}

func (e *ending) end() { e.once.Do(func() { close(e.ended) }) }
