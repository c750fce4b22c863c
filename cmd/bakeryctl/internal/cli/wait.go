package cli

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// MaxWait is the longest wait that a flag accepts. It is far from the overflow of a time.Duration.
const MaxWait = 100 * 365 * 24 * time.Hour

// WaitFlag is a flag value: seconds, as in flock(1), or a Go duration.
type WaitFlag struct {
	Limit time.Duration
}

// Type implements pflag.Value.
func (w *WaitFlag) Type() string { return "time" }

// String implements pflag.Value. It returns "" if there is no limit.
func (w *WaitFlag) String() string {
	if w.Limit == 0 {
		return ""
	}
	return w.Limit.String()
}

// Set implements pflag.Value.
func (w *WaitFlag) Set(text string) error {
	limit, err := ParseWait(text)
	if err != nil {
		return err
	}
	w.Limit = limit
	return nil
}

// ParseWait parses a number of seconds or a Go duration.
func ParseWait(text string) (time.Duration, error) {
	limit, err := time.ParseDuration(text)
	if seconds, floatErr := strconv.ParseFloat(text, 64); floatErr == nil {
		// Values that are too long, or not a number, are refused below.
		err = nil
		limit = -1
		if seconds <= MaxWait.Seconds() {
			limit = time.Duration(math.Ceil(seconds * float64(time.Second)))
		}
	}
	if err != nil {
		return 0, fmt.Errorf("want seconds, such as 1.5, or a duration, such as 300ms or 5m")
	}
	if limit < 0 || limit > MaxWait {
		return 0, fmt.Errorf("want 0 to %.0f seconds", MaxWait.Seconds())
	}
	return limit, nil
}
