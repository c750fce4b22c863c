package tally

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A histogram has eight buckets for each power of two, so that a quantile is exact to an eighth.
// The first ends at 1.024 µs, the last has everything above 19 hours.
const (
	perOctave = 1 << octaveBits
	firstBits = 10 // the first bucket ends at 2^10 ns
	lastBits  = 46

	octaveBits = 3
	buckets    = 1 + (lastBits-firstBits)*perOctave + 1
)

// Histogram counts durations. The zero value is ready for use.
type Histogram struct {
	counts [buckets]atomic.Uint64
	sum    atomic.Int64
	max    atomic.Int64
}

// bucketOf returns the bucket of a duration: the first whose end is not below it.
func bucketOf(d time.Duration) int {
	n := uint64(d - 1)
	switch {
	case d <= 1<<firstBits:
		return 0
	case d > 1<<lastBits:
		return buckets - 1
	}
	octave := bits.Len64(n) - 1
	return 1 + (octave-firstBits)*perOctave + int(n>>(octave-octaveBits))&(perOctave-1)
}

// endOf returns the greatest duration of a bucket other than the last.
func endOf(bucket int) time.Duration {
	if bucket == 0 {
		return 1 << firstBits
	}
	octave, part := firstBits+(bucket-1)/perOctave, (bucket-1)%perOctave
	return time.Duration(perOctave+part+1) << (octave - octaveBits)
}

// Add counts a duration. A negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(d)].Add(1)
	h.sum.Add(int64(d))
	for {
		most := h.max.Load()
		if int64(d) <= most || h.max.CompareAndSwap(most, int64(d)) {
			return
		}
	}
}

// Times is a copy of the counts of a histogram.
type Times struct {
	Count uint64
	Sum   time.Duration // may lack a duration that is being counted, or include one that is not in Count yet
	Max   time.Duration

	counts [buckets]uint64
}

// Times returns the present counts.
func (h *Histogram) Times() *Times {
	t := &Times{Sum: time.Duration(h.sum.Load()), Max: time.Duration(h.max.Load())}
	for i := range h.counts {
		t.counts[i] = h.counts[i].Load()
		t.Count += t.counts[i]
	}
	return t
}

// AtMost returns the number of durations not longer than 2^n ns, for n of 10 to 46.
func (t *Times) AtMost(n int) (count uint64) {
	for i := range 1 + (n-firstBits)*perOctave {
		count += t.counts[i]
	}
	return count
}

// Quantile returns an upper bound of a part of all durations, at most an eighth too high; 0 if
// there are none.
func (t *Times) Quantile(part float64) time.Duration {
	want, count := part*float64(t.Count), uint64(0)
	for i := range buckets - 1 {
		if count += t.counts[i]; count > 0 && float64(count) >= want {
			return min(endOf(i), t.Max)
		}
	}
	return t.Max
}
