package bench

import (
	"math"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
)

func newTimes() *latency.Recorder { return &latency.Recorder{Fine: true} }

// Dist is a distribution of times, in whole microseconds.
type Dist struct {
	Count  int64 `json:"count"`
	MeanUS int64 `json:"mean_us"`
	P50US  int64 `json:"p50_us"`
	P90US  int64 `json:"p90_us"`
	P99US  int64 `json:"p99_us"`
	P999US int64 `json:"p999_us"`
	MaxUS  int64 `json:"max_us"`
}

func distOf(t *latency.Recorder) Dist {
	return Dist{
		Count: t.Count(), MeanUS: micros(t.Mean()),
		P50US: micros(t.At(50)), P90US: micros(t.At(90)), P99US: micros(t.At(99)), P999US: micros(t.At(99.9)), MaxUS: micros(t.Max()),
	}
}

func micros(d time.Duration) int64 { return d.Round(time.Microsecond).Microseconds() }

// ratio returns a/b, rounded to three places.
func ratio(a, b time.Duration) float64 {
	if b <= 0 {
		return 0
	}
	return math.Round(1000*float64(a)/float64(b)) / 1000
}
