package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/fencetest"
)

// lasting formats the cluster with another lease.
func (c *cluster) lasting(lease time.Duration) {
	c.SB.Lease = lease
	c.Format()
}

// TestEvictSelf: a client that asks a host to evict itself is answered before the host leaves.
func TestEvictSelf(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		within(t, "the eviction", func() {
			dead, err := d.Evict(t.Context(), 1, d.mem.Incarnation(), false)
			require.NoError(t, err)
			require.False(t, dead)
		})
		require.Equal(t, 1, (<-d.mem.Asked()).By)
	})
}

// TestEvict_OtherNotationOfTheIncarnation_IsRefused: an eviction of an earlier client, with the
// incarnation in decimal, must not concern another incarnation, or none.
func TestEvict_OtherNotationOfTheIncarnation_IsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := serveSocket(t, newCluster(t, 8, 4).host(1))
		is := s.d.mem.Incarnation()
		for _, bad := range []string{fmt.Sprintf("%q", fmt.Sprint(is)), fmt.Sprint(is), fmt.Sprintf(`"%#x"`, is), fmt.Sprintf(`"%016x"`, is+1), `""`, "null"} {
			status, answer := s.call("POST /v1/evict", fmt.Sprintf(`{"host": 1, "incarnation": %s}`, bad))
			require.Equal(t, 400, status, "%s: %s", bad, answer)
			require.Contains(t, answer, `"code":"invalid"`)
		}
		require.Empty(t, s.d.mem.Asked())
		status, answer := s.call("POST /v1/evict", fmt.Sprintf(`{"host": 1, "incarnation": "%016x"}`, is))
		require.Equal(t, 200, status, answer)
		require.Contains(t, answer, `"asked"`)
	})
}

// TestEvict_Refused_HasNoHintAboutTheDevice: the device is not the reason, and the message has the remedy.
func TestEvict_Refused_HasNoHintAboutTheDevice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := serveSocket(t, newCluster(t, 8, 4).host(1))
		is := s.d.mem.Incarnation()
		for body, message := range map[string]string{
			`{"host": 1}`:                      "incarnation is missing: want that of the host, as GET /v1/status shows it",
			`{"host": 1, "incarnation": null}`: "incarnation is missing",
			fmt.Sprintf(`{"host": 1, "incarnation": "%016x"}`, is+1):               "the host has restarted since",
			fmt.Sprintf(`{"host": 2, "incarnation": "%016x"}`, is):                 "no host has this id",
			fmt.Sprintf(`{"host": 1, "incarnation": "%016x", "forget": true}`, is): "a host cannot forget itself",
		} {
			status, answer := s.call("POST /v1/evict", body)
			require.Equal(t, 400, status, "%s: %s", body, answer)
			require.Contains(t, answer, message)
			require.NotContains(t, answer, "hint")
		}
	})
}

// TestEvictAgain: the outcome of an earlier eviction is not taken for that of the next one.
func TestEvictAgain(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.SetPolicy(layout.PolicyManual)
		a := c.host(1)
		b, f := c.faultyHost(2)
		victim := b.mem.Incarnation()
		require.Eventually(t, func() bool {
			known, _ := a.mem.Known()
			return known[1].Incarnation == victim && known[1].State == layout.StateLive
		}, generous, time.Millisecond)
		evict := func() (dead bool) {
			within(t, "the eviction", func() {
				var err error
				dead, err = a.Evict(t.Context(), 2, victim, false)
				require.NoError(t, err)
			})
			return dead
		}
		require.False(t, evict(), "it renews")
		require.False(t, evict(), "still")
		f.Inject(disktest.Fault{Err: unix.EIO})
		<-b.Lost()
		require.True(t, evict(), "it is silent")
		known, _ := a.mem.Known()
		require.True(t, known[1].Gone)
	})
}

// fencing returns a host that fences another one, which has lost its device, by a fabric.
func (c *cluster) fencing(fabric *fencetest.Fabric) (a *Host) {
	c.SetPolicy(layout.PolicyFence)
	agent := func(cfg *Config) { cfg.Fence = fence.Config{Agent: "exec", Command: "false"} }
	a = c.host(1, agent)
	f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
	b := c.host(2, agent, through(f))
	c.t.Cleanup(f.RemoveFaults)
	a.mem.UseAgent(fabric.Agent(1, a.mem.Incarnation()))
	f.Inject(disktest.Fault{Err: unix.EIO})
	<-b.Lost()
	return a
}

// TestLeaveWhileFencing: a host that leaves does not wait for the end of its fencing.
func TestLeaveWhileFencing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		var fabric fencetest.Fabric
		defer fabric.Hang()()
		a := c.fencing(&fabric)
		eventually(t, "a fences b", func() bool { return len(fabric.Calls()) > 0 })
		require.NoError(t, a.Close(timeout(t, a.StopTimeout())))
	})
}

// TestFencedItself: a host that must fence another one, and is not registered any more, gives up
// its lease. In its next term it registers again. Otherwise, after a device lost all registrations,
// no host could be fenced any more.
func TestFencedItself(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		var fabric fencetest.Fabric
		fabric.Fail(fmt.Errorf("fence on memory: %w", fence.ErrFenced))
		a := c.fencing(&fabric)
		within(t, "the loss of the lease", func() { <-a.Lost() })
		require.ErrorIs(t, a.Err(), fence.ErrFenced)
		require.Len(t, fabric.Calls(), 1)
		require.Equal(t, 2, fabric.Calls()[0].Host)
	})
}
