package daemon

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// due makes the next answer read the disk, all of it or the locks that are held or waited for.
func (g *statusCache) due(whole bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tried, g.took, g.pause = 1, 0, time.Hour
	if whole {
		g.pause = 0
	}
}

func (a Glance) lock(t *testing.T, name string) report.Lock {
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
		var all statusCaches
		began := d.clock.Now()
		var wg sync.WaitGroup
		var reads sync.Map
		var answers atomic.Int32
		for range 8 {
			wg.Go(func() {
				for range 50 {
					g := all.of(d)
					if a := g.answer(); a.Report == nil || a.Error != nil {
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

		g := all.of(d)
		g.mu.Lock()
		g.tried = d.clock.Now() + time.Hour // nothing is due
		g.mu.Unlock()
		time.Sleep(d.times().Renew() / 2)
		first := g.answer()
		require.Eventually(t, func() bool { return g.answer().Report.ThisHost.LeaseLeftMS > first.Report.ThisHost.LeaseLeftMS }, generous, time.Millisecond, "renewed")
		require.Greater(t, g.answer().Read.AgoMS, first.Read.AgoMS)
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
		var all statusCaches
		g := all.of(d)
		whole := g.answer()
		require.Len(t, whole.Report.Locks, 3)
		require.Positive(t, whole.Read.Bytes)

		own := acquire(t, d, locks.Request{Name: "a", Command: "backup"})
		g.due(false)
		a := g.answer()
		require.Equal(t, "backup", a.lock(t, "a").Holders[0].Command, "a client of this host")
		require.Less(t, a.Read.Bytes, whole.Read.Bytes)

		theirs := acquire(t, other, locks.Request{Name: "b"})
		g.due(false)
		require.Empty(t, g.answer().lock(t, "b").Queue, "that another host has taken it is seen when all is read")
		g.due(true)
		b := g.answer().lock(t, "b")
		require.Equal(t, 1, len(b.Holders)+len(b.Queue))
		require.NoError(t, theirs.Release())
		require.NoError(t, own.Release())
		g.due(false)
		after := g.answer()
		require.Zero(t, len(after.lock(t, "b").Holders)+len(after.lock(t, "b").Queue)+len(after.lock(t, "a").Holders))
		require.Len(t, after.Report.Hosts, 2)
	})
}

// TestGlanceOfADeviceThatHangs: the answer has the last state, and why it is old.
func TestGlanceOfADeviceThatHangs(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
		var all statusCaches
		g := all.of(d)
		require.Nil(t, g.answer().Error)
		hang := disk.Inject(blockdev.Fault{Op: blockdev.OpRead, From: c.Geo.Entry(1), To: c.Geo.Entry(2), Hang: true})
		g.due(true)
		var a Glance
		within(t, "the report that it hangs", func() {
			for a = g.answer(); a.Error == nil; a = g.answer() {
				require.NotNil(t, a.Report)
			}
		})
		require.Equal(t, "device", a.Error.Code)
		require.Contains(t, a.Error.Message, "hangs; this host has")
		require.Len(t, a.Report.Locks, 1)
		require.Equal(t, "live", a.Report.ThisHost.State)
		hang.Release()
		require.Eventually(t, func() bool { g.due(true); return g.answer().Error == nil }, generous, time.Millisecond)
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
	s := serveCurrent(t, func() (*Host, error) {
		if d := current.Load(); d != nil {
			return d, nil
		}
		return nil, fmt.Errorf("%w: joining", api.ErrUnavailable)
	})
	resp, body := s.browse(t, "/")
	require.Equal(t, http.StatusOK, resp.StatusCode, "also while the host is joining")
	require.Contains(t, string(body), `src="/page/page.js"`)
	resp, _ = s.browse(t, "/page/page.js")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	resp, _ = s.browse(t, "/nonsense")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)

	var a Glance
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
	a = Glance{}
	require.NoError(t, json.Unmarshal(body, &a))
	require.Equal(t, 1, a.Report.ThisHost.ID)
	for i := range 300 {
		a.Report.Hosts = append(a.Report.Hosts, report.Host{ID: i})
	}
	w := httptest.NewRecorder()
	writeGlance(w, "deflate, gzip", a)
	require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
	z, err := gzip.NewReader(w.Body)
	require.NoError(t, err)
	var b Glance
	require.NoError(t, json.NewDecoder(z).Decode(&b))
	require.Len(t, b.Report.Hosts, len(a.Report.Hosts))
}

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
	disk := blockdev.NewMemory(64<<20, 4096, 4096)
	result, err := format.FormatDevice(t.Context(), disk.Open(), format.Options{Hosts: hosts, Locks: locks, Lease: 30 * time.Second})
	require.NoError(t, err)
	sb, dev := result.Superblock, disk.Open()
	for id := 1; id <= hosts; id++ {
		lockspacetest.PutHost(t, dev, sb, layout.HostRecord{ID: id, Incarnation: uint64(id), State: layout.StateLive, ReadHorizon: hosts})
	}
	for n := 1; n <= locks; n++ {
		lockspacetest.PutEntry(t, dev, sb, layout.Entry{Lock: n, Name: fmt.Sprint("lock-", n), Permits: 1, Creation: uint64(n)})
	}
	var n atomic.Int64
	s, err := lockspace.Inspect(counted{dev, &n})
	require.NoError(t, err)
	require.InDelta(t, 13.6, float64(n.Load())/(1<<20), 0.1, "MiB for all")
	every := time.Duration(n.Load()) * time.Second / glanceRate
	require.InDelta(t, 7, every.Seconds(), 0.5)
	n.Store(0)
	var hot []int
	for l := range held {
		hot = append(hot, l+1)
	}
	_, err = s.Reread(counted{dev, &n}, hot, s.HighestHost(), true)
	require.NoError(t, err)
	require.Equal(t, int64((held+1)*hosts*4096), n.Load())
	require.InDelta(t, 0.69, float64(n.Load())/(1<<20), 0.01, "MiB for ten that are held")
}
