package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// benchmarkHosts joins hosts to a lockspace in a file below BAKERY_TEST_DIR or the directory for
// temporary files. Without direct IO there, it is in memory.
func benchmarkHosts(b *testing.B, n int) []*Host {
	b.Helper()
	dir, err := os.MkdirTemp(os.Getenv("BAKERY_TEST_DIR"), "benchmark")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, os.RemoveAll(dir)) })
	path := filepath.Join(dir, "image")
	_, err = format.Format(b.Context(), []string{path}, format.Options{Hosts: lockspace.DefaultHosts, Locks: 16, Lease: lockspace.DefaultLease, Policy: layout.PolicyLease})
	var open func() (blockdev.Device, error)
	if err != nil {
		var fs unix.Statfs_t
		require.NoError(b, unix.Statfs(dir, &fs))
		require.EqualValues(b, unix.TMPFS_MAGIC, fs.Type, "%v", err)
		disk := disktest.NewMemory(16<<20, 512, 4096)
		formatMemory(b, disk)
		open = func() (blockdev.Device, error) {
			return disk.Open(), nil
		}
		b.Log("in memory: there is no direct IO in " + dir)
	}
	hosts := make([]*Host, n)
	for i := range hosts {
		d, err := Join(b.Context(), Config{Devices: []string{path}, Handoff: 8, Clock: clock.Boottime, HostID: i + 1, RuntimeDir: dir, StateDir: dir, Logger: slog.New(slog.DiscardHandler), Open: open})
		require.NoError(b, err)
		b.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), generous)
			defer cancel()
			require.NoError(b, d.Close(ctx))
		})
		hosts[i] = d
	}
	return hosts
}

func formatMemory(b *testing.B, disk *disktest.Memory) {
	sb := layout.Superblock{UUID: layout.UUID{1}, Lease: lockspace.DefaultLease, Formatted: time.Now().UTC().Truncate(time.Microsecond),
		Geometry: layout.Geometry{Stride: 4096, Hosts: lockspace.DefaultHosts, Locks: 16}}
	require.LessOrEqual(b, sb.Geometry.Size(), disk.Open().Info().Size)
	for copy := range 2 {
		buf := blockdev.Alloc(4096)
		require.NoError(b, sb.Encode(buf, copy))
		require.NoError(b, disk.Open().Write(buf, sb.Geometry.Superblock(copy)))
	}
}

const benchmarkLock = "benchmark"

// BenchmarkAcquireRelease acquires a lock of three hosts without contention. It alternates with the
// floor, so that the ratio of the medians is meaningful on a busy machine, too.
func BenchmarkAcquireRelease(b *testing.B) {
	d := benchmarkHosts(b, 3)[0]
	h, err := d.Acquire(b.Context(), locks.Request{Name: benchmarkLock})
	require.NoError(b, err)
	require.NoError(b, h.Release())
	b.Run("lock", func(b *testing.B) {
		const turn = 20
		var floor, lock []time.Duration
		b.ReportAllocs()
		for b.Loop() {
			begun := time.Now()
			h, err := d.Acquire(b.Context(), locks.Request{Name: benchmarkLock})
			if err != nil {
				b.Fatal(err)
			}
			if err := h.Release(); err != nil {
				b.Fatal(err)
			}
			lock = append(lock, time.Since(begun))
			if len(lock)%turn != 1 {
				continue
			}
			b.StopTimer()
			f, err := d.Floor(b.Context(), benchmarkLock, turn)
			require.NoError(b, err)
			for _, r := range f.Rounds {
				floor = append(floor, r.Whole())
			}
			b.StartTimer()
		}
		b.ReportMetric(float64(median(lock).Nanoseconds()), "p50-ns")
		b.ReportMetric(float64(median(floor).Nanoseconds()), "floor-p50-ns")
		b.ReportMetric(float64(median(lock))/float64(median(floor)), "x-floor")
	})
	b.Run("floor", func(b *testing.B) {
		for n := b.N; n > 0; n -= measuring.MaxFloorRounds {
			if _, err := d.Floor(b.Context(), benchmarkLock, min(n, measuring.MaxFloorRounds)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func median(all []time.Duration) time.Duration {
	slices.SortFunc(all, cmp.Compare[time.Duration])
	return all[len(all)/2]
}

// BenchmarkHandoff passes a lock among the clients of one host, without contention by other hosts.
func BenchmarkHandoff(b *testing.B) {
	d := benchmarkHosts(b, 1)[0]
	h, err := d.Acquire(b.Context(), locks.Request{Name: benchmarkLock})
	require.NoError(b, err)
	require.NoError(b, h.Release())
	b.ReportAllocs()
	b.ResetTimer()
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			h, err := d.Acquire(b.Context(), locks.Request{Name: benchmarkLock})
			if err == nil {
				err = h.Release()
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "grants/s")
}
