package daemon

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestGlance_LocksNotRead_HostsAreOfTheHostTable: those that joined, joined again or left since the locks were read.
func TestGlance_LocksNotRead_HostsAreOfTheHostTable(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 4)
		d, disk := c.faultyHost(1)
		again := c.host(2)
		require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
		eventually(t, "host 2 is seen", func() bool { d.inspected.due(true); return d.Glance().Report.HostByID(2) != nil })
		earlier := d.Glance().Report.HostByID(2).Incarnation
		fault := disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Entry(1), To: c.Geo.Entry(2), Hang: true})
		require.NoError(t, again.Close(t.Context()))
		again = c.host(2)
		gone := c.host(3)
		var a *report.Glance
		shown := func(id int, is func(*report.Host) bool) func() bool {
			return func() bool {
				d.inspected.due(true)
				a = d.Glance()
				h := a.Report.HostByID(id)
				return h != nil && is(h)
			}
		}
		eventually(t, "the new incarnation", shown(2, func(h *report.Host) bool {
			return a.Error != nil && h.Incarnation != earlier && h.Health == report.HealthLive
		}))
		require.Contains(t, a.Report.Problems[0].Remedy, "the locks shown are of ")
		require.EqualValues(t, again.mem.Incarnation(), a.Report.HostByID(2).Incarnation)
		eventually(t, "the new host", shown(3, func(h *report.Host) bool { return h.Health == report.HealthLive }))
		require.NoError(t, gone.Close(t.Context()))
		eventually(t, "the host that left", shown(3, func(h *report.Host) bool { return h.Health == report.HealthLeft && h.State == layout.StateLeft }))
		require.Len(t, a.Report.Locks, 1)
		fault.Release()
		eventually(t, "the locks are read", shown(2, func(*report.Host) bool { return a.Error == nil }))
	})
}

// TestService_LeaseLost_PageHasWhatTheTermKnewThen: the hosts and the end of the lease, however long ago a page asked.
func TestService_LeaseLost_PageHasWhatTheTermKnewThen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 4)
		r := c.run(1)
		ask := func() (a report.Glance) {
			w := httptest.NewRecorder()
			r.srv.HTTP().Handler.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/page/status", nil))
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a), w.Body)
			require.NotNil(t, a.Report, w.Body)
			return a
		}
		require.Len(t, ask().Report.Hosts, 1)
		require.Nil(t, r.svc.Last())
		time.Sleep(10 * time.Minute) // no page asks
		other := c.host(2)
		eventually(t, "host 2 is seen", func() bool { known, _ := r.d.mem.Known(); return known[1].Incarnation == other.mem.Incarnation() })
		fault := r.disk.Inject(disktest.Fault{Err: unix.EIO})
		<-r.d.Lost()
		lost := time.Now()
		eventually(t, "the term has ended", func() bool { _, err := r.svc.Joined(); return err != nil })
		a := ask()
		require.Equal(t, "unavailable", a.Error.Code)
		require.Equal(t, report.ProblemJoining, a.Report.Problems[0].Kind)
		require.Contains(t, a.Report.Problems[0].Remedy, "the locks shown are of 10 min ago")
		require.Greater(t, a.Read.AgoMS, (10 * time.Minute).Milliseconds(), "the age of the locks")
		require.NotNil(t, a.Report.HostByID(2), "it joined after the last page had asked")
		require.Equal(t, report.HealthUnknown, a.Report.HostByID(2).Health)
		require.InDelta(t, time.Since(lost).Milliseconds(), -a.Report.ThisHost.LeaseLeftMS, 1000, "since the end of the lease")
		fault.Release()
		first := r.d.mem.Incarnation()
		require.Equal(t, first, r.term().cfg.earlier, "it names its own record as that of this bakeryd")
		require.Nil(t, r.svc.Last(), "the host is live again")
		r.leaves()
	})
}
