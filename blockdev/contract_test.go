package blockdev_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// storage is one disk that can be opened any number of times.
type storage struct {
	open    func(t testing.TB, readOnly bool) blockdev.Device
	regular bool
	logical int // 0: the filesystem's choice
}

func TestContract(t *testing.T) {
	for name, storage := range map[string]func(t testing.TB) storage{
		"file":           func(t testing.TB) storage { return fileStorage(t, false) },
		"file, io_uring": func(t testing.TB) storage { return fileStorage(t, true) },
		"loop 512":       func(t testing.TB) storage { return loopStorage(t, 512, false) },
		"loop, io_uring": func(t testing.TB) storage { return loopStorage(t, 512, true) },
		"loop 4096":      func(t testing.TB) storage { return loopStorage(t, 4096, true) },
		"two loops":      twoLoopsStorage,
		"memory":         memoryStorage,
		"faulty":         faultyStorage,
		"mirror":         mirrorStorage,
	} {
		t.Run(name, func(t *testing.T) { runContract(t, storage) })
	}
}

func fileStorage(t testing.TB, killable bool) storage {
	path := backingFile(t)
	return storage{regular: true, open: func(t testing.TB, readOnly bool) blockdev.Device {
		return mustOpen(t, path, blockdev.Options{ReadOnly: readOnly, Killable: killable})
	}}
}

func loopStorage(t testing.TB, sector int, killable bool) storage {
	path := loop(t, backingFile(t), sector)
	return storage{logical: sector, open: func(t testing.TB, readOnly bool) blockdev.Device {
		return mustOpen(t, path, blockdev.Options{ReadOnly: readOnly, Killable: killable})
	}}
}

// twoLoopsStorage gives two hosts one disk: every other handle is on another loop device on the
// same file.
func twoLoopsStorage(t testing.TB) storage {
	file := backingFile(t)
	paths := []string{loop(t, file, 512), loop(t, file, 512)}
	opened := 0
	return storage{logical: 512, open: func(t testing.TB, readOnly bool) blockdev.Device {
		opened++
		return mustOpen(t, paths[opened%2], blockdev.Options{ReadOnly: readOnly})
	}}
}

func memoryStorage(testing.TB) storage {
	m := disktest.NewMemory(testSize, 512, 4096)
	return storage{logical: 512, open: func(_ testing.TB, readOnly bool) blockdev.Device {
		if readOnly {
			return m.OpenReadOnly()
		}
		return m.Open()
	}}
}

func faultyStorage(t testing.TB) storage {
	s := memoryStorage(t)
	open := s.open
	s.open = func(t testing.TB, readOnly bool) blockdev.Device {
		return disktest.NewFaulty(open(t, readOnly), disktest.FaultyOptions{})
	}
	return s
}

func runContract(t *testing.T, make func(t testing.TB) storage) {
	for name, test := range map[string]func(t *testing.T, s storage){
		"info":        contractInfo,
		"two hosts":   contractTwoHosts,
		"refusals":    contractRefusals,
		"read-only":   contractReadOnly,
		"closed":      contractClosed,
		"zero":        contractZero,
		"model":       contractModel,
		"concurrency": contractConcurrency,
		"stats":       contractStats,
	} {
		t.Run(name, func(t *testing.T) { test(t, make(t)) })
	}
}

func contractInfo(t *testing.T, s storage) {
	info := s.open(t, false).Info()
	require.NotEmpty(t, info.Path)
	require.Equal(t, int64(testSize), info.Size)
	require.Equal(t, s.regular, info.Regular)
	require.False(t, info.ReadOnly)
	require.GreaterOrEqual(t, info.PhysicalBlock, info.LogicalBlock)
	if s.logical != 0 {
		require.Equal(t, s.logical, info.LogicalBlock)
	}
	require.True(t, s.open(t, true).Info().ReadOnly)
}

