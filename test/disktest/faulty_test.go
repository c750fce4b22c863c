package disktest

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
)

// faulty returns a device for faults, another one on the same disk without faults, and the
// contents of their first 16 blocks.
func faulty(t *testing.T) (f *Faulty, other blockdev.Device, old []byte) {
	mem := NewMemory(1<<20, 512, 4096)
	other = mem.Open()
	old = Random(1, 16*512)
	require.NoError(t, other.Write(old, 0))
	return NewFaulty(mem.Open(), FaultyOptions{Seed: 1}), other, old
}

func TestFaultMatching(t *testing.T) {
	for name, c := range map[string]struct {
		fault Fault
		off   int64 // of a write of 1024 bytes
		fails bool
	}{
		"any":          {Fault{}, 0, true},
		"op":           {Fault{Op: blockdev.OpWrite}, 0, true},
		"other op":     {Fault{Op: blockdev.OpRead}, 0, false},
		"within":       {Fault{From: 512, To: 513}, 0, true},
		"just before":  {Fault{From: 0, To: 1024}, 1024, false},
		"just after":   {Fault{From: 2048, To: 4096}, 1024, false},
		"touches":      {Fault{From: 2047, To: 4096}, 1024, true},
		"to the end":   {Fault{From: 4096}, 1<<20 - 1024, true},
		"a later one":  {Fault{After: 1}, 0, false},
		"improbable":   {Fault{Chance: 1e-12}, 0, false},
		"not so":       {Fault{Chance: 1}, 0, true},
		"the only one": {Fault{Times: 1}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, _, _ := faulty(t)
			c.fault.Err = unix.EIO
			injected := f.Inject(c.fault)
			err := f.Write(blockdev.Alloc(1024), c.off)
			if !c.fails {
				require.NoError(t, err)
				require.Zero(t, injected.Fired())
				return
			}
			require.EqualError(t, err, fmt.Sprintf("write 1024 bytes at %d of memory: input/output error", c.off))
			require.ErrorIs(t, err, unix.EIO)
			require.Equal(t, 1, injected.Fired())
		})
	}
}

func TestFaultCounts(t *testing.T) {
	f, _, _ := faulty(t)
	injected := f.Inject(Fault{Op: blockdev.OpRead, After: 2, Times: 3, Err: unix.EIO})
	var fails []bool
	for range 7 {
		fails = append(fails, f.Read(blockdev.Alloc(512), 0) != nil)
	}
	require.Equal(t, []bool{false, false, true, true, true, false, false}, fails)
	require.Equal(t, 3, injected.Fired())
	<-injected.Hit()
}

func TestNewestFaultHits(t *testing.T) {
	f, _, _ := faulty(t)
	f.Inject(Fault{Err: unix.EIO})
	f.Inject(Fault{Times: 1, Err: unix.ETIMEDOUT})
	require.ErrorIs(t, f.Read(blockdev.Alloc(512), 0), unix.ETIMEDOUT)
	require.ErrorIs(t, f.Read(blockdev.Alloc(512), 0), unix.EIO)
	f.RemoveFaults()
	require.NoError(t, f.Read(blockdev.Alloc(512), 0))
}

func TestFailedWrite(t *testing.T) {
	for _, landed := range []int{0, 1, 512, 700, 1023, 1024, 5000, All} {
		f, other, old := faulty(t)
		f.Inject(Fault{Op: blockdev.OpWrite, Times: 1, Err: unix.EIO, Landed: landed})
		p := Random(2, 1024)
		require.ErrorIs(t, f.Write(p, 512), unix.EIO)
		want := bytes.Clone(old)
		if landed == All {
			landed = len(p)
		}
		copy(want[512:], p[:min(landed, len(p))])
		require.Equal(t, want, mustRead(t, other, 0, len(old)), "landed %d", landed)
		require.Equal(t, uint64(1), f.Stats().Write.Errors)
	}
}

