package disktest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
)

func TestNewMemoryGeometry(t *testing.T) {
	info := NewMemory(1<<20, 512, 4096).Open().Info()
	require.Equal(t, blockdev.Info{Path: "memory", LogicalBlock: 512, PhysicalBlock: 4096, Size: 1 << 20}, info)
	for _, c := range []struct {
		size              int64
		logical, physical int
	}{{1 << 20, 0, 512}, {1 << 20, 512, 256}, {1 << 20, 4096, 512}, {1 << 20, 520, 4096}, {1<<20 + 512, 512, 4096}, {0, 512, 512}, {-512, 512, 512}} {
		require.Panics(t, func() { NewMemory(c.size, c.logical, c.physical) }, "%v", c)
	}
}

func TestMemoryAllocatesNothing(t *testing.T) {
	dev := NewMemory(1<<20, 512, 4096).Open()
	p := blockdev.Alloc(4096)
	io := func() {
		require.NoError(t, dev.Write(p, 0))
		require.NoError(t, dev.Read(p, 0))
	}
	io()
	require.Zero(t, testing.AllocsPerRun(100, io))
}

func BenchmarkMemory(b *testing.B) {
	dev := NewMemory(1<<20, 512, 4096).Open()
	p := blockdev.Alloc(4096)
	b.ReportAllocs()
	for b.Loop() {
		if err := dev.Read(p, 0); err != nil {
			b.Fatal(err)
		}
	}
}
