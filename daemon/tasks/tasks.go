// Package tasks runs goroutines and waits for them.
package tasks

import "sync"

// Group is a group of goroutines that can be waited for while new ones start, which a
// sync.WaitGroup does not permit: clients send requests while bakeryd leaves.
type Group struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when no goroutine is left; nil before the first one
}

// Go runs f in a goroutine.
func (t *Group) Go(f func()) {
	t.mu.Lock()
	if t.n++; t.n == 1 {
		t.idle = make(chan struct{})
	}
	t.mu.Unlock()
	go func() {
		defer t.done()
		f()
	}()
}

func (t *Group) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 {
		close(t.idle)
	}
}

// Wait blocks until no goroutine is left. It does not cover those that start later.
func (t *Group) Wait() {
	t.mu.Lock()
	idle := t.idle
	t.mu.Unlock()
	if idle != nil {
		<-idle
	}
}
