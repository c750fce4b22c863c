package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/test/disktest"
)

func TestGrantsAreCounted(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		counts := d.cfg.Tally
		first := acquire(t, d, locks.Request{Name: "x"})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		second := make(chan *locks.Hold)
		go func() {
			h, _ := d.Acquire(ctx, locks.Request{Name: "x"})
			second <- h
		}()
		var v queue.Vitals
		require.Eventually(t, func() bool {
			all := d.vitals().Locks
			v = all[0]
			// the request may have come after the clock was read
			return v.Waiting == 1 && v.Longest > 0
		}, generous, time.Millisecond)
		require.Equal(t, "x", v.Name)
		require.Equal(t, 1, v.Holding)
		require.Zero(t, counts.Holds.Times().Count())
		require.NoError(t, first.Release())
		h := <-second
		require.NoError(t, h.Release())
		require.Empty(t, d.vitals().Locks)

		_, err := d.Acquire(ctx, locks.Request{Name: "y", Permits: 99})
		require.ErrorIs(t, err, api.ErrInvalid)
		require.EqualValues(t, 2, counts.Waits.Times().Count(), "and none of the lock that bakeryd has for itself")
		require.EqualValues(t, 2, counts.Holds.Times().Count())
		require.Equal(t, uint64(1), counts.Handoffs.Load())
		all := counts.Locks.All()
		require.Len(t, all, 1)
		require.Equal(t, uint64(2), all["x"].Grants.Load())
		require.Equal(t, uint64(1), all["x"].Handoffs.Load())
		require.Equal(t, int64(counts.Waits.Times().Sum()), all["x"].Waited.Load())
		require.Equal(t, int64(counts.Holds.Times().Sum()), all["x"].Held.Load())
		require.Positive(t, all["x"].Held.Load())
	})
}

// TestRequestsToTheDeviceAreCounted: by their purpose.
func TestRequestsToTheDeviceAreCounted(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		disk.Inject(disktest.Fault{Delay: 100 * time.Microsecond})
		io := &d.cfg.Tally.IO
		read := func(k tally.Kind) int64 { return io[k].Reads.Times.Times().Count() }
		written := func(k tally.Kind) int64 { return io[k].Writes.Times.Times().Count() }
		require.Positive(t, written(tally.Lease))
		require.Positive(t, read(tally.Lease))
		require.Zero(t, read(tally.Report))
		before := written(tally.Lock)
		require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
		require.Greater(t, written(tally.Lock), before)
		lockReads := read(tally.Lock)
		report, err := d.Status()
		require.NoError(t, err)
		require.Positive(t, read(tally.Report))
		require.Equal(t, lockReads, read(tally.Lock))
		text, err := json.Marshal(report.ThisHost)
		require.NoError(t, err)
		require.Regexp(t, `"io":{"read":{"count":\d+,"errors":0,"p50_us":\d+,"p99_us":\d+,"max_us":\d+},"write":{"count".*"renewals":{"count":\d+`, string(text),
			"as the status page looks for it")
		require.Positive(t, report.ThisHost.IO.Read.Count)
		require.Positive(t, report.ThisHost.IO.Write.Count)
		require.LessOrEqual(t, report.ThisHost.IO.Write.P99US, report.ThisHost.IO.Write.MaxUS)

		require.Eventually(t, func() bool { return d.cfg.Tally.Renewals.Times().Count() > 0 }, generous, time.Millisecond)
		require.Zero(t, d.cfg.Tally.RenewalFailures.Load())
		fault := disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Host(1), To: c.Geo.Host(2), Times: 1, Err: unix.EIO})
		<-fault.Hit()
		require.Eventually(t, func() bool { return d.cfg.Tally.RenewalFailures.Load() == 1 }, generous, time.Millisecond)
		require.Equal(t, uint64(1), io[tally.Lease].Writes.Errors.Load())
		require.Zero(t, io[tally.Lock].Writes.Errors.Load())
		r, err := d.Status()
		require.NoError(t, err)
		renewals := r.ThisHost.Renewals
		require.Equal(t, uint64(1), renewals.Errors)
		require.Positive(t, renewals.P50US)
	})
}

