package session

import "sync"

// Ending is how far the end of a host has come.
type Ending struct {
	Drained    chan struct{} // closed when holders must stop, for DrainedFor
	DrainedFor string
	Ended      chan struct{} // closed when no commands must be watched any more
	once       sync.Once
}

func NewEnding() *Ending {
	return &Ending{Drained: make(chan struct{}), Ended: make(chan struct{})}
}

// Drain makes every holder stop.
func (e *Ending) Drain(why string) {
	e.DrainedFor = why
	close(e.Drained)
}

func (e *Ending) End() { e.once.Do(func() { close(e.Ended) }) }
