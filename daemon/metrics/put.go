package metrics

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/tally"
)

// put sends metrics to a collector's channel.
type put struct{ out chan<- prometheus.Metric }

func (p put) gauge(d *prometheus.Desc, v float64, labels ...string) {
	p.value(d, prometheus.GaugeValue, v, labels)
}

func (p put) counter(d *prometheus.Desc, v float64, labels ...string) {
	p.value(d, prometheus.CounterValue, v, labels)
}

// value accepts labels of any bytes, which a path may have.
func (p put) value(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels []string) {
	for i := range labels {
		labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
	}
	p.out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
}

func (p put) count(d *prometheus.Desc, n interface{ Load() uint64 }, labels ...string) {
	p.counter(d, float64(n.Load()), labels...)
}

// scale is the range of exported bucket bounds, as powers of two of a nanosecond.
type scale struct{ first, last int }

var (
	ofIO    = scale{16, 35} // 66 µs to 34 s
	ofLocks = scale{18, 44} // 0.26 ms to 4.9 h
)

func (p put) histogram(d *prometheus.Desc, h *tally.Histogram, s scale, labels ...string) *tally.Times {
	t := h.Times()
	upTo := make(map[float64]uint64, s.last-s.first+1)
	for n := s.first; n <= s.last; n++ {
		upTo[math.Ldexp(1e-9, n)] = t.AtMost(n)
	}
	p.out <- prometheus.MustNewConstHistogram(d, t.Count, t.Sum.Seconds(), upTo, labels...)
	return t
}

// counted exports the counts since bakeryd began.
func (p put) counted(t *tally.Tally) {
	for code, n := range t.Refused.All() {
		p.counter(refused, float64(n), code)
	}
	p.counter(renewals, float64(p.histogram(renewalSeconds, &t.Renewals, ofIO).Count))
	p.count(renewalFailures, &t.RenewalFailures)
	p.count(leasesLost, &t.LeasesLost)
	resumed := t.Resumed.Load()
	p.counter(joins, float64(resumed), "true")
	p.counter(joins, float64(t.Joins.Load()-resumed), "false")

	p.count(deaths, &t.DeathsDeclared, "self")
	p.count(deaths, &t.DeathsLearned, "other")
	p.count(fenced, &t.Fenced)
	p.count(fencingFailures, &t.FencingFailures)
	p.count(recoveries, &t.Recoveries)
	p.count(evictions, &t.Evictions)

	p.counter(grants, float64(p.histogram(waitSeconds, &t.Waits, ofLocks).Count))
	p.histogram(holdSeconds, &t.Holds, ofLocks)
	p.count(handoffs, &t.Handoffs)

	for kind := range tally.Kind(tally.Kinds) {
		io := &t.IO[kind]
		p.requests(&io.Reads, "read", kind)
		if kind != tally.Report { // a report only reads
			p.requests(&io.Writes, "write", kind)
		}
	}
}

func (p put) requests(r *tally.Requests, op string, kind tally.Kind) {
	p.histogram(ioSeconds, &r.Times, ofIO, op, kind.String())
	p.count(ioErrors, &r.Errors, op, kind.String())
}

// term exports the state of a host that has joined.
func (p put) term(v *daemon.TermVitals) {
	p.gauge(lockspaceInfo, 1, v.Lockspace, v.UUID.String(), v.Device, strconv.Itoa(v.HostID), v.HostName)
	p.gauge(leaseSeconds, v.Lease.Seconds())
	p.gauge(leaseLeft, v.LeaseLeft.Seconds())
	p.gauge(sessions, float64(v.Sessions))
	for health, n := range v.Hosts {
		p.gauge(hosts, float64(n), string(health))
	}
	p.gauge(ioInFlight, float64(v.IO.InFlight))
	p.gauge(ioOldest, v.IO.Oldest.Seconds())
}

// locks exports the holders and waiters, and the counts of locks. Locks without a place count as
// "".
func (p put) locks(t *tally.Tally, now []queue.Vitals) {
	all := t.Locks.All()
	var sum queue.Vitals
	byName := make(map[string]queue.Vitals, len(all))
	for _, v := range now {
		sum = plus(sum, v)
		name := v.Name
		if all[name] == nil {
			name = ""
		}
		byName[name] = plus(byName[name], v)
	}
	p.gauge(holding, float64(sum.Holding))
	p.gauge(waiting, float64(sum.Waiting))
	p.gauge(longestWait, sum.Longest.Seconds())
	for name, c := range all {
		p.count(lockGrants, &c.Grants, name)
		p.count(lockHandoffs, &c.Handoffs, name)
		p.counter(lockWaited, time.Duration(c.Waited.Load()).Seconds(), name)
		p.counter(lockHeld, time.Duration(c.Held.Load()).Seconds(), name)
		p.gauge(lockHolding, float64(byName[name].Holding), name)
		p.gauge(lockWaiting, float64(byName[name].Waiting), name)
	}
}

func plus(a, b queue.Vitals) queue.Vitals {
	return queue.Vitals{Holding: a.Holding + b.Holding, Waiting: a.Waiting + b.Waiting, Longest: max(a.Longest, b.Longest)}
}
