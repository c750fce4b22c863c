package daemon

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// due makes the next answer read the disk, all of it or the locks that are held or waited for.
func (g *statusCache) due(whole bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next, g.pause = 0, time.Hour
	if whole {
		g.pause = 0
	}
}

func lockIn(t *testing.T, a *report.Glance, name string) report.Lock {
	t.Helper()
	require.NotNil(t, a.Report)
	for _, l := range a.Report.Locks {
		if l.Name == name {
			return l
		}
	}
	t.Fatalf("no lock %q", name)
	return report.Lock{}
}

// TestGlancesShareWhatIsRead: the disk is read once per interval, however many pages ask. The
// host's own state is current.
func TestGlancesShareWhatIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newCluster(t, 8, 4).host(1)
		began := d.clock.Now()
		var wg sync.WaitGroup
		var reads sync.Map
		var answers atomic.Int32
		for range 8 {
			wg.Go(func() {
				for range 50 {
					g := &d.inspected
					if a := d.Glance(); a.Report == nil || a.Error != nil {
						t.Error("no report")
					}
					g.mu.Lock()
					reads.Store(g.kept, true)
					g.mu.Unlock()
					answers.Add(1)
				}
			})
		}
		wg.Wait()
		n := 0
		reads.Range(func(any, any) bool { n++; return true })
		require.LessOrEqual(t, n, 1+int((d.clock.Now()-began)/glanceEvery), "of %d answers", answers.Load())

		g := &d.inspected
		g.mu.Lock()
		g.next = d.clock.Now() + time.Hour // nothing is due
		g.mu.Unlock()
		time.Sleep(d.times().Renew() / 2)
		first := d.Glance()
		require.Eventually(t, func() bool { return d.Glance().Report.ThisHost.LeaseLeftMS > first.Report.ThisHost.LeaseLeftMS }, generous, time.Millisecond, "renewed")
		require.Greater(t, d.Glance().Read.AgoMS, first.Read.AgoMS)
	})
}

// TestGlanceOfWhatIsHot: locks that are held or waited for, here or on other hosts, are read more
// often than all others.
func TestGlanceOfWhatIsHot(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, other := c.host(1), c.host(2)
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, acquire(t, d, locks.Request{Name: name}).Release())
		}
		g := &d.inspected
		whole := d.Glance()
		require.Len(t, whole.Report.Locks, 3)
		require.Positive(t, whole.Read.Bytes)

		own := acquire(t, d, locks.Request{Name: "a", Command: "backup"})
		g.due(false)
		a := d.Glance()
		require.Equal(t, "backup", lockIn(t, a, "a").Holders[0].Command, "a client of this host")
		require.Less(t, a.Read.Bytes, whole.Read.Bytes)

		theirs := acquire(t, other, locks.Request{Name: "b"})
		g.due(false)
		require.Empty(t, lockIn(t, d.Glance(), "b").Queue, "that another host has taken it is seen when all is read")
		g.due(true)
		b := lockIn(t, d.Glance(), "b")
		require.Equal(t, 1, len(b.Holders)+len(b.Queue))
		require.NoError(t, theirs.Release())
		require.NoError(t, own.Release())
		g.due(false)
		after := d.Glance()
		require.Zero(t, len(lockIn(t, after, "b").Holders)+len(lockIn(t, after, "b").Queue)+len(lockIn(t, after, "a").Holders))
		require.Len(t, after.Report.Hosts, 2)
	})
}

// TestGlanceOfADeviceThatHangs: the answer has the last state, and why it is old.
func TestGlanceOfADeviceThatHangs(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
		g := &d.inspected
		require.Nil(t, d.Glance().Error)
		hang := disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Entry(1), To: c.Geo.Entry(2), Hang: true})
		g.due(true)
		var a *report.Glance
		within(t, "the report that it hangs", func() {
			for a = d.Glance(); a.Error == nil; a = d.Glance() {
				require.NotNil(t, a.Report)
			}
		})
		require.Equal(t, "device", a.Error.Code)
		require.Regexp(t, "^reading the lockspace takes longer than [0-9.]+m?s: IO to memory hangs$", a.Error.Message, "the report has the state of the lease, as of now")
		require.Equal(t, report.Problem{Severity: "error", Kind: "device", Subject: "device", Text: "the disk cannot be read", Why: a.Error.Message,
			Remedy: a.Report.Problems[0].Remedy, Times: a.Report.Problems[0].Times}, a.Report.Problems[0])
		require.Contains(t, a.Report.Problems[0].Remedy, "the locks shown are of ")
		require.Len(t, a.Report.Locks, 1)
		require.Equal(t, "live", a.Report.ThisHost.State)
		hang.Release()
		require.Eventually(t, func() bool { g.due(true); return d.Glance().Error == nil }, generous, time.Millisecond)
	})
}

