package main

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// maxWait is far beyond any wait that is meant, and far from overflow.
const maxWait = 100 * 365 * 24 * time.Hour

// waitFlag is a flag of seconds, as flock(1) takes them, or of a Go duration.
type waitFlag struct {
	limit time.Duration
}

// Type implements pflag.Value.
func (w *waitFlag) Type() string { return "time" }

// String implements pflag.Value; empty is no limit.
func (w *waitFlag) String() string {
	if w.limit == 0 {
		return ""
	}
	return w.limit.String()
}

// Set implements pflag.Value.
func (w *waitFlag) Set(text string) error {
	limit, err := parseWait(text)
	if err != nil {
		return err
	}
	w.limit = limit
	return nil
}

func parseWait(text string) (time.Duration, error) {
	limit, err := time.ParseDuration(text)
	if seconds, floatErr := strconv.ParseFloat(text, 64); floatErr == nil {
		// What is too long, or not a number, is refused below.
		err = nil
		limit = -1
		if seconds <= maxWait.Seconds() {
			limit = time.Duration(math.Ceil(seconds * float64(time.Second)))
		}
	}
	if err != nil {
		return 0, fmt.Errorf("want seconds, as 1.5, or a duration, as 300ms or 5m")
	}
	if limit < 0 || limit > maxWait {
		return 0, fmt.Errorf("want 0 to %.0f seconds", maxWait.Seconds())
	}
	return limit, nil
}
