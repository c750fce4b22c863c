package scale

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/standstill"
)

var lease = standstill.Outlives(2 * time.Second)

// TestMeasure: the requests are those of the protocol. An uncontended acquire is a claim, a look
// and a release. An idle host writes its record and reads the table once every sixth of the lease.
func TestMeasure(t *testing.T) {
	p, err := Measure(t.Context(), t.TempDir(), 16, 3, lease)
	require.NoError(t, err)
	require.Equal(t, int64(2), p.Acquire.Writes)
	require.Equal(t, int64(1), p.Acquire.Reads)
	require.Equal(t, int64(16*stride), p.Acquire.ReadBytes)
	require.Equal(t, int64(1), p.Heartbeat.Writes)
	require.GreaterOrEqual(t, p.Heartbeat.ReadBytes, int64(16*stride))
	require.Positive(t, p.StatusMS)
	require.Greater(t, p.Memory.HeapBytes, p.Memory.BeforeBytes)
	require.Positive(t, p.Memory.RSSAnonBytes)
}

// TestHostsThatAreNotRun: they cost an acquire the same as real ones.
func TestHostsThatAreNotRun(t *testing.T) {
	t.Parallel()
	const hosts = 4
	p, err := Measure(t.Context(), t.TempDir(), hosts, 1, lease)
	require.NoError(t, err)
	j, err := Join(t.Context(), t.TempDir(), hosts, lease)
	require.NoError(t, err)
	require.Equal(t, j.Acquire, p.Acquire)
	require.Positive(t, j.Seconds)
}

func TestWait(t *testing.T) {
	t.Parallel()
	all, err := Wait(t.Context(), t.TempDir(), []int{1, 3}, standstill.Outlives(300*time.Millisecond), lease)
	require.NoError(t, err)
	require.Len(t, all, 2)
	for i, n := range []int{1, 3} {
		require.Equal(t, n, all[i].Waiters)
		require.Positive(t, all[i].FirstReads, "the first waiter polls")
		require.GreaterOrEqual(t, all[i].Reads, all[i].FirstReads)
		require.Positive(t, all[i].HandOverUS)
	}
}

// TestMeasureGrant: every client is sent its grant, and few lines more.
func TestMeasureGrant(t *testing.T) {
	t.Parallel()
	c := Crowd{Waiters: 3, Locks: 2, Hosts: 4, Lookers: 1}
	g, err := MeasureGrant(t.Context(), t.TempDir(), c, standstill.Outlives(300*time.Millisecond))
	require.NoError(t, err)
	require.Equal(t, c, g.Crowd)
	require.Positive(t, g.US)
	require.Positive(t, g.CPUUS)
	require.GreaterOrEqual(t, g.Lines, 0.9, "those of the last grant may not be counted yet")
}