// A read sees a write of another host immediately.
func contractTwoHosts(t *testing.T, s storage) {
	a, b := s.open(t, false), s.open(t, false)
	block := a.Info().LogicalBlock
	for i := range 50 {
		writer, reader := a, b
		if i%2 == 1 {
			writer, reader = b, a
		}
		p := disktest.Random(uint64(i), block)
		require.NoError(t, writer.Write(p, int64(i%3*block)))
		require.Equal(t, p, mustRead(t, reader, int64(i%3*block), block))
	}
}

func contractRefusals(t *testing.T, s storage) {
	dev := s.open(t, false)
	block := int64(dev.Info().LogicalBlock)
	p := blockdev.Alloc(int(4 * block))
	for name, c := range map[string]struct {
		p    []byte
		off  int64
		want error
	}{
		"empty":              {p[:0], 0, blockdev.ErrAlignment},
		"nil":                {nil, 0, blockdev.ErrAlignment},
		"odd length":         {p[:block-1], 0, blockdev.ErrAlignment},
		"half a block":       {p[:block/2], 0, blockdev.ErrAlignment},
		"odd offset":         {p, 1, blockdev.ErrAlignment},
		"half-block offset":  {p, block / 2, blockdev.ErrAlignment},
		"odd buffer":         {p[1 : block+1], 0, blockdev.ErrAlignment},
		"half-block buffer":  {p[block/2 : block+block/2], 0, blockdev.ErrAlignment},
		"negative":           {p, -block, blockdev.ErrRange},
		"over the end":       {p, testSize - block, blockdev.ErrRange},
		"at the end":         {p, testSize, blockdev.ErrRange},
		"beyond the end":     {p, testSize + 8*block, blockdev.ErrRange},
		"largest offset":     {p, (1<<63 - 1) / block * block, blockdev.ErrRange},
		"last block is fine": {p[:block], testSize - block, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for op, do := range map[string]func([]byte, int64) error{"read": dev.Read, "write": dev.Write} {
				err := do(c.p, c.off)
				require.ErrorIs(t, err, c.want, op)
				if c.want != nil {
					require.ErrorContains(t, err, op)
					require.ErrorContains(t, err, "of "+dev.Info().Path+": ")
				}
			}
		})
	}
	require.ErrorIs(t, dev.Zero(0, 0), blockdev.ErrAlignment)
	require.ErrorIs(t, dev.Zero(1, block), blockdev.ErrAlignment)
	require.ErrorIs(t, dev.Zero(0, testSize+block), blockdev.ErrRange)
	require.ErrorIs(t, dev.Zero(-block, block), blockdev.ErrRange)
}

func contractReadOnly(t *testing.T, s storage) {
	rw, ro := s.open(t, false), s.open(t, true)
	block := ro.Info().LogicalBlock
	want := disktest.Random(1, block)
	require.NoError(t, rw.Write(want, 0))

	require.ErrorIs(t, ro.Write(blockdev.Alloc(block), 0), blockdev.ErrReadOnly)
	require.ErrorIs(t, ro.Zero(0, int64(block)), blockdev.ErrReadOnly)
	require.Equal(t, want, mustRead(t, ro, 0, block))
}

func contractClosed(t *testing.T, s storage) {
	dev, other := s.open(t, false), s.open(t, false)
	p := blockdev.Alloc(dev.Info().LogicalBlock)
	require.NoError(t, dev.Close())

	require.ErrorIs(t, dev.Read(p, 0), blockdev.ErrClosed)
	require.ErrorIs(t, dev.Write(p, 0), blockdev.ErrClosed)
	require.ErrorIs(t, dev.Zero(0, int64(len(p))), blockdev.ErrClosed)
	require.ErrorIs(t, dev.Close(), blockdev.ErrClosed)
	require.Equal(t, int64(testSize), dev.Info().Size)
	require.NoError(t, other.Write(p, 0), "the disk is still open elsewhere")
}

