// Package standstill tells tests for how long the machine may stand still while they run.
package standstill

import (
	"os"
	"time"
)

// longest is the longest stall that test/stall makes; 0: it makes none.
var longest, _ = time.ParseDuration(os.Getenv("BAKERY_TEST_STALL"))

// Outlives returns a duration for which something has to last, such as a lease that is renewed, or
// the grace within which a command is to stop: it is longer by two stalls, which may come one right
// after the other.
func Outlives(d time.Duration) time.Duration { return d + 2*longest }

// Expected reports whether the machine may stand still for seconds: then what happens first of two
// things is not known.
func Expected() bool { return longest > 0 }