// TestGlance_MajorityHangs_NamesTheDisks: not those that answer. Once the lease is over, nothing is shown as
// live or held.
func TestGlance_MajorityHangs_NamesTheDisks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLocked(t)
		c := newCluster(t, 8, 4)
		paths, configure := l.paths()
		_, otherwise := l.paths()
		h := c.host(1, configure)
		c.host(2, otherwise)
		acquire(t, h, locks.Request{Name: "x"})
		eventually(t, "both hosts are seen", func() bool { return len(h.Glance().Report.Hosts) == 2 })
		hung := []*disktest.Injection{paths[1].Inject(disktest.Fault{Hang: true}), paths[2].Inject(disktest.Fault{Hang: true})}
		h.inspected.due(true)
		var a *report.Glance
		within(t, "the report that they hang", func() {
			for a = h.Glance(); a.Error == nil; a = h.Glance() {
			}
		})
		require.Equal(t, "reading the lockspace takes longer than 3s: IO to b, c hangs", a.Error.Message)
		require.Equal(t, "the disk cannot be read", a.Report.Problems[0].Text)
		<-h.Lost()
		time.Sleep(time.Minute)
		a = h.Glance()
		require.Equal(t, report.HealthLost, a.Report.Hosts[0].Health)
		require.Equal(t, report.HealthUnknown, a.Report.Hosts[1].Health)
		x := lockIn(t, a, "x")
		require.Equal(t, report.HealthLost, x.Doubt())
		for _, f := range hung {
			f.Release()
		}
	})
}

// TestGlance_HangsBeforeTheFirstRead_HasWhatIsInMemory: the hosts, but no locks.
func TestGlance_HangsBeforeTheFirstRead_HasWhatIsInMemory(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		hang := disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Entry(1), To: c.Geo.Entry(2), Hang: true})
		var a *report.Glance
		within(t, "the report that it hangs", func() {
			for a = d.Glance(); !strings.Contains(a.Error.Message, "IO to memory hangs"); a = d.Glance() {
				require.NotNil(t, a.Report)
			}
		})
		require.Contains(t, a.Report.Problems, report.Problem{Severity: report.SeverityError, Kind: "device", Subject: "device", Text: "the disk cannot be read",
			Why: a.Error.Message, Remedy: "the locks are not known; " + a.Error.Hint})
		own := a.Report.HostByID(1)
		require.NotNil(t, own)
		require.Equal(t, a.Report.ThisHost.Incarnation, own.Incarnation)
		require.Equal(t, report.HealthLive, own.Health)
		require.Zero(t, a.Read)
		require.Empty(t, a.Report.Locks)
		hang.Release()
		require.Eventually(t, func() bool { d.inspected.due(true); return d.Glance().Error == nil }, generous, time.Millisecond)
	})
}

// TestGlance_FirstReadIsSlow_HasWhatIsInMemory: bakeryctl disks needs only that.
func TestGlance_FirstReadIsSlow_HasWhatIsInMemory(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		proceed := make(chan struct{})
		d.inspected.mu.Lock()
		in, own := d.beginInspection(true, func(dev blockdev.Device) (*lockspace.Snapshot, error) {
			<-proceed
			return lockspace.Inspect(dev)
		})
		d.inspected.mu.Unlock()
		require.True(t, own)
		in.patience = maxPatience
		a := d.Glance()
		require.Equal(t, "the lockspace is still being read", a.Error.Message)
		require.NotNil(t, a.Report)
		require.Equal(t, report.HealthLive, a.Report.HostByID(1).Health)
		require.Equal(t, []report.Problem{{Severity: report.SeverityWarning, Kind: report.ProblemDevice, Subject: "device",
			Text: "the locks are not known yet", Why: a.Error.Message, Remedy: a.Error.Hint}}, a.Report.Problems)
		close(proceed)
		eventually(t, "the locks are read", func() bool { return d.Glance().Error == nil })
	})
}

// someDisks is a lockspace on several disks, in these states.
type someDisks struct {
	lockspace.Set
	all []mirror.Status
}

