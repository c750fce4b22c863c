package membership

import (
	"time"
)

// turn begins a turn of the loop that drives the lease.
func (mb *Member) turn() {
	mb.mu.Lock()
	mb.turned = mb.clock.Now()
	mb.mu.Unlock()
}

// nextTurn returns when the loop must turn at the latest. Called with mu held.
func (mb *Member) nextTurn(at time.Duration) time.Duration {
	if mb.alive == nil {
		return at
	}
	return min(at, mb.turned+mb.aliveEvery)
}

// turnDone reports that the loop has turned.
func (mb *Member) turnDone() {
	if mb.alive != nil {
		mb.alive()
	}
}
