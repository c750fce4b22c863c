package render

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", 130 * time.Second: "2m10s",
		time.Hour + 5*time.Minute: "1h05m", 47 * time.Hour: "47h00m", 50 * time.Hour: "2d02h",
	} {
		require.Equal(t, want, Age(d))
	}
}

func TestSeconds(t *testing.T) {
	for ms, want := range map[int64]string{
		0: "0.0 s", 49: "0.0 s", 2199: "2.1 s", 9999: "9.9 s", 10_000: "10 s", 59_999: "59 s", 130_000: "2m10s", 7_260_000: "2h01m",
	} {
		require.Equal(t, want, Seconds(ms))
	}
}

func TestMicros(t *testing.T) {
	for us, want := range map[int64]string{
		0: "0 us", 999: "999 us", 1000: "1.00 ms", 8284: "8.28 ms", 34_900: "34.9 ms", 120_400: "120 ms", -300: "-300 us", -2500: "-2.50 ms",
	} {
		require.Equal(t, want, Micros(us))
	}
}