func (s someDisks) Info() blockdev.Info      { return blockdev.Info{Path: "a, b, c"} }
func (s someDisks) Members() []mirror.Status { return s.all }

func TestHost_LateDisks_AreThoseThatDoNotAnswer(t *testing.T) {
	all := []mirror.Status{{Name: "a", State: mirror.Up}, {Name: "b", State: mirror.Down}, {Name: "c", State: mirror.Up}}
	set := someDisks{all: all}
	h := &Host{joiner: &joiner{disk: &store.Disk{Dev: set}, devices: Devices{Opened: set}}}
	all[2].Stats.Oldest = 3 * time.Second
	require.Equal(t, "b, c", h.lateDisks(3*time.Second))
	require.Equal(t, "b", h.lateDisks(4*time.Second))
	all[1].State = mirror.Up
	require.Equal(t, "a, b, c", h.lateDisks(4*time.Second), "none is known to")
}

// TestGlanceOfASlowDevice: IO that is slow, but returns within its time, does not make pages read more
// often than their share.
func TestGlanceOfASlowDevice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 2)
		c.lasting(5 * time.Minute)
		d, disk := c.faultyHost(1)
		const slow = 4 * time.Second
		disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Entry(1), To: c.Geo.Entry(2), Delay: slow})
		a := d.Glance()
		for a.Error != nil {
			a = d.Glance()
		}
		require.GreaterOrEqual(t, a.Read.TookMS, slow.Milliseconds())
		for end := d.clock.Now() + (glanceShare-1)*slow; d.clock.Now() < end; time.Sleep(time.Second) {
			a = d.Glance()
		}
		require.Greater(t, a.Read.AgoMS, (glanceShare-1)*slow.Milliseconds(), "the same read")
	})
}

func (s *served) browse(t *testing.T, path string, change ...func(*http.Request)) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequest("GET", "http://bakery"+path, nil)
	require.NoError(t, err)
	for _, f := range change {
		f(r)
	}
	transport := s.transport()
	transport.DisableCompression = true
	resp, err := (&http.Client{Transport: transport}).Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, body
}

func TestPageIsServed(t *testing.T) {
	joined := realCluster(t, 8, 4).host(1)
	var current atomic.Pointer[Host]
	var last atomic.Pointer[report.Glance]
	s := serveCurrent(t, func() (server.Host, error) {
		if d := current.Load(); d != nil {
			return d, nil
		}
		return nil, fmt.Errorf("%w: joining", api.ErrUnavailable)
	}, func(cfg *server.Config) { cfg.Last = last.Load })
	resp, body := s.browse(t, "/")
	require.Equal(t, http.StatusOK, resp.StatusCode, "also while the host is joining")
	require.Contains(t, string(body), `src="/page/page.js"`)
	resp, _ = s.browse(t, "/page/page.js")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	resp, _ = s.browse(t, "/nonsense")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)

	var a report.Glance
	resp, body = s.browse(t, "/page/status")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'")
	require.NoError(t, json.Unmarshal(body, &a))
	require.Nil(t, a.Report)
	require.Equal(t, "unavailable", a.Error.Code)

	current.Store(joined)
	resp, body = s.browse(t, "/page/status", func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
	require.Empty(t, resp.Header.Get("Content-Encoding"), "it is short")
	a = report.Glance{}
	require.NoError(t, json.Unmarshal(body, &a))
	require.Equal(t, 1, a.Report.ThisHost.ID)

	last.Store(joined.remembered())
	current.Store(nil)
	var past report.Glance
	_, body = s.browse(t, "/page/status")
	require.NoError(t, json.Unmarshal(body, &past))
	require.Equal(t, "unavailable", past.Error.Code)
	require.Equal(t, "joining", past.Report.ThisHost.State, "the last report, as of now")
	require.Equal(t, report.HealthLost, past.Report.Hosts[0].Health)
	require.Equal(t, report.ProblemJoining, past.Report.Problems[0].Kind)
	require.Equal(t, "joining", past.Report.Problems[0].Why)
	require.GreaterOrEqual(t, past.Read.AgoMS, a.Read.AgoMS)
	current.Store(joined)

	for i := range 300 {
		a.Report.Hosts = append(a.Report.Hosts, report.Host{ID: i, Health: report.HealthLive, Verdicts: []report.Verdict{}})
	}
	s = serveCurrent(t, func() (server.Host, error) { return glancing{joined, &a}, nil })
	resp, body = s.browse(t, "/page/status", func(r *http.Request) { r.Header.Set("Accept-Encoding", "deflate, gzip") })
	require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
	z, err := gzip.NewReader(bytes.NewReader(body))
	require.NoError(t, err)
	var b report.Glance
	require.NoError(t, json.NewDecoder(z).Decode(&b))
	require.Len(t, b.Report.Hosts, len(a.Report.Hosts))
}

