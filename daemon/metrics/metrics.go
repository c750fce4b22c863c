// Package metrics exports to Prometheus the counts of a bakeryd (package tally) and its state
// ([daemon.Vitals]). It does no IO on the device, so a hanging device does not block a scrape.
// The number of series is bounded, whatever names clients give their locks. Only the command
// bakeryd imports it: package daemon does not need the library.
//
// Begin with [Handler]. A _total begins at 0 with bakeryd, not with a term of membership. Times
// are in seconds.
package metrics

import (
	"cmp"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// Source is the exported bakeryd: a [daemon.Service].
type Source interface {
	Vitals() daemon.Vitals
	Tally() *tally.Tally
}

// Handler serves the metrics of a bakeryd of the given version, and those of its process. policy reports whether
// its policy file is valid; nil: it has none.
func Handler(version string, s Source, policy func() bool) http.Handler {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(&collector{s: s, version: version, policy: policy},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4})
}

// collector reads its source at each scrape.
type collector struct {
	s       Source
	version string
	policy  func() bool // nil: there is no policy file
}

// Describe implements prometheus.Collector. It sends nothing: each metric has its own description.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	p := put{out}
	v, t := c.s.Vitals(), c.s.Tally()
	p.gauge("build_info", "The bakeryd that runs: 1.", 1, "version", c.version, "goversion", runtime.Version())
	for _, state := range []string{report.StateJoining, report.StateLive, report.StateLeaving, report.StateLost} {
		p.gauge("state", "1 for the state of the host: joining, live, leaving, or lost (its lease).",
			oneIf[v.State == state], "state", state)
	}
	p.gauge("joined", "Whether the host is in its lockspace: 1 or 0.",
		oneIf[v.State == report.StateLive || v.State == report.StateLeaving])
	p.gauge("client_descriptors", "File descriptors in use by clients.", float64(v.Descriptors))
	p.gauge("client_descriptors_limit", "File descriptors available to clients. Further ones are refused.",
		float64(v.MostClients))
	if c.policy != nil {
		p.gauge("policy_file_valid", "Whether the policy file, as last read, is in force: 1 or 0.", oneIf[c.policy()])
	}
	for code, n := range t.Refused.All() {
		p.counter("refused_total", "Requests that were refused, by the code of the error.", float64(n), "code", code)
	}
	p.lease(t)
	p.otherHosts(t)
	p.io(t)
	if v.Term != nil {
		p.term(v.Term)
	}
	p.locks(t, cmp.Or(v.Term, &daemon.TermVitals{}).Locks)
}

// oneIf has the value of a gauge that is 1 or 0.
var oneIf = map[bool]float64{true: 1}

func (p put) lease(t *tally.Tally) {
	renewals := p.histogram("lease_renewal_duration_seconds",
		"Time that a renewal took: a read of the host table and a write.", &t.Renewals, ofIO)
	p.counter("lease_renewals_total", "Renewals of the lease.", renewals)
	p.count("lease_renewal_failures_total", "Reads and writes for the lease that failed; they are retried.",
		&t.RenewalFailures)
	p.count("leases_lost_total", "Leases that were lost, with all their holds.", &t.LeasesLost)
	resumed := t.Resumed.Load()
	for label, n := range map[string]uint64{"true": resumed, "false": t.Joins.Load() - resumed} {
		p.counter("joins_total", "Times that the host joined the lockspace; resumed: with the lease of the previous bakeryd.",
			float64(n), "resumed", label)
	}
}

func (p put) otherHosts(t *tally.Tally) {
	for by, n := range map[string]*atomic.Uint64{"self": &t.DeathsDeclared, "other": &t.DeathsLearned} {
		p.count("host_deaths_total", "Hosts declared dead, by the author of the verdict: this one itself, or another.",
			n, "by", by)
	}
	p.count("hosts_fenced_total", "Hosts that this one cut off from the device.", &t.Fenced)
	p.count("fencing_failures_total", "Attempts to cut a host off that failed.", &t.FencingFailures)
	p.count("recoveries_total", "Times that the lock of a dead host no longer blocked a client of this one.", &t.Recoveries)
	p.count("evictions_total", "Evictions by operators of this host.", &t.Evictions)
}

// io exports the requests to the device.
func (p put) io(t *tally.Tally) {
	for kind := range tally.Kind(tally.Kinds) {
		for op, r := range map[string]*tally.Requests{"read": &t.IO[kind].Reads, "write": &t.IO[kind].Writes} {
			if kind == tally.Report && op == "write" { // a report only reads
				continue
			}
			p.histogram("io_duration_seconds", "Time that requests to the device took, including failed ones.",
				&r.Times, ofIO, "op", op, "kind", kind.String())
			p.count("io_errors_total", "Requests to the device that failed.", &r.Errors, "op", op, "kind", kind.String())
		}
	}
}

