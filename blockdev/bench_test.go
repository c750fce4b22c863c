package blockdev_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// BenchmarkIO compares a Disk with the bare system call on the same descriptor.
func BenchmarkIO(b *testing.B) {
	b.Run("file", func(b *testing.B) { benchmarkDisk(b, mustOpen(b, backingFile(b), blockdev.Options{})) })
	b.Run("loop", func(b *testing.B) { benchmarkDisk(b, mustOpen(b, loop(b, backingFile(b), 512), blockdev.Options{})) })
}

func benchmarkDisk(b *testing.B, d *blockdev.Disk) {
	const sector, vector = 4096, 64 * 4096
	p := disktest.Random(1, vector)
	require.NoError(b, d.Write(p, 0))
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"read 1 sector/disk", func() error { return d.Read(p[:sector], 0) }},
		{"read 1 sector/raw", func() error { _, err := unix.Pread(d.FD(), p[:sector], 0); return err }},
		{"read 64 sectors/disk", func() error { return d.Read(p, 0) }},
		{"read 64 sectors/raw", func() error { _, err := unix.Pread(d.FD(), p, 0); return err }},
		{"write 1 sector/disk", func() error { return d.Write(p[:sector], 0) }},
		{"write 1 sector/raw", func() error { _, err := unix.Pwrite(d.FD(), p[:sector], 0); return err }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPool(b *testing.B) {
	var pool blockdev.Pool
	b.ReportAllocs()
	for b.Loop() {
		pool.Put(pool.Get(4096))
	}
}

func BenchmarkStats(b *testing.B) {
	d := mustOpen(b, backingFile(b), blockdev.Options{})
	require.NoError(b, d.Read(blockdev.Alloc(4096), 0))
	b.ReportAllocs()
	for b.Loop() {
		d.Stats()
	}
}