// glancing is a host with an answer for pages.
type glancing struct {
	*Host
	a *report.Glance
}

func (g glancing) Glance() *report.Glance { return g.a }

// TestBrowsersOnlyLook: a user that forwards the socket to a port does not expose it to every page
// in the browser.
func TestBrowsersOnlyLook(t *testing.T) {
	d := realCluster(t, 8, 4).host(1)
	s := serveSocket(t, d)
	for _, test := range []struct {
		method, path, host string
		header             []string
		status             int
	}{
		{"GET", "/page/status", "localhost:8080", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"GET", "/v1/status", "127.0.0.1:8080", []string{"Origin", "http://127.0.0.1:8080"}, 200},
		{"GET", "/v1/status", "[::1]:8080", nil, 200},
		{"GET", "/v1/status", "bakery", nil, 200},
		{"GET", "/v1/status", "db1.localhost", nil, 200},
		{"POST", "/v1/create", "localhost:8080", []string{"Origin", "http://evil.example"}, 403},
		{"POST", "/v1/create", "localhost:8080", []string{"Sec-Fetch-Site", "same-origin"}, 403},
		{"POST", "/v1/create", "localhost:8080", []string{"Origin", "null"}, 403},
		{"GET", "/v1/status", "evil.example", nil, 403},
		{"GET", "/v1/status", "localhost:8080", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"GET", "/", "localhost:8080", []string{"Sec-Fetch-Site", "cross-site"}, 403}, // such as a picture
		{"GET", "/", "localhost:8080", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"GET", "/", "localhost:8080", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{"GET", "/v1/status", "localhost:8080", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 403},
		{"GET", "/page/status", "evil.example:8080", []string{"Sec-Fetch-Site", "same-origin"}, 403},
		{"POST", "/v1/create", "evil.example.", nil, 403},
		{"POST", "/v1/create", "bakery", nil, 400}, // without a body
	} {
		resp, body := s.browse(t, test.path, func(r *http.Request) {
			r.Method, r.Host = test.method, test.host
			for pair := range slices.Chunk(test.header, 2) {
				r.Header.Set(pair[0], pair[1])
			}
		})
		require.Equal(t, test.status, resp.StatusCode, "%+v: %s", test, body)
	}
}

// TestCostOfAGlance: the figures of packaging/docs/monitoring.md.
func TestCostOfAGlance(t *testing.T) {
	const hosts, locks, held = 16, 200, 10
	disk := disktest.NewMemory(64<<20, 4096, 4096)
	result, err := format.FormatDevices(t.Context(), []blockdev.Device{disk.Open()}, format.Options{Hosts: hosts, Locks: locks, Lease: 30 * time.Second})
	require.NoError(t, err)
	sb, dev := result.Superblock, disk.Open()
	for id := 1; id <= hosts; id++ {
		lockspacetest.PutHost(t, dev, sb, layout.HostRecord{ID: id, Incarnation: uint64(id), State: layout.StateLive, ReadHorizon: hosts})
	}
	for n := 1; n <= locks; n++ {
		lockspacetest.PutEntry(t, dev, sb, layout.Entry{Lock: n, Name: fmt.Sprint("lock-", n), Permits: 1, Creation: uint64(n)})
	}
	in := &inspection{Device: dev, clock: clock.Boottime}
	n := &in.bytes
	s, err := lockspace.Inspect(in)
	require.NoError(t, err)
	require.InDelta(t, 13.6, float64(n.Load())/(1<<20), 0.1, "MiB for all")
	every := time.Duration(n.Load()) * time.Second / glanceRate
	require.InDelta(t, 7, every.Seconds(), 0.5)
	n.Store(0)
	var hot []int
	for l := range held {
		hot = append(hot, l+1)
	}
	_, err = s.Reread(in, hot, s.HighestHost(), true)
	require.NoError(t, err)
	require.Equal(t, int64((held+1)*hosts*4096), n.Load())
	require.InDelta(t, 0.69, float64(n.Load())/(1<<20), 0.01, "MiB for ten that are held")
}
