package metrics

import (
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bakeryd/bakeryd/daemon/tally"
)

// put sends metrics to a collector's channel. Labels are pairs of a name and a value, which may have
// any bytes, as a path has.
type put struct{ out chan<- prometheus.Metric }

func (p put) gauge(name, help string, v float64, labels ...string) {
	desc, values := describe(name, help, labels)
	p.out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, values...)
}

func (p put) counter(name, help string, v float64, labels ...string) {
	desc, values := describe(name, help, labels)
	p.out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, v, values...)
}

func (p put) count(name, help string, n *atomic.Uint64, labels ...string) {
	p.counter(name, help, float64(n.Load()), labels...)
}

func describe(name, help string, labels []string) (desc *prometheus.Desc, values []string) {
	var names []string
	for i := 0; i < len(labels); i += 2 {
		names = append(names, labels[i])
		values = append(values, strings.ToValidUTF8(labels[i+1], "\uFFFD"))
	}
	return prometheus.NewDesc("bakery_"+name, help, names, nil), values
}

// scale is the range of exported bucket bounds, as powers of two of a nanosecond.
type scale struct{ first, last int }

var (
	ofIO    = scale{16, 35} // 66 µs to 34 s
	ofLocks = scale{18, 44} // 0.26 ms to 4.9 h
)

// histogram returns the number of durations.
func (p put) histogram(name, help string, h *tally.Histogram, s scale, labels ...string) float64 {
	t := h.Times()
	var bounds []time.Duration
	for n := s.first; n <= s.last; n++ {
		bounds = append(bounds, 1<<n)
	}
	upTo, sum := map[float64]uint64{}, uint64(0)
	for i, n := range t.Counts(bounds)[:len(bounds)] {
		sum += uint64(n)
		upTo[math.Ldexp(1e-9, s.first+i)] = sum
	}
	desc, values := describe(name, help, labels)
	p.out <- prometheus.MustNewConstHistogram(desc, uint64(t.Count()), t.Sum().Seconds(), upTo, values...)
	return float64(t.Count())
}
