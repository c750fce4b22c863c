package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// MaxWait is the longest wait that a flag accepts. It is far from the overflow of a time.Duration.
const MaxWait = 100 * 365 * 24 * time.Hour

// Wait is a flag value: seconds, as in flock(1), or a Go duration. 0 means no limit, of which String
// returns "".
type Wait time.Duration

// Type, String and Set implement pflag.Value.
func (w *Wait) Type() string { return "time" }

func (w *Wait) String() string {
	if *w == 0 {
		return ""
	}
	return time.Duration(*w).String()
}

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
	if err != nil || limit < 0 || limit > MaxWait {
		return errors.New(w.Want())
	}
	*w = Wait(limit)
	return nil
}

// Want returns what the flag accepts.
func (w *Wait) Want() string {
	return "want seconds from 0, such as 1.5, or a time with its unit, such as 300ms or 5m"
}

// ParseMoment parses a time in the past: 03:12 or 03:12:30, the latest such time of day; 2h, that
// long before now; a date, with or without a time of day; or RFC 3339. All but RFC 3339 are in
// now's time zone.
func ParseMoment(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return time.Time{}, fmt.Errorf("%q: want a time in the past, such as %s", text, strings.TrimPrefix(text, "-"))
		}
		return now.Add(-d), nil
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			year, month, day := now.Date()
			of := func(day int) time.Time {
				return time.Date(year, month, day, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), now.Location())
			}
			if today := of(day); !today.After(now) {
				return today, nil
			}
			return of(day - 1), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: want 03:12, 2h, 2006-01-02, \"2006-01-02 03:12\" or 2006-01-02T03:12:00Z", text)
}
