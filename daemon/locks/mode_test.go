package locks

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

var reader = Request{Name: "x", Mode: layout.Shared}

// eventually waits until so returns true.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	within(t, what, func() {
		for !so() && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
	})
}

// TestTokenAfterAnUpgrade: readers of other hosts may have come and gone with greater tokens than
// the ticket of a hold that became exclusive. Therefore the next client of its host needs another
// ticket (TOKENS).
func TestTokenAfterAnUpgrade(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		h := acquire(t, a, reader)
		other := acquire(t, b, reader)
		require.Greater(t, other.Token(), h.Token())
		require.NoError(t, other.Release())
		require.NoError(t, h.SetMode(t.Context(), layout.Exclusive))
		next := start(t, a, Request{Name: "x"})
		require.NoError(t, h.Release())
		last := got(t, next)
		require.Greater(t, last.Token(), other.Token())
		require.NoError(t, last.Release())
	})
}

func TestUpgradeIsRefusedWhereOthersTakePart(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(t *testing.T, a, b *testHost) (leave func()){
		"a reader of another host": func(t *testing.T, a, b *testHost) func() {
			h := acquire(t, b, reader)
			return func() { require.NoError(t, h.Release()) }
		},
		"a reader of this host": func(t *testing.T, a, b *testHost) func() {
			h := acquire(t, a, reader)
			return func() { require.NoError(t, h.Release()) }
		},
		"a writer that waits on another host": func(t *testing.T, a, b *testHost) func() {
			ctx, cancel := context.WithCancel(t.Context())
			waiting := startUntil(ctx, t, b, Request{Name: "x"})
			return func() {
				cancel()
				require.ErrorIs(t, received(t, "the end of the wait", waiting).err, context.Canceled)
			}
		},
	} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			a, b := c.host(1), c.host(2)
			h := acquire(t, a, reader)
			leave := other(t, a, b)
			require.ErrorIs(t, h.SetMode(t.Context(), layout.Exclusive), api.ErrUpgrade)
			require.Equal(t, layout.Shared, h.Mode())
			require.NoError(t, h.Err())
			leave()
			eventually(t, "the others are gone", func() bool {
				err := h.SetMode(t.Context(), layout.Exclusive)
				return err == nil || !errors.Is(err, api.ErrUpgrade)
			})
			require.Equal(t, layout.Exclusive, h.Mode())
			require.NoError(t, h.Release())
		})
	}
}

// TestModeOfALockOfSeveralPermits: the machine would not change it.
func TestModeOfALockOfSeveralPermits(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		for _, mode := range []layout.Mode{layout.Shared, layout.Exclusive} {
			h := acquire(t, a, Request{Name: "x", Permits: 2, Mode: mode})
			require.NoError(t, h.SetMode(t.Context(), mode))
			err := h.SetMode(t.Context(), layout.Shared-mode)
			require.ErrorIs(t, err, api.ErrInvalid)
			require.ErrorContains(t, err, "2 permits")
			require.Equal(t, mode, h.Mode())
			require.ErrorIs(t, h.SetMode(t.Context(), 7), api.ErrInvalid)
			require.NoError(t, h.Release())
		}
	})
}

// TestTwoUpgradersAtOnce: neither waits for the other, and when one gives way the other succeeds.
func TestTwoUpgradersAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		hosts, calls := []*testHost{c.host(1), c.host(2), c.host(3)}, contended(t)
		for range 20 {
			var won atomic.Int64
			var wg sync.WaitGroup
			visits := []*visit{}
			for _, d := range hosts {
				visits = append(visits, calls.enter(d, reader))
			}
			for i, v := range visits {
				wg.Go(func() {
					err := v.change(t.Context(), layout.Exclusive)
					// it retries, the others give way
					for i == 0 && errors.Is(err, api.ErrUpgrade) {
						err = v.change(t.Context(), layout.Exclusive)
					}
					switch {
					case err == nil:
						won.Add(1)
						time.Sleep(time.Millisecond) // so that an erroneous grant overlaps
					case !errors.Is(err, api.ErrUpgrade):
						t.Error(err)
					}
					v.leave()
				})
			}
			within(t, "neither waiting for the other", wg.Wait)
			require.Positive(t, won.Load())
		}
	})
}

