package probe

import (
	"github.com/bakeryd/bakeryd/blockdev/latency"
)

// Latency sums up durations, in microseconds. Quantiles are exact to two significant figures, the
// maximum is exact.
type Latency struct {
	Count int   `json:"count"`
	P50   int64 `json:"p50_us"`
	P90   int64 `json:"p90_us"`
	P99   int64 `json:"p99_us"`
	P999  int64 `json:"p99_9_us"`
	Most  int64 `json:"max_us"`
}

// Stopwatch collects durations. The zero value is ready for use by one goroutine.
type Stopwatch struct{ latency.Recorder }

// Latency returns the summary of the added durations.
func (s *Stopwatch) Latency() Latency {
	at := func(percent float64) int64 { return s.At(percent).Microseconds() }
	return Latency{Count: int(s.Count()), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Most: s.Max().Microseconds()}
}
