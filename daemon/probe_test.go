package daemon

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// probe probes the lockspace of a cluster.
func (c *cluster) probe(others ...blockdev.Device) (*measure.Measurement, error) {
	return ProbeLockspace(c.t.Context(), c.config(0), measure.Options{Others: others})
}

func TestProbeLockspace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		d := c.host(1)
		h := acquire(t, d, locks.Request{Name: measuring.ProbeLock}) // a holder of the lock is not disturbed
		own := c.Slot(h.Lock().Entry.Lock, 1)
		stale := disktest.NewFaulty(c.Disk.OpenReadOnly(), disktest.FaultyOptions{})
		at := c.Geo.Slot(h.Lock().Entry.Lock, 2)
		stale.Inject(disktest.Fault{Op: blockdev.OpRead, From: at, To: at + 512, After: 5, Times: 1, Returns: disktest.Stale})
		m, err := c.probe(c.Disk.OpenReadOnly(), stale)
		require.NoError(t, err)
		require.True(t, m.Lockspace)
		require.Equal(t, measure.ProbeCount, m.Write.Count)
		require.Equal(t, 4, m.Many, "there are no more hosts")
		require.Equal(t, measure.PathResult{Path: "memory", Writes: measure.PathWrites}, m.Paths[0])
		require.Equal(t, 1, m.Paths[1].Stale)

		require.NoError(t, h.Release())
		slot := c.Slot(h.Lock().Entry.Lock, 2)
		require.Equal(t, layout.Idle, slot.Phase)
		require.Greater(t, slot.Sequence, uint64(measure.ProbeCount))
		require.Equal(t, layout.StateLeft, c.HostRecord(2).State)
		require.Equal(t, own.Incarnation, c.Slot(h.Lock().Entry.Lock, 1).Incarnation)
		require.True(t, c.Slot(h.Lock().Entry.Lock, 3).Blank(), "only its own slot is written")
	})
}

// The lock that a probe has created is removed, also if the probe fails.
func TestProbeLockspace_NoLockBefore_LeavesNone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		m, err := c.probe()
		require.NoError(t, err)
		require.Equal(t, measure.ProbeCount, m.Write.Count)
		requireNoLocks(t, c)

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err = ProbeLockspace(ctx, c.config(0), measure.Options{Counter: func(string, int64, int64, bool) { cancel() }})
		require.ErrorIs(t, err, context.Canceled)
		requireNoLocks(t, c)
	})
}

// The lock that a probe has created stays if a client has set its value meanwhile.
func TestProbeLockspace_ValueIsSetMeanwhile_KeepsTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		d := c.host(1)
		var set sync.Once
		_, err := ProbeLockspace(t.Context(), c.config(0), measure.Options{Counter: func(string, int64, int64, bool) {
			set.Do(func() {
				h := acquire(t, d, locks.Request{Name: measuring.ProbeLock})
				require.NoError(t, h.SetValue(t.Context(), []byte("precious")))
				require.NoError(t, h.Release())
			})
		}})
		require.NoError(t, err)
		v, err := d.Value(t.Context(), measuring.ProbeLock)
		require.NoError(t, err)
		require.Equal(t, "precious", string(v.Value))
	})
}

// TestProbeLockspaceNeedsAnID: with all ids in use nothing is written.
func TestProbeLockspaceNeedsAnID(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 1, 4)
		c.host(1)
		_, err := c.probe()
		require.Error(t, err)
		require.True(t, c.Entry(1).Free(), "no lock was made")
	})
}
