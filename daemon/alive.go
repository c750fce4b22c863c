package daemon

import (
	"time"
)

// Alive: whoever watches over this process is told for as long as it does its work, and by who does it: the loop that
// drives the lease, which joins as well as renews. Where there is no lease to drive, it is the loop of Service that is to
// join anew. A device that fails or hangs keeps neither from turning: that ends the lease, and nothing would be won if it
// ended the process.

// aliveEvery is how often the service tells so where no lease is driven.
const aliveEvery = time.Second

// turn begins a turn of the loop that drives the lease.
func (mb *member) turn() {
	mb.mu.Lock()
	mb.turned = mb.clock.Now()
	mb.mu.Unlock()
}

// nextTurn is when the loop is to turn at the latest. It is called with mu held.
func (mb *member) nextTurn(at time.Duration) time.Duration {
	if mb.alive == nil {
		return at
	}
	return min(at, mb.turned+mb.aliveEvery)
}

// turnDone tells that the loop has turned.
func (mb *member) turnDone() {
	if mb.alive != nil {
		mb.alive()
	}
}

// drives tells whether a lease is driven, and by its loop that the service is alive.
func (d *Daemon) drives() bool {
	mb := d.driving.Load()
	return mb != nil && !mb.isOver()
}

// whileAlive does what may take long, and tells meanwhile that the service is alive where no lease is driven.
func (s *Service) whileAlive(do func() error) error {
	if s.cfg.Alive == nil {
		return do()
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	for {
		if d := s.Current(); d == nil || !d.drives() {
			s.cfg.Alive()
		}
		select {
		case err := <-done:
			return err
		case <-time.After(min(aliveEvery, s.cfg.AliveEvery)):
		}
	}
}
