package blockdev

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// BenchmarkIO compares a Disk with the bare system call on the same descriptor.
func BenchmarkIO(b *testing.B) {
	b.Run("file", func(b *testing.B) { benchmarkDisk(b, mustOpen(b, backingFile(b), Options{})) })
	b.Run("loop", func(b *testing.B) { benchmarkDisk(b, mustOpen(b, loop(b, backingFile(b), 512), Options{})) })
}

func benchmarkDisk(b *testing.B, d *Disk) {
	const sector, vector = 4096, 64 * 4096
	p := random(1, vector)
	require.NoError(b, d.Write(p, 0))
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"read 1 sector/disk", func() error { return d.Read(p[:sector], 0) }},
		{"read 1 sector/raw", func() error { _, err := unix.Pread(d.fd, p[:sector], 0); return err }},
		{"read 64 sectors/disk", func() error { return d.Read(p, 0) }},
		{"read 64 sectors/raw", func() error { _, err := unix.Pread(d.fd, p, 0); return err }},
		{"write 1 sector/disk", func() error { return d.Write(p[:sector], 0) }},
		{"write 1 sector/raw", func() error { _, err := unix.Pwrite(d.fd, p[:sector], 0); return err }},
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

func BenchmarkMemory(b *testing.B) {
	dev := NewMemory(1<<20, 512, 4096).Open()
	p := Alloc(4096)
	b.ReportAllocs()
	for b.Loop() {
		if err := dev.Read(p, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPool(b *testing.B) {
	var pool Pool
	b.ReportAllocs()
	for b.Loop() {
		pool.Put(pool.Get(4096))
	}
}

func BenchmarkStats(b *testing.B) {
	d := mustOpen(b, backingFile(b), Options{})
	require.NoError(b, d.Read(Alloc(4096), 0))
	b.ReportAllocs()
	for b.Loop() {
		d.Stats()
	}
}
