package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// lateDisk is a member disk whose requests take longer.
type lateDisk struct {
	blockdev.Device
	lock func(off, n int64) error
}

func (d lateDisk) Lock(off, n int64) error { return d.lock(off, n) }

// files returns a host of a lockspace on n files, and a function that makes the requests of an
// uncontended lock on as many others: a write, a read of three slots and a write, each on all of them
// until a majority has answered. The last member of the lockspace takes delay longer for each request.
func files(b *testing.B, n int, delay time.Duration) (h *Host, raw func()) {
	dir, err := os.MkdirTemp(os.Getenv("BAKERY_TEST_DIR"), "benchmark")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, os.RemoveAll(dir)) })
	var paths []string
	for i := range n {
		paths = append(paths, filepath.Join(dir, fmt.Sprint(i)))
	}
	_, err = format.Format(b.Context(), paths, format.Options{Hosts: 16, Locks: 16, Lease: lockspace.DefaultLease, Policy: layout.PolicyLease})
	require.NoError(b, err)
	cfg := Config{Devices: paths, HostID: 1, RuntimeDir: dir, StateDir: dir, Logger: slog.New(slog.DiscardHandler)}
	cfg.Disks.Open = func(path string, readOnly bool) (lockspace.Disk, error) {
		disk, err := blockdev.Open(path, blockdev.Options{ReadOnly: readOnly, Killable: true})
		if err != nil || delay == 0 || path != paths[n-1] {
			return disk, err
		}
		faulty := disktest.NewFaulty(disk, disktest.FaultyOptions{})
		faulty.Inject(disktest.Fault{Delay: delay})
		return lateDisk{faulty, disk.Lock}, nil
	}
	h, err = Join(b.Context(), cfg)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, h.Close(context.Background())) })

	var devs []blockdev.Device
	for i := range n {
		path := filepath.Join(dir, fmt.Sprint("raw", i))
		size := func(blockdev.Info) (int64, error) { return 1 << 20, nil }
		require.NoError(b, blockdev.Create(path, size, func(dev blockdev.Device) error { return dev.Write(blockdev.Alloc(1<<20), 0) }))
		dev, err := blockdev.Open(path, blockdev.Options{})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, dev.Close()) })
		devs = append(devs, dev)
	}
	stride := devs[0].Info().PhysicalBlock
	slot := blockdev.Alloc(stride)
	return h, func() {
		for _, request := range []func(blockdev.Device) error{
			func(dev blockdev.Device) error { return dev.Write(slot, 0) },
			func(dev blockdev.Device) error { return dev.Read(blockdev.Alloc(3*stride), 0) },
			func(dev blockdev.Device) error { return dev.Write(slot, 0) },
		} {
			if n == 1 {
				require.NoError(b, request(devs[0]))
				continue
			}
			answers := make(chan error, n)
			for _, dev := range devs {
				go func() { answers <- request(dev) }()
			}
			for range n/2 + 1 {
				require.NoError(b, <-answers)
			}
		}
	}
}

// BenchmarkDisks acquires a lock without contention in lockspaces on one file, on three, and on three of
// which one is slow. They take turns with each other and with the bare requests, so that the ratios of the
// medians are meaningful on a busy machine, too.
func BenchmarkDisks(b *testing.B) {
	type row struct {
		name  string
		once  func()
		times []time.Duration
	}
	var rows []*row
	for _, c := range []struct {
		name  string
		disks int
		delay time.Duration
	}{{"one", 1, 0}, {"three", 3, 0}, {"one-of-three-slow", 3, 50 * time.Millisecond}} {
		h, raw := files(b, c.disks, c.delay)
		lock := func() {
			hold, err := h.Acquire(b.Context(), locks.Request{Name: benchmarkLock})
			require.NoError(b, err)
			require.NoError(b, hold.Release())
		}
		lock()
		rows = append(rows, &row{name: c.name, once: lock}, &row{name: c.name + "-raw", once: raw})
	}
	for b.Loop() {
		for _, r := range rows {
			for range 20 {
				begun := time.Now()
				r.once()
				r.times = append(r.times, time.Since(begun))
			}
		}
	}
	of := map[string]float64{}
	for _, r := range rows {
		of[r.name] = float64(median(r.times).Nanoseconds())
		b.ReportMetric(of[r.name], r.name+"-p50-ns")
	}
	b.ReportMetric(of["one"]/of["one-raw"], "one-x-raw")
	b.ReportMetric(of["three"]/of["three-raw"], "three-x-raw")
	b.ReportMetric(of["one-of-three-slow"]/of["three"], "slow-x-three")
}
