package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// under formats the cluster's lockspace for another policy.
func (c *cluster) under(policy layout.Policy) {
	c.sb.Policy = policy
	for copy := range 2 {
		c.write(c.sb.Geometry.Superblock(copy), func(buf []byte) error { return c.sb.Encode(buf, copy) })
	}
}

// TestEvictSelf: who asks a host to evict itself is answered before it leaves.
func TestEvictSelf(t *testing.T) {
	c := newCluster(t, 8, 4)
	d := c.host(1)
	within(t, "the eviction", func() {
		dead, err := d.Evict(t.Context(), 1, d.mem.incarnation(), false)
		require.NoError(t, err)
		require.False(t, dead)
	})
	require.Equal(t, 1, (<-d.mem.asked).By)
}

// TestEvictAgain: what came of an earlier word is not taken for what comes of the next.
func TestEvictAgain(t *testing.T) {
	c := newCluster(t, 8, 4)
	c.under(layout.PolicyManual)
	a := c.host(1)
	b, f := c.faultyHost(2)
	victim := b.mem.incarnation()
	require.Eventually(t, func() bool { known, _ := a.mem.known(); return known[1].Incarnation == victim }, generous, time.Millisecond)
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
	f.Inject(blockdev.Fault{Err: unix.EIO})
	<-b.Lost()
	require.True(t, evict(), "it is silent")
	known, _ := a.mem.known()
	require.True(t, known[1].Gone)
}

// TestLeaveWhileFencing: a host that leaves does not wait for the end of its turn to fence another.
func TestLeaveWhileFencing(t *testing.T) {
	c := newCluster(t, 8, 4)
	c.under(layout.PolicyFence)
	begun := filepath.Join(t.TempDir(), "begun")
	agent := func(cfg *Config) { cfg.Fence = FenceConfig{Agent: "exec", Command: "touch " + begun + "; sleep 60"} }
	a := c.host(1, agent)
	f := blockdev.NewFaulty(c.disk.Open(), blockdev.FaultyOptions{})
	b := c.host(2, agent, through(f))
	t.Cleanup(f.Heal)
	f.Inject(blockdev.Fault{Err: unix.EIO})
	<-b.Lost()
	require.Eventually(t, func() bool { _, err := os.Stat(begun); return err == nil }, generous, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), a.StopTimeout())
	defer cancel()
	require.NoError(t, a.Close(ctx))
}
