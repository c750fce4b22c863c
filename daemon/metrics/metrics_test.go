package metrics

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/layout"
)

// fake is a bakeryd with given state.
type fake struct {
	vitals      daemon.Vitals
	tally       tally.Tally
	policyValid bool
}

func (f *fake) Vitals() daemon.Vitals { return f.vitals }
func (f *fake) Tally() *tally.Tally   { return &f.tally }

// scrape returns the exported families, which must be valid for Prometheus.
func (f *fake) scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	Handler("v1.2.3", f, func() bool { return f.policyValid }).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Contains(t, w.Header().Get("Content-Type"), "text/plain")
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(w.Body)
	require.NoError(t, err)
	for name, family := range families {
		for _, m := range family.Metric {
			for _, l := range m.Label {
				require.NotEmpty(t, l.GetValue(), "the same as no label: %s of %s", l.GetName(), name)
			}
		}
	}
	return families
}

// value returns the value of the only metric with these labels.
func value(t *testing.T, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	require.Contains(t, families, name)
	for _, m := range families[name].Metric {
		if has(m, labels) {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	require.Fail(t, "not there", "%s %v", name, labels)
	return 0
}

func has(m *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, l := range m.Label {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

func TestWhileJoining(t *testing.T) {
	f := &fake{vitals: daemon.Vitals{State: report.StateJoining, MostClients: 100}}
	f.tally.IO[tally.Lease].Reads.Add(3*time.Millisecond, nil)
	families := f.scrape(t)
	require.Zero(t, value(t, families, "bakery_joined"))
	require.Equal(t, 1.0, value(t, families, "bakery_state", "state", "joining"))
	require.Zero(t, value(t, families, "bakery_state", "state", "live"))
	require.Equal(t, 1.0, value(t, families, "bakery_build_info", "version", "v1.2.3"))
	require.NotContains(t, families, "bakery_lease_left_seconds", "there is no lease")
	require.Contains(t, families, "process_resident_memory_bytes")
	require.Contains(t, families, "go_goroutines")
	for _, m := range families["bakery_io_duration_seconds"].Metric {
		if has(m, []string{"kind", "lease", "op", "read"}) {
			require.Equal(t, uint64(1), m.Histogram.GetSampleCount())
			require.InDelta(t, 0.003, m.Histogram.GetSampleSum(), 1e-9)
			for _, b := range m.Histogram.Bucket {
				require.Equal(t, b.GetUpperBound() >= 0.003, b.GetCumulativeCount() == 1, "%v", b)
			}
		}
	}
}

func TestOfATerm(t *testing.T) {
	f := &fake{vitals: daemon.Vitals{State: report.StateLive, Descriptors: 7, MostClients: 100, Term: &daemon.TermVitals{
		HostID: 3, HostName: "db3", Lockspace: "prod", Device: "/dev/x", Lease: 30 * time.Second, FenceAfter: 6 * time.Second, LeaseLeft: 26 * time.Second, Sessions: 5,
		Hosts: []report.HostHealth{{ID: 1, Health: report.HealthDead}, {ID: 2, Name: "db2", Health: report.HealthSilent}, {ID: 3, Name: "db3", Health: report.HealthLive}, {ID: 4, Health: report.HealthDead, Forgotten: true}},
		IO:    blockdev.Stats{InFlight: 2, Oldest: 4 * time.Second},
		Locks: []queue.Vitals{{Name: "new", Waiting: 2, Longest: time.Minute}, {Name: "x", Holding: 1, Waiting: 1, Longest: time.Second}},
	}}}
	ta := &f.tally
	ta.Joins.Add(3)
	ta.Resumed.Add(1)
	ta.Renewals.Add(time.Millisecond)
	ta.RenewalFailures.Add(2)
	ta.DeathsDeclared.Add(1)
	ta.DeathsLearned.Add(2)
	ta.Recoveries.Add(4)
	ta.Handoffs.Add(5)
	ta.Refused.Add("busy")
	ta.Waits.Add(time.Second)
	ta.IO[tally.Lock].Writes.Add(time.Second, fmt.Errorf("boom"))
	c := ta.Locks.Of("x", time.Now())
	c.Grants.Add(6)
	c.Held.Add(int64(1500 * time.Millisecond))
	families := f.scrape(t)
	for _, want := range []struct {
		value  float64
		name   string
		labels []string
	}{
		{1, "bakery_joined", nil},
		{1, "bakery_lockspace_info", []string{"lockspace", "prod", "host_id", "3", "host_name", "db3", "device", "/dev/x"}},
		{0, "bakery_policy_file_valid", nil},
		{7, "bakery_client_descriptors", nil},
		{100, "bakery_client_descriptors_limit", nil},
		{30, "bakery_lease_seconds", nil},
		{6, "bakery_fence_after_seconds", nil},
		{26, "bakery_lease_left_seconds", nil},
		{1, "bakery_lease_renewals_total", nil},
		{2, "bakery_lease_renewal_failures_total", nil},
		{1, "bakery_joins_total", []string{"resumed", "true"}},
		{2, "bakery_joins_total", []string{"resumed", "false"}},
		{1, "bakery_host_deaths_total", []string{"by", "self"}},
		{2, "bakery_host_deaths_total", []string{"by", "other"}},
		{2, "bakery_hosts", []string{"health", "dead"}},
		{0, "bakery_hosts", []string{"health", "left"}},
		{1, "bakery_host_unhealthy", []string{"host_id", "1", "host_name", "host 1", "health", "dead"}},
		{1, "bakery_host_unhealthy", []string{"host_id", "2", "host_name", "db2", "health", "silent"}},
		{4, "bakery_recoveries_total", nil},
		{5, "bakery_handoffs_total", nil},
		{5, "bakery_sessions", nil},
		{1, "bakery_refused_total", []string{"code", "busy"}},
		{1, "bakery_grants_total", nil},
		{1, "bakery_io_errors_total", []string{"op", "write", "kind", "lock"}},
		{0, "bakery_io_errors_total", []string{"op", "read", "kind", "lock"}},
		{2, "bakery_io_in_flight", nil},
		{4, "bakery_io_oldest_seconds", nil},
		{1, "bakery_holding", nil},
		{3, "bakery_waiting", nil},
		{60, "bakery_longest_wait_seconds", nil},
		{6, "bakery_lock_grants_total", []string{"lock", "x"}},
		{1.5, "bakery_lock_hold_seconds_total", []string{"lock", "x"}},
		{1, "bakery_lock_waiting", []string{"lock", "x"}},
	} {
		require.Equal(t, want.value, value(t, families, want.name, want.labels...), "%v", want)
	}
	require.Len(t, families["bakery_host_unhealthy"].Metric, 2, "a live host has no series, nor has a forgotten one")
	require.Len(t, families["bakery_lock_waiting"].Metric, 1, "a lock without a place has no series")
}

func TestMemberDisks(t *testing.T) {
	f := &fake{vitals: daemon.Vitals{State: report.StateLive, Term: &daemon.TermVitals{Device: "x", Disks: memberDisks()}}}
	families := f.scrape(t)
	for _, want := range []struct {
		value  float64
		name   string
		labels []string
	}{
		{1, "bakery_disk_up", []string{"disk", "1", "device", "/dev/a"}},
		{0, "bakery_disk_up", []string{"disk", "2", "device", "/dev/b"}},
		{0, "bakery_disk_up", []string{"disk", "3", "device", "none"}},
		{4, "bakery_disk_behind_records", []string{"disk", "2"}},
		{5, "bakery_disk_failures_total", []string{"disk", "2"}},
		{0.002, "bakery_disk_latency_seconds", []string{"disk", "1", "op", "read", "percentile", "50"}},
		{0.5, "bakery_disk_latency_seconds", []string{"disk", "1", "op", "read", "percentile", "99"}},
		{0.03, "bakery_disk_latency_seconds", []string{"disk", "1", "op", "write", "percentile", "50"}},
		{4, "bakery_disk_latency_seconds", []string{"disk", "1", "op", "write", "percentile", "99"}},
	} {
		require.Equal(t, want.value, value(t, families, want.name, want.labels...), "%v", want)
	}
	require.Len(t, families["bakery_disk_latency_seconds"].Metric, 4, "a disk without requests has no latency")
}

// memberDisks are three disks, of which one is up.
func memberDisks() []report.Disk {
	return []report.Disk{
		{Position: 1, Device: "/dev/a", State: "up", IO: report.IO{Read: report.Latency{Count: 1, P50US: 2000, P99US: 500_000}, Write: report.Latency{Count: 1, P50US: 30_000, P99US: 4_000_000}}},
		{Position: 2, Device: "/dev/b", State: "down", Behind: 4, Failures: 5},
		{Position: 3, State: "checking"},
	}
}

// TestBounded: the number of series does not grow with the number of locks.
func TestBounded(t *testing.T) {
	f := &fake{vitals: daemon.Vitals{State: report.StateLive, Term: &daemon.TermVitals{Device: "x"}}}
	random := rand.New(rand.NewPCG(3, 4))
	names := []string{"a\"b", `a\b`, "a\\\"", "{x=\"y\"}", "# HELP bakery_joined no", "日本", "\u202e", "a b", "}", strings.Repeat("x", 128), "NaN", "�"}
	for len(names) < 10000 {
		var name []rune
		for range 1 + random.IntN(20) {
			r := rune(random.IntN(utf8.MaxRune))
			if utf8.ValidRune(r) && r >= ' ' {
				name = append(name, r)
			}
		}
		names = append(names, string(name)+fmt.Sprint(len(names)))
	}
	now := time.Now()
	for _, name := range names {
		f.tally.Locks.Of(name, now).Grants.Add(1)
		f.vitals.Term.Locks = append(f.vitals.Term.Locks, queue.Vitals{Name: name, Holding: 1})
	}
	families := f.scrape(t)
	for _, family := range []string{"bakery_lock_grants_total", "bakery_lock_holding"} {
		require.Len(t, families[family].Metric, tally.MaxLocks)
		for _, name := range names[:tally.MaxLocks] {
			require.Equal(t, 1.0, value(t, families, family, "lock", name))
		}
	}
	require.Equal(t, float64(len(names)), value(t, families, "bakery_holding"))
}

// TestLockspaceWithoutAName: it has its UUID for a name.
func TestLockspaceWithoutAName(t *testing.T) {
	f := &fake{vitals: daemon.Vitals{State: report.StateLive, Term: &daemon.TermVitals{HostID: 2, UUID: layout.UUID{7}, Device: "x"}}}
	require.Equal(t, 1.0, value(t, f.scrape(t), "bakery_lockspace_info", "lockspace", layout.UUID{7}.String(), "host_name", "host 2"))
}

// TestAnyBytes: a path need not be UTF-8.
func TestAnyBytes(t *testing.T) {
	f := &fake{vitals: daemon.Vitals{State: report.StateLive, Term: &daemon.TermVitals{Device: "/dev/\xff\n", HostName: "\xc0"}}}
	require.Equal(t, 1.0, value(t, f.scrape(t), "bakery_lockspace_info", "device", "/dev/\ufffd\n"))
}

// TestNames: the names of the metrics never change. Each has a description.
func TestNames(t *testing.T) {
	f := &fake{vitals: daemon.Vitals{State: report.StateLive, Term: &daemon.TermVitals{Device: "x", Hosts: []report.HostHealth{{ID: 1, Health: report.HealthDead}}, Disks: memberDisks()}}}
	f.tally.Refused.Know("busy")
	f.tally.Locks.Of("x", time.Now())
	var names []string
	for name, family := range f.scrape(t) {
		require.NotEmpty(t, family.GetHelp())
		if ours, found := strings.CutPrefix(name, "bakery_"); found {
			names = append(names, ours)
		} else {
			require.Regexp(t, "^(go|process)_", name, "other metrics begin with bakery_")
		}
	}
	require.ElementsMatch(t, strings.Fields(`
	build_info policy_file_valid lockspace_info state joined client_descriptors client_descriptors_limit sessions
	refused_total lease_seconds fence_after_seconds lease_left_seconds lease_renewals_total
	lease_renewal_failures_total lease_renewal_duration_seconds leases_lost_total joins_total
	hosts host_unhealthy host_deaths_total hosts_fenced_total fencing_failures_total recoveries_total
	evictions_total grants_total handoffs_total wait_duration_seconds hold_duration_seconds
	holding waiting longest_wait_seconds lock_grants_total lock_handoffs_total
	lock_wait_seconds_total lock_hold_seconds_total lock_holding lock_waiting io_duration_seconds
	io_errors_total io_in_flight io_oldest_seconds
	disk_up disk_behind_records disk_failures_total disk_latency_seconds`), names)
}
