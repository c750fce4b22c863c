package cli

import (
	"fmt"
	"time"
)

// ParseMoment parses a time in the past: 03:12 or 03:12:30, the latest such time of day; 2h, that
// long before now; a date, with or without a time of day; or RFC 3339. All but RFC 3339 are in
// now's time zone.
func ParseMoment(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return time.Time{}, fmt.Errorf("time %q is in the future", text)
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
	return time.Time{}, fmt.Errorf("invalid time %q: want 03:12, 2h, 2006-01-02, \"2006-01-02 03:12\" or 2006-01-02T03:12:00Z", text)
}
