package bench

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	longest = time.Minute // greatest time recorded
	figures = 3
)

// Times is a histogram of times. The zero value is ready to use; Add allocates only at the first
// call. One goroutine uses it.
type Times struct {
	times *hdrhistogram.Histogram
	most  time.Duration
}

// newTimes returns a Times that is already allocated.
func newTimes() *Times {
	t := new(Times)
	t.all()
	return t
}

// all returns the histogram, and creates it if needed.
func (t *Times) all() *hdrhistogram.Histogram {
	if t.times == nil {
		t.times = hdrhistogram.New(1, int64(longest), figures)
	}
	return t.times
}

// Add adds a time.
func (t *Times) Add(d time.Duration) {
	t.most = max(t.most, d)
	_ = t.all().RecordValue(int64(min(max(d, 1), longest))) // always within the histogram's bounds
}

// Count returns the number of times.
func (t *Times) Count() int64 { return t.all().TotalCount() }

// At returns the percentile, exact to three figures.
func (t *Times) At(percent float64) time.Duration {
	return min(time.Duration(t.all().ValueAtQuantile(percent)), t.most)
}

// Counts returns how many times are below bounds[0], between each bound and the next, and from the
// last bound on. The bounds must increase.
func (t *Times) Counts(bounds []time.Duration) []int64 {
	counts := make([]int64, len(bounds)+1)
	for _, bar := range t.all().Distribution() {
		if bar.Count == 0 {
			continue
		}
		middle := time.Duration(bar.From + (bar.To-bar.From)/2)
		at, found := slices.BinarySearch(bounds, middle)
		if found {
			at++
		}
		counts[at] += bar.Count
	}
	return counts
}

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

func (t *Times) dist() Dist {
	return Dist{
		Count: t.Count(), MeanUS: micros(min(time.Duration(t.all().Mean()), t.most)),
		P50US: micros(t.At(50)), P90US: micros(t.At(90)), P99US: micros(t.At(99)), P999US: micros(t.At(99.9)), MaxUS: micros(t.most),
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
