package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// MaxWait is the longest wait that a flag accepts. It is far from the overflow of a time.Duration.
const MaxWait = 100 * 365 * 24 * time.Hour

// Wait is a flag value: seconds, as in flock(1), or a Go duration. 0 means no limit.
type Wait time.Duration

// Type implements pflag.Value.
func (w *Wait) Type() string { return "time" }

// String implements pflag.Value. It returns "" if there is no limit.
func (w *Wait) String() string {
	if *w == 0 {
		return ""
	}
	return time.Duration(*w).String()
}

// Set implements pflag.Value.
func (w *Wait) Set(text string) error {
	limit, err := time.ParseDuration(text)
	if seconds, floatErr := strconv.ParseFloat(text, 64); floatErr == nil {
		// Values that are too long, or not a number, are refused below.
		err = nil
		limit = -1
		if seconds <= MaxWait.Seconds() {
			limit = time.Duration(math.Ceil(seconds * float64(time.Second)))
		}
	}
	switch {
	case err != nil:
		return errors.New("want seconds, such as 1.5, or a duration, such as 300ms or 5m")
	case limit < 0 || limit > MaxWait:
		return fmt.Errorf("want 0 to %.0f seconds", MaxWait.Seconds())
	}
	*w = Wait(limit)
	return nil
}