func contractZero(t *testing.T, s storage) {
	dev, other := s.open(t, false), s.open(t, false)
	block := int64(dev.Info().LogicalBlock)
	p := disktest.Random(1, int(16*block))
	require.NoError(t, dev.Write(p, 0))
	require.NoError(t, dev.Zero(3*block, 5*block))

	want := bytes.Clone(p)
	clear(want[3*block : 8*block])
	require.Equal(t, want, mustRead(t, other, 0, len(p)), "and nothing but that")

	require.NoError(t, dev.Zero(0, testSize))
	require.Equal(t, make([]byte, testSize), mustRead(t, other, 0, testSize))
	require.Equal(t, int64(testSize), dev.Info().Size)
}

// Any sequence of requests by two hosts has the same result as on a slice of bytes.
func contractModel(t *testing.T, s storage) {
	hosts := []blockdev.Device{s.open(t, false), s.open(t, false)}
	block := hosts[0].Info().LogicalBlock
	const blocks = 64
	require.NoError(t, hosts[0].Zero(0, int64(blocks*block)))
	model := make([]byte, blocks*block)
	p := blockdev.Alloc(blocks * block)

	rapid.Check(t, func(t *rapid.T) {
		for range 8 {
			host := hosts[rapid.IntRange(0, 1).Draw(t, "host")]
			from := rapid.IntRange(0, blocks-1).Draw(t, "from")
			n := rapid.IntRange(1, blocks-from).Draw(t, "blocks")
			begin, end := from*block, (from+n)*block
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0:
				require.NoError(t, host.Zero(int64(begin), int64(end-begin)))
				clear(model[begin:end])
			case 1, 2:
				copy(p, bytes.Repeat([]byte{rapid.Byte().Draw(t, "contents")}, end-begin))
				require.NoError(t, host.Write(p[:end-begin], int64(begin)))
				copy(model[begin:end], p)
			default:
				require.NoError(t, host.Read(p[:end-begin], int64(begin)))
				require.True(t, bytes.Equal(model[begin:end], p[:end-begin]))
			}
		}
	})
}

// Hosts that write different blocks do not disturb each other, and closing waits for them.
func contractConcurrency(t *testing.T, s storage) {
	const hosts, rounds = 4, 25
	devs := make([]blockdev.Device, hosts)
	for i := range devs {
		devs[i] = s.open(t, false)
	}
	block := devs[0].Info().LogicalBlock
	errs := make([]error, hosts)
	var group sync.WaitGroup
	for i, dev := range devs {
		group.Go(func() {
			p, q := disktest.Random(uint64(i), block), blockdev.Alloc(hosts*block)
			for round := range rounds {
				p[0] = byte(round)
				err := errors.Join(dev.Write(p, int64(i*block)), dev.Read(q, 0))
				if err != nil || !bytes.Equal(p, q[i*block:(i+1)*block]) {
					errs[i] = errors.Join(err, errors.New("not what was written"))
					return
				}
			}
			errs[i] = dev.Close()
		})
	}
	group.Wait()
	for i := range errs {
		require.NoError(t, errs[i], "host %d", i)
	}
}

func contractStats(t *testing.T, s storage) {
	dev := s.open(t, false)
	p := blockdev.Alloc(dev.Info().LogicalBlock)
	require.Zero(t, dev.Stats())
	for range 3 {
		require.NoError(t, dev.Write(p, 0))
	}
	require.NoError(t, dev.Read(p, 0))
	require.Error(t, dev.Read(p, 1))
	require.NoError(t, dev.Zero(0, int64(len(p))))

	stats := dev.Stats()
	require.Equal(t, uint64(3), stats.Write.Count)
	require.Equal(t, uint64(1), stats.Read.Count, "a refused request is no IO")
	require.Equal(t, uint64(1), stats.Zero.Count)
	require.Zero(t, stats.Read.Errors)
	require.Positive(t, stats.Write.Max)
	require.LessOrEqual(t, stats.Write.P50, stats.Write.P99)
	require.LessOrEqual(t, stats.Write.P99, stats.Write.Max)
	require.Zero(t, stats.InFlight)
	require.Zero(t, stats.Oldest)
}