func TestDowngradeKeepsTheOrder(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		h := acquire(t, a, Request{Name: "x"})
		r1, w, r2 := start(t, a, reader), start(t, a, Request{Name: "x"}), start(t, a, reader)
		require.NoError(t, h.SetMode(t.Context(), layout.Shared))
		h1 := got(t, r1)
		none(t, w, r2)
		require.NoError(t, h1.Release())
		none(t, w, r2)
		require.NoError(t, h.Release())
		hw := got(t, w)
		none(t, r2)

		// Now the writer waits on another host, and the reader came after it.
		remote := start(t, b, Request{Name: "x"})
		late := start(t, a, reader)
		require.NoError(t, hw.SetMode(t.Context(), layout.Shared))
		h2 := got(t, r2) // it came before the writer
		none(t, remote, late)
		require.NoError(t, hw.Release())
		require.NoError(t, h2.Release())
		hr := got(t, remote)
		none(t, late)
		require.NoError(t, hr.Release())
		require.NoError(t, got(t, late).Release())
	})
}

// TestReadersAfterAWriterGaveUp: readers that a writer of another host kept out may enter when it
// is known to be gone.
func TestReadersAfterAWriterGaveUp(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		h := acquire(t, a, reader)
		ctx, cancel := context.WithCancel(t.Context())
		gone := asking(ctx, b, Request{Name: "x"})
		eventually(t, "the writer waits", func() bool { return c.Slot(1, 2).Phase == layout.Waiting })
		late := start(t, a, reader)
		none(t, late)
		cancel()
		require.ErrorIs(t, (<-gone).err, context.Canceled)
		eventually(t, "an upgrade", func() bool { return h.SetMode(t.Context(), layout.Exclusive) == nil })
		none(t, late)
		require.NoError(t, h.SetMode(t.Context(), layout.Shared))
		r := got(t, late)
		require.NoError(t, h.Release())
		require.NoError(t, r.Release())
	})
}

// TestChangesOfModeUnderContention: writers are alone under any combination of changes.
func TestChangesOfModeUnderContention(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		var wg sync.WaitGroup
		calls := contended(t)
		// so that an erroneous grant overlaps
		stay := func() { time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond) }
		for id := 1; id <= 3; id++ {
			d := c.host(id)
			for range 3 {
				wg.Go(func() {
					for n := range 30 {
						mode := layout.Mode((n + id) % 2)
						v := calls.enter(d, Request{Name: "x", Mode: mode})
						if v == nil {
							return
						}
						stay()
						if rand.IntN(4) == 0 {
							// As a client that leaves during a change.
							v.over()
							go func() { _ = v.Release() }()
							_ = v.SetMode(t.Context(), layout.Shared-mode)
							assertNoError(t, v.Release())
							continue
						}
						err := v.change(t.Context(), layout.Shared-mode)
						switch {
						case err == nil:
							mode = layout.Shared - mode
						case !errors.Is(err, api.ErrUpgrade):
							t.Error(err)
						}
						if v.Mode() != mode {
							t.Errorf("mode %v, want %v", v.Mode(), mode)
						}
						stay()
						v.leave()
					}
				})
			}
		}
		within(t, "admitting every client", wg.Wait)
	})
}

func TestModeOfALostHold(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		h := acquire(t, d, reader)
		release := disk.Hang(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2)})
		require.ErrorIs(t, h.SetMode(timeout(t, 50*time.Millisecond), layout.Exclusive), api.ErrTimeout, "no client waits for a hung device")
		defer disk.Hang(disktest.Fault{Op: blockdev.OpWrite})()
		within(t, "hearing of the loss", func() {
			require.ErrorIs(t, h.SetMode(t.Context(), layout.Exclusive), api.ErrLeaseLost)
		})
		release()
	})
}
