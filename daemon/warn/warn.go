// Package warn limits how often a warning is logged.
package warn

import "time"

// Every is the least time between two warnings of one limiter.
const Every = 10 * time.Second

// Limiter limits how often a repeating warning is logged. One goroutine at a time may use it.
type Limiter struct{ last time.Time }

// Allow reports whether the warning is to be logged now.
func (l *Limiter) Allow() bool {
	if time.Since(l.last) < Every {
		return false
	}
	l.last = time.Now()
	return true
}
