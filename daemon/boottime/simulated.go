//go:build sim

package boottime

import (
	"errors"
	"sync"
	"time"
)

// Simulated tells whether time is that of a simulation.
const Simulated = true

// booted is well before any simulation begins: at midnight, 2000-01-01 UTC.
var booted = time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)

// Now is the time since then.
func Now() time.Duration { return time.Since(booted) }

// Alarm rings at a moment.
type Alarm struct {
	mu     sync.Mutex // guards timer and closed
	timer  *time.Timer
	closed chan struct{}
	over   bool
	rings  chan struct{} // takes one
}

// NewAlarm returns an alarm that is yet to be set.
func NewAlarm() (*Alarm, error) {
	return &Alarm{closed: make(chan struct{}), rings: make(chan struct{}, 1)}, nil
}

var errClosed = errors.New("alarm is closed")

// Set moves the moment to at, whether or not the alarm has rung. What is over
// rings at once. It fails only on an alarm that was closed.
func (a *Alarm) Set(at time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return errClosed
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	select {
	case <-a.rings: // for what it was set to before
	default:
	}
	a.timer = time.AfterFunc(at-Now(), func() {
		select {
		case a.rings <- struct{}{}:
		default:
		}
	})
	return nil
}

// Wait returns nil when the alarm rings, and an error once it was closed.
func (a *Alarm) Wait() error {
	select {
	case <-a.rings:
		return nil
	case <-a.closed:
		return errClosed
	}
}

// Close ends every Wait.
func (a *Alarm) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	a.over = true
	if a.timer != nil {
		a.timer.Stop()
	}
	close(a.closed)
}