// term exports the state of a host that has joined.
func (p put) term(v *daemon.TermVitals) {
	p.gauge("lockspace_info", "The lockspace, by its name or else its UUID, and the identity of the host in it: 1.", 1, "lockspace", cmp.Or(v.Lockspace, v.UUID.String()),
		"uuid", v.UUID.String(), "device", v.Device, "host_id", strconv.Itoa(v.HostID), "host_name", hostName(v.HostName, v.HostID))
	p.gauge("lease_seconds", "Length of a lease, as formatted.", v.Lease.Seconds())
	p.gauge("fence_after_seconds", "Silence after which a host is fenced, as formatted; 0: the end of its lease.", v.FenceAfter.Seconds())
	p.gauge("lease_left_seconds", "Remaining time of the lease without a renewal; 0: it is over.", v.LeaseLeft.Seconds())
	p.gauge("sessions", "Clients that hold a lock or wait for one, over the socket.", float64(v.Sessions))
	p.hosts(v.Hosts)
	p.disks(v.Disks)
	p.gauge("io_in_flight", "Requests to the device that are under way.", float64(v.IO.InFlight))
	p.gauge("io_oldest_seconds", "Age of the oldest request under way: it shows a hanging device.", v.IO.Oldest.Seconds())
}

// hosts exports the health of the hosts. Only those that need an operator have series of their own.
func (p put) hosts(all []report.HostHealth) {
	n := map[report.Health]int{report.HealthLive: 0, report.HealthJoining: 0, report.HealthLeft: 0, report.HealthSilent: 0, report.HealthDead: 0}
	for _, h := range all {
		n[h.Health]++
		if h.Health == report.HealthSilent || h.Health == report.HealthDead && !h.Forgotten {
			p.gauge("host_unhealthy", "1 for each host that is silent, or dead and not forgotten, as seen by this one.", 1,
				"host_id", strconv.Itoa(h.ID), "host_name", hostName(h.Name, h.ID), "health", string(h.Health))
		}
	}
	for health, n := range n {
		p.gauge("hosts", "Hosts that ever joined, by their state as seen by this one.", float64(n), "health", string(health))
	}
}

// hostName returns the name of a host, or its id if it has none: no label has an empty value.
func hostName(name string, id int) string { return cmp.Or(name, fmt.Sprint("host ", id)) }

// disks exports the member disks, none if the lockspace is on one disk.
func (p put) disks(all []report.Disk) {
	for _, d := range all {
		labels := []string{"disk", strconv.Itoa(d.Position), "device", cmp.Or(d.Device, "none")}
		p.gauge("disk_up", "Whether a member disk of the lockspace is read and written, and answers: 1 or 0.", oneIf[d.Up()], labels...)
		p.gauge("disk_behind_records", "Records that this host wrote and that a member disk lacks.", float64(d.Behind), labels...)
		p.counter("disk_failures_total", "Requests to a member disk that failed.", float64(d.Failures), labels...)
		for op, l := range map[string]report.Latency{"read": d.IO.Read, "write": d.IO.Write} {
			if l.Count == 0 {
				continue
			}
			for percentile, us := range map[string]int64{"50": l.P50US, "99": l.P99US} {
				p.gauge("disk_latency_seconds", "Time that a part of the requests to a member disk took at most, by percentile.",
					float64(us)/1e6, append(labels, "op", op, "percentile", percentile)...)
			}
		}
	}
}

// locks exports the holders and waiters, and the counts of the locks that have a place.
func (p put) locks(t *tally.Tally, now []queue.Vitals) {
	grants := p.histogram("wait_duration_seconds", "Time that clients waited for locks, for each grant.", &t.Waits, ofLocks)
	p.counter("grants_total", "Locks granted to clients of this host.", grants)
	p.histogram("hold_duration_seconds", "Time that clients held locks, for each hold.", &t.Holds, ofLocks)
	p.count("handoffs_total", "Grants handed over from another client of this host, without disk IO.", &t.Handoffs)
	all := t.Locks.All()
	var sum queue.Vitals
	byName := make(map[string]queue.Vitals, len(now))
	for _, v := range now {
		sum = plus(sum, v)
		byName[v.Name] = plus(byName[v.Name], v)
	}
	p.gauge("holding", "Clients of this host that hold a lock.", float64(sum.Holding))
	p.gauge("waiting", "Clients of this host that wait for a lock.", float64(sum.Waiting))
	p.gauge("longest_wait_seconds", "Age of the longest present wait of a client; 0: no client waits.", sum.Longest.Seconds())
	for name, c := range all {
		p.count("lock_grants_total", "Grants of a lock, for up to 100 locks; bakery_grants_total counts all.",
			&c.Grants, "lock", name)
		p.count("lock_handoffs_total", "Handoffs of a lock inside this host.", &c.Handoffs, "lock", name)
		p.counter("lock_wait_seconds_total", "Time that clients waited for a lock for each grant.",
			time.Duration(c.Waited.Load()).Seconds(), "lock", name)
		p.counter("lock_hold_seconds_total", "Time that a lock was held, by holds that are over.",
			time.Duration(c.Held.Load()).Seconds(), "lock", name)
		p.gauge("lock_holding", "Clients of this host that hold a lock.", float64(byName[name].Holding), "lock", name)
		p.gauge("lock_waiting", "Clients of this host that wait for a lock.", float64(byName[name].Waiting), "lock", name)
	}
}

func plus(a, b queue.Vitals) queue.Vitals {
	return queue.Vitals{Holding: a.Holding + b.Holding, Waiting: a.Waiting + b.Waiting, Longest: max(a.Longest, b.Longest)}
}