// health counts the hosts that a host knows, by health.
func health(d *Host) map[report.Health]int {
	n := map[report.Health]int{}
	for _, h := range d.vitals().Hosts {
		n[h.Health]++
	}
	return n
}

// TestDeathsAreCounted: and recoveries of locks of dead hosts.
func TestDeathsAreCounted(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		dying, disk := c.faultyHost(1)
		d, other := c.host(2), c.host(3)
		holder := acquire(t, dying, locks.Request{Name: "x"})
		t.Cleanup(func() { _ = holder.Release() })
		require.Eventually(t, func() bool { return health(d)[report.HealthLive] == 3 }, generous, time.Millisecond)
		disk.Inject(disktest.Fault{Hang: true})
		require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())

		counts := d.cfg.Tally
		require.Equal(t, uint64(1), counts.Recoveries.Load())
		require.Equal(t, uint64(1), counts.DeathsDeclared.Load()+counts.DeathsLearned.Load())
		require.Equal(t, map[report.Health]int{report.HealthLive: 2, report.HealthDead: 1}, health(d))
		require.Eventually(t, func() bool {
			o := other.cfg.Tally
			return o.DeathsDeclared.Load()+o.DeathsLearned.Load() == 1 && counts.DeathsDeclared.Load()+o.DeathsDeclared.Load() >= 1
		}, generous, time.Millisecond, "one declares it, and the other hears of it or declares it at the same time")
		require.Zero(t, other.cfg.Tally.Recoveries.Load(), "it did not wait")
		require.Eventually(t, func() bool { return dying.cfg.Tally.LeasesLost.Load() == 1 }, generous, time.Millisecond)
		require.GreaterOrEqual(t, dying.vitals().IO.InFlight, 1)
		require.Positive(t, dying.vitals().IO.Oldest)
		require.Zero(t, dying.vitals().LeaseLeft)

		late := c.host(4)
		require.Zero(t, late.cfg.Tally.DeathsLearned.Load(), "it was long past")
		require.Equal(t, 1, health(late)[report.HealthDead])
		hosts, _ := d.mem.Known()
		_, err := d.Evict(t.Context(), 1, hosts[0].Incarnation, true)
		require.NoError(t, err)
		require.Equal(t, uint64(1), counts.Evictions.Load())
		require.Equal(t, uint64(1), counts.DeathsDeclared.Load()+counts.DeathsLearned.Load(), "that its id is free is no death")
	})
}

// TestVitalsOfAService: the gauges in every state, and the counters of all terms.
func TestVitalsOfAService(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lasting(6 * time.Second)
		require.Equal(t, report.StateJoining, NewService(Config{Devices: []string{"x"}}, nil).Vitals().State, "before it is run")
		r := c.run(1)
		v := r.svc.Vitals()
		require.Equal(t, report.StateLive, v.State)
		require.Equal(t, 1, v.Term.HostID)
		require.Equal(t, "db", v.Term.HostName)
		require.Equal(t, "test", v.Term.Lockspace)
		require.Equal(t, c.SB.Lease, v.Term.Lease)
		require.Positive(t, v.Term.LeaseLeft)
		require.LessOrEqual(t, v.Term.LeaseLeft, v.Term.Lease)
		require.Positive(t, v.MostClients)
		holder, _ := r.ask(1, "").granted()
		require.Equal(t, 1, r.svc.Vitals().Term.Sessions)
		release := r.disk.Hang(disktest.Fault{})
		holder.until("lost")
		require.Equal(t, report.StateLost, r.svc.Vitals().State)
		holder.leave()
		require.Eventually(t, func() bool { return r.svc.Vitals().Term.Sessions == 0 }, generous, time.Millisecond)
		release()
		r.term()
		require.Equal(t, report.StateLive, r.svc.Vitals().State)
		require.Eventually(t, func() bool { return r.svc.Tally().Joins.Load() == 2 }, generous, time.Millisecond, "counted just after")
		require.Zero(t, r.svc.Tally().Resumed.Load())
		require.Equal(t, uint64(1), r.svc.Tally().LeasesLost.Load())
	})
}

