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
func (r *Recorder) Count() int64 {
	if r.times == nil {
		return 0
	}
	return r.times.TotalCount()
}

// Max returns the longest duration.
func (r *Recorder) Max() time.Duration { return r.max }

// Sum returns the sum of all durations.
func (r *Recorder) Sum() time.Duration { return r.sum }

// Mean returns the mean.
func (r *Recorder) Mean() time.Duration { return r.sum / time.Duration(max(1, r.Count())) }

// At returns the duration that a percentage of all does not exceed.
func (r *Recorder) At(percent float64) time.Duration {
	if r.times == nil {
		return 0
	}
	// A quantile is the upper end of its bucket, which may be above the maximum.
	return min(time.Duration(r.times.ValueAtQuantile(percent)), r.max)
}

// Counts returns how many durations are below bounds[0], between each bound and the next, and from
// the last bound on. The bounds must increase.
func (r *Recorder) Counts(bounds []time.Duration) []int64 {
	counts := make([]int64, len(bounds)+1)
	if r.times == nil {
		return counts
	}
	for _, bar := range r.times.Distribution() {
		middle := time.Duration(bar.From + (bar.To-bar.From)/2)
		counts[sort.Search(len(bounds), func(i int) bool { return bounds[i] > middle })] += bar.Count
	}
	return counts
}
