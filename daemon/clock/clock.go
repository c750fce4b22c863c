// Package clock has the clock of a host: the time since its machine booted, and alarms that ring
// at a moment of it. The clock continues while the machine sleeps, as leases do, and no step of
// the wall clock changes it.
//
// A host takes a [Clock] from its Config. [Boottime] is the real one; package clocktest has one for
// bubbles of testing/synctest.
package clock

import "time"

// Clock is CLOCK_BOOTTIME of one host.
type Clock interface {
	// Now returns the time since the host booted.
	Now() time.Duration

	// NewAlarm returns an alarm that is not set yet.
	NewAlarm() (Alarm, error)

	// Spin blocks for about d, at least for the timer slack of the thread (50 microseconds), and
	// reports whether it did. Timers of the runtime are up to a millisecond late. It returns false
	// immediately if d is a millisecond or more, or if too many goroutines spin already: nothing
	// can end it early.
	Spin(d time.Duration) bool
}

// Alarm rings at a moment of its clock, also if the machine slept until then or beyond.
type Alarm interface {
	// Set moves the alarm to at, whether or not it has rung. A moment in the past rings
	// immediately. It fails only if the alarm is closed.
	Set(at time.Duration) error

	// Wait blocks until the alarm rings. It returns an error if the alarm is closed.
	Wait() error

	// Close ends every Wait.
	Close()
}