// TestRefusalsAreCounted: by their code, on every way. The header of the code reaches no client.
func TestRefusalsAreCounted(t *testing.T) {
	d := realCluster(t, 8, 4).host(1)
	counts := new(tally.Tally)
	refused := &counts.Refused
	s := serveSocket(t, d, func(c *server.Config) { c.Tally = counts })
	require.Contains(t, refused.All(), "timeout", "before the first")
	n := func(code string) int { return int(refused.All()[code]) }

	_, r := s.post(`{"name": "x"}`)
	require.Equal(t, "granted", nextEvent(t, r).Kind)
	require.Zero(t, n("busy"))
	_, r = s.post(`{"name": "x", "nonblock": true}`)
	require.Equal(t, "busy", nextEvent(t, r).Code)
	require.Equal(t, 1, n("busy"))
	_, r = s.post(`{"name": "x", "timeout_ms": 1}`)
	for e := nextEvent(t, r); e.Kind != "refused"; e = nextEvent(t, r) {
		require.Equal(t, "waiting", e.Kind)
	}
	require.Equal(t, 1, n("timeout"))

	l := s.link(`{"lock":{"name":"x","nonblock":true}}`)
	require.Equal(t, "busy", l.until("refused").Code)
	require.Equal(t, 2, n("busy"))

	_, r = s.post(`{"name": ""}`)
	require.Equal(t, http.StatusBadRequest, r.StatusCode)
	resp, _ := s.browse(t, "/nonsense")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	require.NotContains(t, resp.Header, "Refused-As")
	require.Empty(t, resp.Trailer)
	require.Eventually(t, func() bool { return n("invalid") == 2 }, generous, time.Millisecond, "%v", refused.All())
	resp, _ = s.browse(t, "/v1/status", func(r *http.Request) { r.Host = "evil.example" })
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	require.Eventually(t, func() bool { return n("forbidden") == 1 }, generous, time.Millisecond)
	resp, _ = s.browse(t, "/v1/status")
	require.Equal(t, http.StatusOK, resp.StatusCode)

	total := 0
	for code, k := range refused.All() {
		require.NotEmpty(t, code)
		total += int(k)
	}
	require.Equal(t, 2+1+2+1, total)
}

// TestNoSuchCall_OtherMethodExists_HintNamesIt: with and without a query.
func TestNoSuchCall_OtherMethodExists_HintNamesIt(t *testing.T) {
	t.Parallel()
	s := serveCurrent(t, func() (server.Host, error) { return nil, api.ErrUnavailable })
	for path, hint := range map[string]string{"/v1/lock?name=x": "use POST /v1/lock", "/v1/nonesuch": "the guide api.md lists the calls"} {
		resp, body := s.browse(t, path)
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
		require.Contains(t, string(body), `"hint":"`+hint+`"`)
	}
	resp, body := s.browse(t, "/v1/status", func(r *http.Request) { r.Method = "POST" })
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	require.Contains(t, string(body), `"hint":"use GET /v1/status"`)
}

// TestMetricsAreServed: in every state, if there is a handler.
func TestMetricsAreServed(t *testing.T) {
	t.Parallel()
	joining := func() (server.Host, error) { return nil, fmt.Errorf("%w: joining", api.ErrUnavailable) }
	s := serveCurrent(t, joining)
	resp, body := s.browse(t, "/metrics")
	require.Equal(t, http.StatusNotFound, resp.StatusCode, "there are none")
	require.Contains(t, string(body), "no such call")
	counts := new(tally.Tally)
	s = serveCurrent(t, joining, func(c *server.Config) {
		c.Tally = counts
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			fmt.Fprintln(w, "bakery_joined 0")
		})
	})
	resp, body = s.browse(t, "/metrics")
	require.Equal(t, http.StatusOK, resp.StatusCode, "also while the host is joining")
	require.Equal(t, "bakery_joined 0\n", string(body))
	_, r := s.post(`{"name": "x"}`)
	require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
	require.Eventually(t, func() bool { return counts.Refused.All()["unavailable"] == 1 }, generous, time.Millisecond)
}
