// Package metrics shows to Prometheus what a bakeryd counts (package tally) and how it stands ([daemon.Vitals]). It asks
// the device for nothing, so a device that hangs does not hold up who looks, and how much it shows is bounded whatever
// clients name their locks. Only the command bakeryd has it: the package daemon does without the library.
//
// Begin with [Handler]; what there is to see is in described.go.
package metrics

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// Source is what is shown: a [daemon.Service].
type Source interface {
	Vitals() daemon.Vitals
	Tally() *tally.Tally
}

// Handler serves the metrics of a bakeryd of some version, and those of its process.
func Handler(version string, s Source) http.Handler {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(&collector{s: s, version: version},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4})
}

// collector reads its source whenever somebody looks.
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
	var locks []daemon.LockVitals
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
