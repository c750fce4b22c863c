package tally

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistogram(t *testing.T) {
	var h Histogram
	require.Zero(t, h.Times().At(50), "of nothing")
	for i := 1; i <= 1000; i++ {
		h.Add(time.Duration(i) * time.Millisecond)
	}
	h.Add(-time.Second)
	times := h.Times()
	require.EqualValues(t, 1001, times.Count())
	require.Equal(t, 500500*time.Millisecond, times.Sum())
	require.Equal(t, time.Second, times.Max())
	require.InEpsilon(t, 500*time.Millisecond, times.At(50), 0.125)
	require.InEpsilon(t, 990*time.Millisecond, times.At(99), 0.125)
	require.Equal(t, time.Second, times.At(100), "no more than there was")
	require.Equal(t, []int64{1, 536, 464, 0}, times.Counts([]time.Duration{1 << 10, 1 << 29, 1 << 30}), "2^29 ns are 536.87 ms")

	h.Add(100 * time.Hour)
	require.EqualValues(t, 1001, times.Count(), "a copy")
	require.Equal(t, []int64{1001, 1}, h.Times().Counts([]time.Duration{1 << 46}), "beyond the scale")
	require.Equal(t, 100*time.Hour, h.Times().Max())
}

// TestQuantiles: quantiles are exact to an eighth, with any counts.
func TestQuantiles(t *testing.T) {
	var h Histogram
	var all []time.Duration
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		all = append(all, time.Duration(math.Exp(random.Float64()*24+8)))
		h.Add(all[len(all)-1])
	}
	times := h.Times()
	for _, part := range []float64{0.01, 0.1, 0.5, 0.9, 0.999} {
		q, below := times.At(100*part), 0
		for _, d := range all {
			if d <= q {
				below++
			}
		}
		require.GreaterOrEqual(t, below, int(part*1000))
		least := 0
		for _, d := range all {
			if float64(d) <= float64(q)/1.126 {
				least++
			}
		}
		require.LessOrEqual(t, least, int(part*1000), "a smaller one by more than an eighth would do")
	}
}

func TestCountingTogether(t *testing.T) {
	var all Tally
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 1000 {
				all.IO[Lease].Reads.Add(time.Millisecond, errors.New("boom"))
				all.Refused.Add("busy")
				all.Locks.Of(fmt.Sprint(i%2), time.Now()).Grants.Add(1)
				all.Refused.All()
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 8000, all.IO[Lease].Reads.Times.Times().Count())
	require.Equal(t, 8*time.Second, all.IO[Lease].Reads.Times.Times().Sum())
	require.Equal(t, uint64(8000), all.IO[Lease].Reads.Errors.Load())
	require.Zero(t, all.IO[Lease].Writes.Times.Times().Count())
	require.Equal(t, map[string]uint64{"busy": 8000}, all.Refused.All())
	require.Equal(t, uint64(4000), all.Locks.All()["0"].Grants.Load())
}

func TestCodesAreKnownBeforeTheFirst(t *testing.T) {
	var c Codes
	require.Empty(t, c.All())
	c.Add("busy")
	c.Know("busy")
	c.Know("full")
	require.Equal(t, map[string]uint64{"busy": 1, "full": 0}, c.All())
}

// TestPlaces: early locks have places, until they are idle for long and another lock requests
// one.
func TestPlaces(t *testing.T) {
	var ls Locks
	now := time.Now()
	for i := range MaxLocks {
		ls.Of(fmt.Sprint("lock-", i), now.Add(time.Duration(i)*time.Second)).Grants.Add(1)
	}
	last := now.Add((MaxLocks - 1) * time.Second)

	ls.Of("late", last).Grants.Add(1)
	require.Len(t, ls.All(), MaxLocks)
	require.NotContains(t, ls.All(), "late")

	// lock-0 is in use, lock-1 is not any more.
	now = now.Add(idleLock + time.Second)
	kept := ls.Of("lock-0", now)
	ls.Of("late", now).Grants.Add(1)
	require.Len(t, ls.All(), MaxLocks)
	require.NotContains(t, ls.All(), "lock-1")
	require.Same(t, kept, ls.All()["lock-0"])
	require.Equal(t, uint64(1), ls.All()["late"].Grants.Load())

	// lock-1 is in use again without a place, and gets that of lock-2 once that has been idle for
	// long.
	ls.Of("lock-1", now).Grants.Add(1)
	require.NotContains(t, ls.All(), "lock-1")
	now = now.Add(2 * time.Second)
	ls.Of("lock-1", now).Grants.Add(1)
	require.NotContains(t, ls.All(), "lock-1", "it does not ask at every use")
	now = now.Add(askAgain)
	ls.Of("lock-1", now).Grants.Add(1)
	require.Equal(t, uint64(1), ls.All()["lock-1"].Grants.Load(), "with counts that begin again")
	require.NotContains(t, ls.All(), "lock-2")

	// Another user of the same lock, as of the next term, counts in the same place.
	require.Same(t, ls.All()["late"], ls.Of("late", now))
}

func TestCountingDoesNotAllocate(t *testing.T) {
	var all Tally
	now := time.Now()
	all.Locks.Of("x", now)
	all.Refused.Know("busy")
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Second)
		all.Waits.Add(time.Second)
		all.Locks.Of("x", now).Grants.Add(1)
		all.IO[Lock].Writes.Add(time.Millisecond, nil)
		all.Refused.Add("busy")
	}))
}

// BenchmarkGrant does the counting of one grant and its end.
func BenchmarkGrant(b *testing.B) {
	var all Tally
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		all.Waits.Add(time.Millisecond)
		c := all.Locks.Of("x", now)
		c.Grants.Add(1)
		c.Waited.Add(1000)
		all.Holds.Add(time.Millisecond)
		all.Locks.Of("x", now).Held.Add(1000)
	}
}

// BenchmarkRequest does the counting of a request to the device, including the clock reading.
func BenchmarkRequest(b *testing.B) {
	var io IO
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		io.Reads.Add(time.Since(began), nil)
	}
}
