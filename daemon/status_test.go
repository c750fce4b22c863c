package daemon

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/processtest"
)

func lockNamed(t *testing.T, d *Host, name string) report.Lock {
	t.Helper()
	r, err := d.Status()
	require.NoError(t, err)
	for _, l := range r.Locks {
		if l.Name == name {
			return l
		}
	}
	t.Fatalf("no lock %q", name)
	return report.Lock{}
}

// TestStatusShowsEveryReader: the disk shows only one reader of each host.
func TestStatusShowsEveryReader(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, other := c.host(1), c.host(2)
		var tokens []layout.Ticket
		for pid := range 3 {
			h := acquire(t, d, locks.Request{Name: "x", Mode: layout.Shared, PID: pid + 100})
			defer func() { require.NoError(t, h.Release()) }()
			tokens = append(tokens, h.Token())
		}
		elsewhere := acquire(t, other, locks.Request{Name: "x", Mode: layout.Shared, PID: 200})
		defer func() { require.NoError(t, elsewhere.Release()) }()
		require.Eventually(t, func() bool {
			l := lockNamed(t, d, "x")
			return len(l.Holders) == 4 && len(l.Queue) == 0 && l.Holders[0].Published
		}, generous, time.Millisecond)
		holders := lockNamed(t, d, "x").Holders
		for i, token := range tokens {
			require.Equal(t, token, holders[i].Token)
			require.Equal(t, i+100, holders[i].PID)
			require.Equal(t, "db1", holders[i].HostName)
		}
		require.Len(t, lockNamed(t, other, "x").Holders, 2)
	})
}

func TestStatusShowsOrphans(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	c, r := s.post(`{"name": "x", "command": "backup", "witness": true}`)
	g := nextEvent(t, r)
	require.Equal(t, "granted", g.Kind)
	w, err := os.OpenFile(g.Witness, os.O_WRONLY, 0)
	require.NoError(t, err)
	command := processtest.Start(t, processtest.UntilKilled, w)
	require.NoError(t, w.Close())
	require.False(t, lockNamed(t, s.d, "x").Holders[0].Orphan)

	waiter, r2 := s.post(`{"name": "x"}`)
	defer waiter.Close()
	require.Equal(t, "waiting", nextEvent(t, r2).Kind)
	require.NoError(t, c.Close())
	var l report.Lock
	require.Eventually(t, func() bool {
		l = lockNamed(t, s.d, "x")
		return len(l.Holders) == 1 && l.Holders[0].Orphan
	}, generous, time.Millisecond)
	require.Equal(t, []int{command.PID}, l.Holders[0].Processes)
	require.Contains(t, l.Stuck, "its bakeryctl is gone, process ")
	require.Contains(t, l.Stuck, "(backup) lives")
}

// TestStatusOfADeviceThatHangs: all callers are answered, by one request to the device.
func TestStatusOfADeviceThatHangs(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, f := c.faultyHost(1)
		srv := newServer(t, alone(d))
		_, err := d.Status()
		require.NoError(t, err)
		entry := c.Geo.Entry(1)
		fault := f.Inject(disktest.Fault{Op: blockdev.OpRead, From: entry, To: entry + 1, Hang: true})
		within(t, "status", func() {
			answers := make(chan error)
			for range 4 {
				go func() {
					_, err := d.Status()
					answers <- err
				}()
			}
			for range 4 {
				err := <-answers
				require.ErrorContains(t, err, "reading the lockspace takes longer than 3s: IO to memory hangs; the lease of this host ends in ")
			}
			resp := httptest.NewRecorder()
			srv.HTTP().Handler.ServeHTTP(resp, httptest.NewRequest("GET", "http://bakery/v1/status", nil))
			require.Equal(t, http.StatusInternalServerError, resp.Code)
			var said struct{ Error api.Error }
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&said))
			require.Equal(t, "device", said.Error.Code)
		})
		d.inspected.mu.Lock()
		require.NotNil(t, d.inspected.now)
		d.inspected.mu.Unlock()
		fault.Release()
		require.Eventually(t, func() bool { _, err := d.Status(); return err == nil }, generous, time.Millisecond)
		d.inspected.mu.Lock()
		require.Nil(t, d.inspected.now)
		d.inspected.mu.Unlock()
	})
}

// TestStatusWhenTheLeaseIsLost: the error says so.
func TestStatusWhenTheLeaseIsLost(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, f := c.faultyHost(1)
		f.Inject(disktest.Fault{Op: blockdev.OpRead, Hang: true})
		within(t, "the lease to be lost", func() { <-d.Lost() })
		_, err := d.Status()
		require.ErrorContains(t, err, "IO to memory hangs; this host has lost its lease: ")
		f.RemoveFaults()
	})
}
