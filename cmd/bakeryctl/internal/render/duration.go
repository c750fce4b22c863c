package render

import (
	"fmt"
	"time"
)

// Age formats an elapsed time with its two largest units: 59s, 2m10s, 2d02h.
func Age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s" // another host's clock
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Seconds formats milliseconds for a sentence: 2.1 s, 21 s, 2m10s.
func Seconds(ms int64) string {
	switch d := time.Duration(ms) * time.Millisecond; {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", float64(ms/100)/10)
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	default:
		return Age(d)
	}
}

// Span formats milliseconds for a table: 12ms, 2.1s, 2m10s.
func Span(ms int64) string {
	switch d := time.Duration(ms) * time.Millisecond; {
	case d < time.Second:
		return fmt.Sprintf("%dms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	default:
		return Age(d)
	}
}

// Short formats a latency in a few characters: 210 us, 1.2 ms, 14 ms, 2.1 s.
func Short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d us", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return Seconds(d.Milliseconds())
}

// Micros formats a latency in microseconds with three digits: 999 us, 8.28 ms, 34.9 ms.
func Micros(us int64) string {
	switch ms := float64(us) / 1000; {
	case us > -1000 && us < 1000:
		return fmt.Sprintf("%d us", us)
	case us > -10_000 && us < 10_000:
		return fmt.Sprintf("%.2f ms", ms)
	case us > -100_000 && us < 100_000:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.0f ms", ms)
	}
}

// Millis formats microseconds in a column where all are in milliseconds: 0.042 ms, 12.30 ms.
func Millis(us int64) string {
	ms := float64(us) / 1000
	if ms < 0.1 {
		return fmt.Sprintf("%.3f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}
