// Package metrics exports to Prometheus the counts of a bakeryd (package tally) and its state
// ([daemon.Vitals]). It does no IO on the device, so a hanging device does not block a scrape.
// The number of series is bounded, whatever names clients give their locks. Only the command
// bakeryd imports it: package daemon does not need the library.
//
// Begin with [Handler]. described.go lists the metrics.
package metrics

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// Source is the exported bakeryd: a [daemon.Service].
type Source interface {
	Vitals() daemon.Vitals
	Tally() *tally.Tally
}

// Handler serves the metrics of a bakeryd of the given version, and those of its process.
func Handler(version string, s Source) http.Handler {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(&collector{s: s, version: version},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4})
}

// collector reads its source at each scrape.
type collector struct {
	s       Source
	version string
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range described {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	p := put{out}
	v, t := c.s.Vitals(), c.s.Tally()
	p.gauge(buildInfo, 1, c.version, runtime.Version())
	for _, state := range []string{daemon.StateJoining, daemon.StateLive, daemon.StateLeaving, daemon.StateLost} {
		p.gauge(hostState, oneIf(v.State == state), state)
	}
	p.gauge(joined, oneIf(v.State == daemon.StateLive || v.State == daemon.StateLeaving))
	p.gauge(descriptors, float64(v.Descriptors))
	p.gauge(descriptorsLimit, float64(v.MostClients))
	p.counted(t)
	var locks []queue.Vitals
	if v.Term != nil {
		p.term(v.Term)
		locks = v.Term.Locks
	}
	p.locks(t, locks)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
