package blockdev

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev/latency"
)

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		for i := 1; i <= 1000; i++ {
			id, ok := l.begin(OpRead)
			require.True(t, ok)
			time.Sleep(time.Duration(i) * time.Millisecond)
			var err error
			if i%100 == 0 {
				err = errors.New("boom")
			}
			l.end(id, err)
		}
		got := l.stats().Read
		require.Equal(t, uint64(1000), got.Count)
		require.Equal(t, uint64(10), got.Errors)
		require.InEpsilon(t, 500*time.Millisecond, got.P50, 0.01)
		require.InEpsilon(t, 990*time.Millisecond, got.P99, 0.01)
		require.Equal(t, time.Second, got.Max)
		require.Zero(t, l.stats().Write)
	})
}

// A request that does not return shows in Stats.
func TestOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		hung, _ := l.begin(OpWrite)
		time.Sleep(time.Minute)
		other, _ := l.begin(OpRead)
		time.Sleep(48 * time.Hour)

		stats := l.stats()
		require.Equal(t, 2, stats.InFlight)
		require.Equal(t, 48*time.Hour+time.Minute, stats.Oldest)

		l.end(hung, nil)
		stats = l.stats()
		require.Equal(t, 48*time.Hour, stats.Oldest)
		require.Equal(t, 48*time.Hour+time.Minute, stats.Write.Max, "longer than the quantiles go")
		require.Equal(t, latency.Longest, stats.Write.P50.Round(time.Hour))

		l.end(other, nil)
		require.Zero(t, l.stats().Oldest)
	})
}

func TestLedgerAllocatesNothing(t *testing.T) {
	l := newLedger()
	count := func() {
		a, _ := l.begin(OpRead)
		b, _ := l.begin(OpWrite)
		l.end(a, nil)
		l.end(b, nil)
	}
	count()
	require.Zero(t, testing.AllocsPerRun(100, count))
}

func TestOpString(t *testing.T) {
	require.Equal(t, "any read write zero op 9", OpAny.String()+" "+OpRead.String()+" "+OpWrite.String()+" "+
		OpZero.String()+" "+Op(9).String())
}

// BenchmarkLedger measures all that a Disk adds to a system call, except the check of its
// arguments.
func BenchmarkLedger(b *testing.B) {
	l := newLedger()
	b.ReportAllocs()
	for b.Loop() {
		id, _ := l.begin(OpRead)
		l.end(id, nil)
	}
}
