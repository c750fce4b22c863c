package locks

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

func TestBlocker_Holder_IsNamedOnEveryHost(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		blocker := func(d *testHost) string {
			t.Helper()
			time.Sleep(2 * blockerEvery) // else the last read may answer
			text, err := d.Blocker(t.Context(), "x")
			require.NoError(t, err)
			return text
		}
		h := acquire(t, a, Request{Name: "x", PID: 2234, Command: "sleep 300"})
		for _, d := range []*testHost{a, b} {
			require.Equal(t, `held by db1 (host 1), pid 2234 "sleep 300", for 0 s`, blocker(d), "seen by host %d", d.mem.ID())
		}
		waiting := start(t, b, Request{Name: "x", PID: 7})
		time.Sleep(37 * time.Second)
		for _, d := range []*testHost{a, b} {
			require.Equal(t, `held by db1 (host 1), pid 2234 "sleep 300", for 38 s`, blocker(d), "seen by host %d", d.mem.ID())
		}
		require.NoError(t, h.Release())
		h = got(t, waiting)
		require.Equal(t, "held by db2 (host 2), pid 7, for 0 s", blocker(a))
		require.NoError(t, h.Release())
		for _, d := range []*testHost{a, b} {
			require.Empty(t, blocker(d), "seen by host %d", d.mem.ID())
		}
		_, err := a.Blocker(t.Context(), "y")
		require.ErrorIs(t, err, api.ErrNoLock)
		_, err = a.Blocker(t.Context(), "")
		require.ErrorIs(t, err, api.ErrInvalid)
	})
}

func TestBlocker_HostIsSilent_TellsWhenItEnds(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		b, f := c.faultyHost(2)
		acquire(t, b, Request{Name: "x", PID: 7})
		time.Sleep(2 * blockerEvery) // the disk shows the hold
		hanging := f.Inject(disktest.Fault{Hang: true})
		var text string
		require.Eventually(t, func() bool {
			var err error
			text, err = a.Blocker(t.Context(), "x")
			require.NoError(t, err)
			return strings.Contains(text, "silent")
		}, generous, blockerEvery)
		require.Regexp(t, `^held by db2 \(host 2\), pid 7, for \d+ s, silent, (dead in \d+ s|being declared dead)$`, text)
		require.Positive(t, hanging.Fired())
		require.Eventually(t, func() bool {
			text, err := a.Blocker(t.Context(), "x")
			return err == nil && text == ""
		}, generous, blockerEvery, "once it is dead")
	})
}

func TestBlocker_ManyClients_ShareARead(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		h := acquire(t, c.host(1), Request{Name: "x", PID: 7})
		b, f := c.faultyHost(2)
		t.Cleanup(f.RemoveFaults)
		_, err := b.Blocker(t.Context(), "x") // reads the directory
		require.NoError(t, err)
		time.Sleep(2 * blockerEvery)
		reads := f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Delay: time.Millisecond})
		ask := func(n int) {
			for range n {
				go func() {
					text, err := b.Blocker(t.Context(), "x")
					assert.NoError(t, err)
					assert.Equal(t, "held by db1 (host 1), pid 7, for 0 s", text)
				}()
			}
			synctest.Wait()
		}
		ask(250)
		time.Sleep(blockerEvery / 2)
		ask(250)
		require.Equal(t, 1, reads.Fired())
		require.NoError(t, h.Release())
	})
}

func TestBlocker_DeviceHangs_IsLeftToOneRead(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		h := acquire(t, c.host(1), Request{Name: "x"})
		b, f := c.faultyHost(2)
		hanging := f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Hang: true})
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := b.Blocker(ctx, "x")
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Equal(t, 1, hanging.Fired())
		f.RemoveFaults()
		require.NoError(t, h.Release())
	})
}

func TestBlocker_SeveralHolders_AreCounted(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		reader := func(d *testHost, pid int) *Hold {
			return acquire(t, d, Request{Name: "x", Mode: layout.Shared, PID: pid, Command: "report"})
		}
		holds := []*Hold{reader(a, 1), reader(a, 2), reader(b, 3)}
		time.Sleep(2 * blockerEvery)
		text, err := a.Blocker(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, `held by db1 (host 1), pid 1 "report", for 0 s, and 2 more`, text)
		for _, h := range holds {
			require.NoError(t, h.Release())
		}
	})
}
