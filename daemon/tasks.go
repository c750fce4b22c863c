package daemon

import "sync"

// tasks are goroutines that can be waited for while others still begin, which a sync.WaitGroup does not allow: clients
// ask while bakeryd leaves.
type tasks struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // somebody waits: closed when there is none
}

// Go runs f on a goroutine.
func (t *tasks) Go(f func()) {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
	go func() {
		defer t.done()
		f()
	}()
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// Wait returns once there is none. It knows nothing of those that begin later.
func (t *tasks) Wait() {
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
