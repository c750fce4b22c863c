package probe

import (
	"context"
	"encoding/json"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency sums up durations. Quantiles are exact to two significant figures, the maximum is
// exact. In JSON it is in microseconds.
type Latency struct {
	Count                     int
	P50, P90, P99, P999, Most time.Duration
}

// MarshalJSON implements json.Marshaler.
func (l Latency) MarshalJSON() ([]byte, error) {
	return json.Marshal(latencyJSON{l.Count, l.P50.Microseconds(), l.P90.Microseconds(), l.P99.Microseconds(), l.P999.Microseconds(), l.Most.Microseconds()})
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Latency) UnmarshalJSON(b []byte) error {
	var j latencyJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	*l = Latency{j.Count, us(j.P50), us(j.P90), us(j.P99), us(j.P999), us(j.Max)}
	return nil
}

type latencyJSON struct {
	Count int   `json:"count"`
	P50   int64 `json:"p50_us"`
	P90   int64 `json:"p90_us"`
	P99   int64 `json:"p99_us"`
	P999  int64 `json:"p99_9_us"`
	Max   int64 `json:"max_us"`
}

// Stopwatch collects durations. The zero value is ready for use by one goroutine.
type Stopwatch struct {
	times *hdrhistogram.Histogram
	most  time.Duration
}

// longest is the upper bound of the quantiles.
const longest = time.Hour

// Add adds one duration.
func (s *Stopwatch) Add(d time.Duration) {
	if s.times == nil {
		s.times = hdrhistogram.New(int64(time.Microsecond), int64(longest), 2)
	}
	s.most = max(s.most, d)
	_ = s.times.RecordValue(int64(min(max(d, time.Microsecond), longest))) // no error: the value is within bounds
}

// Latency returns the summary of the added durations.
func (s *Stopwatch) Latency() Latency {
	if s.times == nil {
		return Latency{}
	}
	at := func(q float64) time.Duration { return min(time.Duration(s.times.ValueAtQuantile(q)), s.most) }
	return Latency{Count: int(s.times.TotalCount()), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Most: s.most}
}

// Effort bounds the repetitions of a measurement. If For is set, it lasts that long. Otherwise it
// runs Count times, at least once, but stops after Limit.
type Effort struct {
	Count int
	Limit time.Duration
	For   time.Duration
}

// Repeat calls f repeatedly, until the effort is made, f fails or ctx is done. It then returns
// that error or cause.
func (e Effort) Repeat(ctx context.Context, f func() error) error {
	limit, begun := e.Limit, time.Now()
	if e.For > 0 {
		limit = e.For
	}
	for i := 0; i == 0 || (e.For > 0 || i < e.Count) && time.Since(begun) < limit; i++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}
