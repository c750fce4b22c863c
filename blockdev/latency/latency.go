// Package latency records durations and returns their quantiles. It never knows what took that
// long. Begin with [Recorder].
package latency

import (
	"cmp"
	"sort"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Longest is the upper bound of the quantiles. The maximum and the sum have none.
const Longest = 24 * time.Hour

// Recorder is a histogram of durations. The zero value is ready for use by one goroutine; the first
// Add allocates.
type Recorder struct {
	Figures int // significant figures of the quantiles, 1 to 5; 0: two

	times    *hdrhistogram.Histogram // nil if no duration was added
	sum, max time.Duration
}

// none is the histogram of a recorder without durations.
var none = hdrhistogram.New(1, 2, 1)

// Add adds a duration. A negative one counts as 0.
func (r *Recorder) Add(d time.Duration) {
	if r.times == nil {
		r.times = hdrhistogram.New(1, int64(Longest), cmp.Or(r.Figures, 2))
	}
	r.sum += max(d, 0)
	r.max = max(r.max, d)
	_ = r.times.RecordValue(int64(min(max(d, 1), Longest))) // no error: the value is within the bounds
}

// Clone returns a copy.
func (r *Recorder) Clone() *Recorder {
	c := *r
	if c.times != nil {
		c.times = c.times.Clone()
	}
	return &c
}

// Count returns the number of durations.
func (r *Recorder) Count() int64 { return cmp.Or(r.times, none).TotalCount() }

// Max returns the longest duration.
func (r *Recorder) Max() time.Duration { return r.max }

// Sum returns the sum of all durations.
func (r *Recorder) Sum() time.Duration { return r.sum }

// Mean returns the mean.
func (r *Recorder) Mean() time.Duration { return r.sum / time.Duration(max(1, r.Count())) }

// At returns the duration that a percentage of all does not exceed.
func (r *Recorder) At(percent float64) time.Duration {
	// A quantile is the upper end of its bucket, which may be above the maximum.
	return min(time.Duration(cmp.Or(r.times, none).ValueAtQuantile(percent)), r.max)
}

// Counts returns how many durations are below bounds[0], between each bound and the next, and from
// the last bound on. The bounds must increase.
func (r *Recorder) Counts(bounds []time.Duration) []int64 {
	counts := make([]int64, len(bounds)+1)
	for _, bar := range cmp.Or(r.times, none).Distribution() {
		middle := time.Duration(bar.From + (bar.To-bar.From)/2)
		counts[sort.Search(len(bounds), func(i int) bool { return bounds[i] > middle })] += bar.Count
	}
	return counts
}

// Summary sums up durations, in microseconds.
type Summary struct {
	Count int   `json:"count"`
	P50   int64 `json:"p50_us"`
	P90   int64 `json:"p90_us"`
	P99   int64 `json:"p99_us"`
	P999  int64 `json:"p99_9_us"`
	Most  int64 `json:"max_us"`
}

// Summary returns the summary of the added durations.
func (r *Recorder) Summary() Summary {
	at := func(percent float64) int64 { return r.At(percent).Microseconds() }
	return Summary{Count: int(r.Count()), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Most: r.Max().Microseconds()}
}
