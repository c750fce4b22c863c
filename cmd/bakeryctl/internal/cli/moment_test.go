package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseMoment(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 2*60*60)
	now := time.Date(2026, 3, 1, 9, 30, 0, 0, zone)
	at := func(year, month, day, hour, minute, second int) time.Time {
		return time.Date(year, time.Month(month), day, hour, minute, second, 0, zone)
	}
	for text, want := range map[string]time.Time{
		"03:12":                       at(2026, 3, 1, 3, 12, 0),
		"3:12:07":                     at(2026, 3, 1, 3, 12, 7),
		"09:30":                       now,
		"09:31":                       at(2026, 2, 28, 9, 31, 0),
		"23:59:59":                    at(2026, 2, 28, 23, 59, 59),
		"2h":                          at(2026, 3, 1, 7, 30, 0),
		"1h30m":                       at(2026, 3, 1, 8, 0, 0),
		"0":                           now,
		"2026-02-03":                  at(2026, 2, 3, 0, 0, 0),
		"2026-02-03 04:05":            at(2026, 2, 3, 4, 5, 0),
		"2026-02-03 04:05:06":         at(2026, 2, 3, 4, 5, 6),
		"2026-02-03T04:05:06":         at(2026, 2, 3, 4, 5, 6),
		"2026-02-03T04:05:06Z":        at(2026, 2, 3, 6, 5, 6),
		"2026-02-03T04:05:06.5-01:00": at(2026, 2, 3, 7, 5, 6).Add(500 * time.Millisecond),
	} {
		got, err := ParseMoment(text, now)
		require.NoError(t, err)
		require.True(t, want.Equal(got), "%s: %v, want %v", text, got, want)
	}
	for _, text := range []string{"", "yesterday", "25:00", "03:60", "-2h", "2026-13-01", "03:12pm", "2"} {
		_, err := ParseMoment(text, now)
		require.ErrorContains(t, err, `"`+text+`": want`)
	}
}
