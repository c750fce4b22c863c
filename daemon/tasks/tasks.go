// Package tasks runs goroutines and waits for them.
package tasks

import "sync"

// Group is a group of goroutines that can be waited for while new ones start, which a
// sync.WaitGroup does not permit: clients send requests while bakeryd leaves.
type Group struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when no goroutine is left; nil if nothing waits
}

// Go runs f in a goroutine.
func (t *Group) Go(f func()) {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
	go func() {
		defer t.done()
		f()
	}()
}

func (t *Group) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// Wait blocks until no goroutine is left. It does not cover those that start later.
func (t *Group) Wait() {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	<-idle
}
