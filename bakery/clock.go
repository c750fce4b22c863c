package bakery

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// clockUnit is the duration of one number. Numbers taken from wall clocks then last beyond the
// year 2110.
const clockUnit = 256 * time.Microsecond

// clockSpan is the maximum distance of a credible wall clock from the time of the format. It
// keeps one wrong clock from using up the numbers.
const clockSpan = 20 * 365 * 24 * time.Hour

// clockLast is the greatest number that a clock offers, in the year 2111. The numbers above it
// are drawn one by one.
const clockLast = layout.MaxNumber - 1<<36

// ClockNumber returns the number that a wall clock offers for a claim on a lockspace formatted at
// the given time. A clock outside the credible range offers the time of the format. Safety needs
// no clock; only the fast path and tokens that grow across a format use one.
func ClockNumber(now, formatted time.Time) uint64 {
	if now.Before(formatted) || now.Sub(formatted) > clockSpan {
		now = formatted
	}
	n := now.UnixMicro() / clockUnit.Microseconds()
	return uint64(min(max(n, 0), clockLast))
}