func TestFailedZero(t *testing.T) {
	for landed, zeroed := range map[int]int{0: 0, 511: 0, 1023: 512, All: 2048} {
		f, other, old := faulty(t)
		f.Inject(Fault{Op: blockdev.OpZero, Err: unix.EIO, Landed: landed})
		require.ErrorIs(t, f.Zero(0, 2048), unix.EIO)
		want := bytes.Clone(old)
		clear(want[:zeroed])
		require.Equal(t, want, mustRead(t, other, 0, len(old)), "landed %d", landed)
	}
}

func TestCrash(t *testing.T) {
	f, other, old := faulty(t)
	f.Inject(Fault{Op: blockdev.OpWrite, Crash: true, Landed: 100})
	p := Random(2, 512)
	require.ErrorIs(t, f.Write(p, 0), ErrCrashed)
	require.ErrorIs(t, f.Write(p, 0), ErrCrashed)
	require.ErrorIs(t, f.Read(blockdev.Alloc(512), 0), ErrCrashed)
	require.ErrorIs(t, f.Zero(0, 512), ErrCrashed)
	want := append(bytes.Clone(p[:100]), old[100:]...)
	require.Equal(t, want, mustRead(t, other, 0, len(old)))

	f.RemoveFaults()
	require.ErrorIs(t, f.Read(blockdev.Alloc(512), 0), ErrCrashed)
}

func TestLateWrite(t *testing.T) {
	f, other, old := faulty(t)
	f.Inject(Fault{Op: blockdev.OpWrite, Times: 1, Late: true, Err: unix.ETIMEDOUT})
	f.Inject(Fault{Op: blockdev.OpWrite, Times: 1, Late: true})
	acknowledged, timedOut := Random(2, 512), Random(3, 512)
	p := blockdev.Alloc(512)
	copy(p, acknowledged)
	require.NoError(t, f.Write(p, 0))
	copy(p, timedOut)
	require.ErrorIs(t, f.Write(p, 512), unix.ETIMEDOUT)
	require.Equal(t, old, mustRead(t, other, 0, len(old)))

	clear(p) // the caller owns its buffer again
	require.NoError(t, f.Write(p, 0))
	f.Crash()
	n, err := f.Land()
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, append(acknowledged, timedOut...), mustRead(t, other, 0, 1024))
	n, err = f.Land()
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, other, old := faulty(t)
		release := f.Hang(Fault{Op: blockdev.OpWrite, From: 0, To: 512})
		p := Random(2, 512)
		written := make(chan error, 1)
		go func() { written <- f.Write(p, 0) }()
		synctest.Wait()

		require.Equal(t, old[:512], mustRead(t, f, 0, 512), "only writes hang")
		require.NoError(t, f.Write(p, 512), "and only there")
		time.Sleep(time.Hour)
		require.Equal(t, time.Hour, f.Stats().Oldest)
		require.Equal(t, old[:512], mustRead(t, other, 0, 512))

		closed := make(chan error, 1)
		go func() { closed <- f.Close() }()
		synctest.Wait()
		require.Empty(t, closed, "closing waits")
		require.ErrorIs(t, f.Read(p, 0), blockdev.ErrClosed)

		release()
		release()
		require.NoError(t, <-written)
		require.NoError(t, <-closed)
		require.Equal(t, p, mustRead(t, other, 0, 512))
	})
}

func TestCrashFailsWhatHangs(t *testing.T) {
	f, other, old := faulty(t)
	injected := f.Inject(Fault{Op: blockdev.OpWrite, Times: 1, Hang: true})
	written := make(chan error)
	go func() { written <- f.Write(Random(2, 512), 0) }()
	<-injected.Hit()
	f.Crash()
	f.RemoveFaults()
	require.ErrorIs(t, <-written, ErrCrashed)
	require.Equal(t, old[:512], mustRead(t, other, 0, 512))
}

