package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// submitted submits a request, and returns a channel with its outcome.
func submitted(ctx context.Context, d *testHost, req Request) <-chan result {
	done := make(chan result, 2)
	d.Submit(ctx, req, func(h *Hold, err error) { done <- result{h, err} })
	return done
}

// used returns the lock of a host that has used it before, so that its driver rests.
func used(t *testing.T, d *testHost) *Lock {
	t.Helper()
	require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.locks[1]
}

// TestHelpTakesAFreeLockAtOnce: in the caller's own goroutine, so it is decided when submit
// returns.
func TestHelpTakesAFreeLockAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		used(t, d)
		eventually(t, "immediately, unless the driver is just about to rest", func() bool {
			done := submitted(t.Context(), d, Request{Name: "x"})
			var r result
			helped := false
			select {
			case r = <-done:
				helped = true
			default:
				r = <-done
			}
			require.NoError(t, r.err)
			require.NoError(t, r.hold.Release())
			require.Equal(t, layout.Idle, c.Slot(1, 1).Phase)
			return helped
		})
	})
}

// TestHelpLeavesWhatFailsToTheDriver: a client's goroutine does not wait for a device that fails,
// and the driver continues from the same state.
func TestHelpLeavesWhatFailsToTheDriver(t *testing.T) {
	t.Parallel()
	for _, op := range []blockdev.Op{blockdev.OpRead, blockdev.OpWrite} {
		for _, what := range []string{"acquire", "release"} {
			runInCluster(t, fmt.Sprint(what, op), func(t *testing.T, c *cluster) {
				d, f := c.faultyHost(1)
				used(t, d)
				fail := func() {
					f.Inject(disktest.Fault{Op: op, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 1) + int64(8*c.Geo.Stride), Err: unix.ETIMEDOUT, Times: 2})
				}
				if what == "acquire" {
					fail()
				}
				r := <-submitted(t.Context(), d, Request{Name: "x"})
				require.NoError(t, r.err)
				if what == "release" {
					fail()
				}
				require.NoError(t, r.hold.Release())
				require.Equal(t, layout.Idle, c.Slot(1, 1).Phase)
				require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
			})
		}
	}
}

// TestSubmitIsDecidedThoughIOHangs: the goroutine that submitted blocks. Other goroutines report
// the client's timeout and the end of the lease.
func TestSubmitIsDecidedThoughIOHangs(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"context", "lease"} {
		runInCluster(t, ends, func(t *testing.T, c *cluster) {
			d, f := c.faultyHost(1)
			used(t, d)
			ctx, cancel := context.WithCancelCause(t.Context())
			hung := f.Inject(disktest.Fault{From: c.Geo.Slot(1, 1), To: c.Geo.Size(), Hang: true})
			done := make(chan result, 2)
			var wg sync.WaitGroup
			wg.Go(func() { d.Submit(ctx, Request{Name: "x"}, func(h *Hold, err error) { done <- result{h, err} }) })
			defer wg.Wait()
			defer f.RemoveFaults()
			<-hung.Hit()
			want := errors.New("no patience")
			if ends == "context" {
				cancel(want)
			} else {
				defer cancel(nil)
				want = api.ErrLeaseLost
				f.Inject(disktest.Fault{Hang: true})
			}
			require.ErrorIs(t, received(t, "the decision", done).err, want)
		})
	}
}

// TestSubmitIsDecidedOnce: by any of the possible ends.
func TestSubmitIsDecidedOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		lk := used(t, d)
		for i := range 300 {
			ctx, cancel := context.WithCancel(t.Context())
			var done <-chan result
			var wg sync.WaitGroup
			wg.Go(func() { done = submitted(ctx, d, Request{Name: "x"}) })
			if i%2 == 0 {
				wg.Go(cancel)
			} else {
				wg.Go(func() { lk.Queue.Refuse(api.ErrBusy, queue.All) })
			}
			wg.Wait()
			cancel()
			r := <-done
			if r.err == nil {
				require.NoError(t, r.hold.Release())
			}
			require.Empty(t, done)
		}
		require.Nil(t, lk.Queue.Front())
		require.Empty(t, lk.Queue.Inside())
	})
}

// TestHelpLeavesNobodyWaiting: clients that drive the lock themselves, and clients that do not, on
// several hosts.
func TestHelpLeavesNobodyWaiting(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		counter := 0
		const hosts, clients, rounds = 3, 4, 60
		var wg sync.WaitGroup
		for id := 1; id <= hosts; id++ {
			d := c.host(id)
			for i := range clients {
				wg.Go(func() {
					for n := range rounds {
						r := result{}
						switch (i + n) % 3 {
						case 0:
							r = <-submitted(t.Context(), d, Request{Name: "x"})
						case 1: // a context that does not end
							r.hold, r.err = d.Acquire(context.Background(), Request{Name: "x"})
						case 2:
							r.hold, r.err = d.Acquire(t.Context(), Request{Name: "x"})
						}
						if !assertNoError(t, r.err) {
							return
						}
						counter++ // checked by the race detector
						if !assertNoError(t, r.hold.Release()) {
							return
						}
					}
				})
			}
		}
		within(t, "the rounds of all", wg.Wait)
		require.Equal(t, hosts*clients*rounds, counter)
	})
}

// TestCloseEndsAHelpedLock: the driver rests under a hold when the daemon closes, and a client's
// goroutine releases.
func TestCloseEndsAHelpedLock(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		state := t.TempDir()
		for range 20 {
			d, err := join(t.Context(), c.config(1, func(cfg *hostConfig) { cfg.StateDir = state }))
			require.NoError(t, err)
			used(t, d)
			r := <-submitted(t.Context(), d, Request{Name: "x"})
			require.NoError(t, r.err)
			var wg sync.WaitGroup
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), generous)
				defer cancel()
				if err := d.Close(ctx); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() { assertNoError(t, r.hold.Release()) })
			within(t, "closing", wg.Wait)
		}
	})
}
