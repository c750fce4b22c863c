package tally

import (
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
)

// Histogram counts durations. The zero value is ready for use.
type Histogram struct {
	mu    sync.Mutex // guards times
	times latency.Recorder
}

// Add counts a duration. A negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times.Figures = 1
	h.times.Add(d)
}

// Times returns a copy of the durations. Their quantiles have one significant figure.
func (h *Histogram) Times() *latency.Recorder {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.times.Clone()
}
