package bench

import (
	"math"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
)

func newTimes() *latency.Recorder { return &latency.Recorder{Figures: 3} }

// dist is a distribution of times, in whole microseconds.
type dist struct {
	Count  int64 `json:"count"`
	MeanUS int64 `json:"mean_us"`
	P50US  int64 `json:"p50_us"`
	P90US  int64 `json:"p90_us"`
	P99US  int64 `json:"p99_us"`
	P999US int64 `json:"p999_us"`
	MaxUS  int64 `json:"max_us"`
}

func distOf(t *latency.Recorder) dist {
	return dist{
		Count: t.Count(), MeanUS: micros(t.Mean()),
		P50US: micros(t.At(50)), P90US: micros(t.At(90)), P99US: micros(t.At(99)), P999US: micros(t.At(99.9)), MaxUS: micros(t.Max()),
	}
}

// compared is a distribution next to its floor, which was measured in the same run.
type compared struct {
	dist
	FloorP50US int64   `json:"floor_p50_us"`
	Ratio      float64 `json:"ratio"` // of the medians

	times *latency.Recorder
}

// compare sums up the times.
func (c *compared) compare(floor time.Duration) {
	c.dist, c.FloorP50US, c.Ratio = distOf(c.times), micros(floor), ratio(c.times.At(50), floor)
}

// middle returns the median of times, which it sorts.
func middle(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

func micros(d time.Duration) int64 { return d.Round(time.Microsecond).Microseconds() }

// ratio returns a/b, rounded to three places.
func ratio[T ~int | ~int64](a, b T) float64 {
	if b <= 0 {
		return 0
	}
	return math.Round(1000*float64(a)/float64(b)) / 1000
}
