// Package standstill tells tests how long the machine may be stopped while they run.
package standstill

import (
	"os"
	"time"
)

// longest is the longest stall of test/stall; 0: none.
var longest, _ = time.ParseDuration(os.Getenv("BAKERY_TEST_STALL"))

// Outlives returns a duration that outlives two consecutive stalls, for example for a lease that is
// renewed, or for the grace in which a command must stop.
func Outlives(d time.Duration) time.Duration { return d + 2*longest }

// Lease is a lease long enough for a busy machine to start processes, and to renew it, and short enough
// for tests that wait for its end.
var Lease = Outlives(5 * time.Second)

// Expected reports whether the machine may be stopped for seconds: then the order of two events is
// not certain.
func Expected() bool { return longest > 0 }
