package bakery

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// clockUnit is what one number stands for, so that numbers taken from wall
// clocks last beyond the year 2110.
const clockUnit = 256 * time.Microsecond

// clockSpan is how long after the format a wall clock is believed, so that
// one bad clock cannot use the numbers up.
const clockSpan = 20 * 365 * 24 * time.Hour

// clockLast is the greatest number that a clock offers, in the year 2111: what
// lies above is left to be drawn one by one.
const clockLast = layout.MaxNumber - 1<<36

// ClockNumber is the number that a wall clock offers for a claim on a
// lockspace formatted at the given time. A clock that cannot be right offers
// the time of the format: safety needs no clock, only the fast path and
// tokens that grow across a format like one.
func ClockNumber(now, formatted time.Time) uint64 {
	if now.Before(formatted) || now.Sub(formatted) > clockSpan {
		now = formatted
	}
	n := now.UnixMicro() / clockUnit.Microseconds()
	return uint64(min(max(n, 0), clockLast))
}