func TestDelay(t *testing.T) {
	var slept []time.Duration
	f := NewFaulty(NewMemory(1<<20, 512, 512).Open(), FaultyOptions{Sleep: func(d time.Duration) { slept = append(slept, d) }})
	f.Inject(Fault{Delay: time.Second, Times: 2})
	for range 5 {
		mustRead(t, f, 0, 512)
	}
	require.Equal(t, []time.Duration{time.Second, time.Second}, slept)
}

func TestStaleRead(t *testing.T) {
	f, other, old := faulty(t)
	injected := f.Inject(Fault{Op: blockdev.OpRead, From: 700, To: 1300, Returns: Stale})
	p := Random(2, len(old))
	require.NoError(t, other.Write(p, 0))
	want := bytes.Clone(p)
	copy(want[512:1536], old[512:1536])
	require.Equal(t, want, mustRead(t, f, 0, len(old)), "in whole blocks")
	injected.Release()
	require.Equal(t, p, mustRead(t, f, 0, len(old)))
}

func TestGarbageRead(t *testing.T) {
	f, other, old := faulty(t)
	f.Inject(Fault{Op: blockdev.OpRead, From: 512, To: 1024, Returns: Garbage})
	first, second := mustRead(t, f, 0, len(old)), mustRead(t, f, 0, len(old))
	require.NotEqual(t, old[512:1024], first[512:1024])
	require.NotEqual(t, first[512:1024], second[512:1024])
	copy(first[512:1024], old[512:1024])
	require.Equal(t, old, first, "nowhere else")
	require.Equal(t, old, mustRead(t, other, 0, len(old)), "the disk itself is right")
}

// While a write flickers, a reader sees blocks that are old, new, torn and garbage, and in the
// end it is new.
func TestFlicker(t *testing.T) {
	f, other, old := faulty(t)
	p := Random(2, len(old))
	var isOld, isNew, isElse int
	f.sleep = func(time.Duration) {
		got := mustRead(t, other, 0, len(old))
		for at := 0; at < len(p); at += 512 {
			switch {
			case bytes.Equal(got[at:at+512], old[at:at+512]):
				isOld++
			case bytes.Equal(got[at:at+512], p[at:at+512]):
				isNew++
			default:
				isElse++
			}
		}
	}
	f.Inject(Fault{Op: blockdev.OpWrite, Flicker: 4, Delay: time.Millisecond})
	require.NoError(t, f.Write(p, 0))
	require.Positive(t, isOld)
	require.Positive(t, isNew)
	require.Positive(t, isElse)
	require.Equal(t, p, mustRead(t, other, 0, len(old)))
}

// With a chance, the same requests have the same results in every run.
func TestChanceFollowsSeed(t *testing.T) {
	trial := func(seed uint64) (fates []bool) {
		f := NewFaulty(NewMemory(1<<20, 512, 512).Open(), FaultyOptions{Seed: seed})
		f.Inject(Fault{Chance: 0.3, Err: unix.EIO})
		for range 200 {
			fates = append(fates, f.Read(blockdev.Alloc(512), 0) != nil)
		}
		return fates
	}
	require.Equal(t, trial(1), trial(1))
	require.NotEqual(t, trial(1), trial(2))
	var hits int
	for _, hit := range trial(3) {
		if hit {
			hits++
		}
	}
	require.InDelta(t, 60, hits, 30)
}

func TestInjectPanicsAtNonsense(t *testing.T) {
	f, _, _ := faulty(t)
	for _, fault := range []Fault{
		{From: 512, To: 512},
		{From: -1},
		{To: 1<<20 + 1},
		{Chance: 2},
		{Op: blockdev.OpWrite, Returns: Garbage},
		{Op: blockdev.OpRead, Late: true},
		{Flicker: 1},
		{Op: blockdev.OpWrite, Landed: 5},
	} {
		require.Panics(t, func() { f.Inject(fault) }, "%+v", fault)
	}
}

func mustRead(t testing.TB, dev blockdev.Device, off int64, n int) []byte {
	t.Helper()
	p := blockdev.Alloc(n)
	require.NoError(t, dev.Read(p, off))
	return p
}
