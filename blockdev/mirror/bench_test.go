package mirror_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// BenchmarkSet compares a set of three disks with a loop that starts a request for each disk in a
// goroutine, and waits for all.
func BenchmarkSet(b *testing.B) {
	b.Run("memory", func(b *testing.B) {
		benchmarkSet(b, func(int) (blockdev.Device, error) {
			return disktest.NewMemory(records*block, block, block).Open(), nil
		})
	})
	b.Run("file", func(b *testing.B) {
		dir := b.TempDir()
		benchmarkSet(b, func(i int) (blockdev.Device, error) {
			path := filepath.Join(dir, fmt.Sprint(i))
			size := func(blockdev.Info) (int64, error) { return records * block, nil }
			fill := func(dev blockdev.Device) error { return dev.Write(blockdev.Alloc(records*block), 0) }
			if err := blockdev.Create(path, size, fill); err != nil {
				return nil, err
			}
			return blockdev.Open(path, blockdev.Options{})
		})
	})
}

const block = 4096

func benchmarkSet(b *testing.B, open func(i int) (blockdev.Device, error)) {
	var disks [3]blockdev.Device
	var members []mirror.Member
	var bufs [3][]byte
	for i := range disks {
		var err error
		disks[i], err = open(i)
		require.NoError(b, err)
		bufs[i] = blockdev.Alloc(20 * block)
		members = append(members, mirror.Member{Name: fmt.Sprint(i), Open: func() (blockdev.Device, error) { return disks[i], nil }})
	}
	set, err := mirror.Open(members, mirror.Options{Stride: block, Size: records * block, Codec: codec{}, Timeout: time.Minute, Patience: time.Minute, Retry: time.Minute,
		Check: func(int, blockdev.Device) error { return nil }})
	require.NoError(b, err)
	loop := func(request func(i int, dev blockdev.Device) error) error {
		var all sync.WaitGroup
		var errs [3]error
		for i, dev := range disks {
			all.Go(func() { errs[i] = request(i, dev) })
		}
		all.Wait()
		return errs[0]
	}
	p, version := blockdev.Alloc(20*block), mirror.Version{Epoch: 1}
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"write/set", func() error {
			version.Counter++
			return set.Write(encode(p[:block], block, version), block)
		}},
		{"write/loop", func() error {
			return loop(func(i int, dev blockdev.Device) error { return dev.Write(bufs[i][:block], 30*block) })
		}},
		{"read 1/set", func() error { return set.Read(p[:block], block) }},
		{"read 1/loop", func() error {
			return loop(func(i int, dev blockdev.Device) error { return dev.Read(bufs[i][:block], block) })
		}},
		{"read 20/set", func() error { return set.Read(p, block) }},
		{"read 20/loop", func() error {
			return loop(func(i int, dev blockdev.Device) error { return dev.Read(bufs[i], block) })
		}},
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
	require.NoError(b, set.Close())
}
