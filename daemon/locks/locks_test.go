package locks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// generous limits each wait of a test. It ends only if something never happens.
const generous = 3 * time.Minute

// asking requests a lock in the background.
func asking(ctx context.Context, d *testHost, req Request) chan result {
	out := make(chan result, 1)
	go func() {
		h, err := d.Acquire(ctx, req)
		out <- result{h, err}
	}()
	return out
}

// start requests a lock in the background, and returns when it waits or is answered.
func start(t *testing.T, d *testHost, req Request) <-chan result {
	t.Helper()
	return startUntil(t.Context(), t, d, req)
}

// startUntil is start for a client that waits until ctx ends.
func startUntil(ctx context.Context, t *testing.T, d *testHost, req Request) <-chan result {
	t.Helper()
	waiting := make(chan struct{}, 1)
	req.OnWaiting = func(int, int) {
		select {
		case waiting <- struct{}{}:
		default:
		}
	}
	out := asking(ctx, d, req)
	select {
	case <-waiting:
	case r := <-out:
		out <- r
	case <-time.After(generous):
		t.Fatal("neither waiting nor served")
	}
	return out
}

func got(t *testing.T, c <-chan result) *Hold {
	t.Helper()
	r := received(t, "the grant", c)
	require.NoError(t, r.err)
	return r.hold
}

func none(t *testing.T, cs ...<-chan result) {
	t.Helper()
	for _, c := range cs {
		select {
		case r := <-c:
			t.Fatalf("served: %+v", r)
		default:
		}
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b, e := c.host(1), c.host(2), c.host(3)
		h := acquire(t, a, Request{Name: "x"})
		second := start(t, b, Request{Name: "x"})
		third := start(t, e, Request{Name: "x"})
		fourth := start(t, a, Request{Name: "x"})
		none(t, second, third, fourth)
		// the first passes it on locally
		for _, next := range []<-chan result{fourth, second, third} {
			last := h.Token()
			require.NoError(t, h.Release())
			h = got(t, next)
			require.Greater(t, h.Token(), last)
		}
		require.NoError(t, h.Release())
	})
}

func TestPermits(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b, e := c.host(1), c.host(2), c.host(3)
		h1 := acquire(t, a, Request{Name: "reboot", Permits: 2})
		h2 := acquire(t, b, Request{Name: "reboot"})
		third := start(t, e, Request{Name: "reboot", Permits: 2})
		none(t, third)
		require.NoError(t, h2.Release())
		require.NoError(t, got(t, third).Release())
		require.NoError(t, h1.Release())
		_, err := a.Acquire(t.Context(), Request{Name: "reboot", Permits: 3})
		require.ErrorIs(t, err, api.ErrPermits)
		require.ErrorContains(t, err, `lock "reboot" has 2, asked for 3`)
	})
}

func TestTryDoesNotWait(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		h := acquire(t, a, Request{Name: "x"})
		for _, d := range []*testHost{a, b} {
			acquireFails(t, d, Request{Name: "x", Try: true}, api.ErrBusy)
		}
		require.NoError(t, h.Release())
		require.NoError(t, acquire(t, b, Request{Name: "x", Try: true}).Release())
		require.NoError(t, acquire(t, a, Request{Name: "x", Try: true}).Release())
	})
}

// TestTriesAtOnce: a job that all hosts try to run at the same time runs on one.
func TestTriesAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		hosts := []*testHost{c.host(1), c.host(2), c.host(3)}
		for range 50 {
			results := make(chan result, len(hosts))
			for _, d := range hosts {
				go func() {
					h, err := d.Acquire(t.Context(), Request{Name: "cron", Try: true})
					results <- result{h, err}
				}()
			}
			var holds []*Hold
			for range hosts {
				r := <-results
				if r.err == nil {
					holds = append(holds, r.hold)
				} else {
					require.ErrorIs(t, r.err, api.ErrBusy)
				}
			}
			require.Len(t, holds, 1)
			require.NoError(t, holds[0].Release())
		}
	})
}

func TestGivingUp(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		h := acquire(t, a, Request{Name: "x"})
		ctx := timeout(t, 50*time.Millisecond)
		for _, d := range []*testHost{a, b} {
			_, err := d.Acquire(ctx, Request{Name: "x"})
			require.ErrorIs(t, err, api.ErrTimeout)
		}
		// a client that gave up does not block others
		next := start(t, b, Request{Name: "x"})
		require.NoError(t, h.Release())
		require.NoError(t, got(t, next).Release())
	})
}

// TestHandoff: a host with many clients passes the lock on among them, but a limited number of
// times while another host waits.
func TestHandoff(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b := c.host(1, func(cfg *hostConfig) { cfg.Handoff = 3 }), c.host(2)
		h := acquire(t, a, Request{Name: "x"})
		var local []<-chan result
		for range 10 {
			local = append(local, start(t, a, Request{Name: "x"}))
		}
		other := start(t, b, Request{Name: "x"})
		row := 0
		for h != nil {
			last := h.Token()
			require.NoError(t, h.Release())
			h = nil
			select {
			case r := <-other:
				require.NoError(t, r.err)
				require.Greater(t, r.hold.Token(), last)
				h, other = r.hold, nil
				require.LessOrEqual(t, row, 3)
			case r := <-local[0]:
				require.NoError(t, r.err)
				require.Greater(t, r.hold.Token(), last)
				h, local = r.hold, local[1:]
				if other != nil {
					row++
				}
			case <-time.After(generous):
				t.Fatal("no client served")
			}
			if len(local) == 0 {
				require.NoError(t, h.Release())
				break
			}
		}
		require.Nil(t, other, "the other host was served in between")
	})
}

func TestNamesAndLimits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 2)
		d := c.host(1)
		for _, name := range []string{"", strings.Repeat("x", 129), "a\nb", "\xff"} {
			acquireFails(t, d, Request{Name: name}, api.ErrInvalid, "%q", name)
		}
		require.NoError(t, acquire(t, d, Request{Name: "a/b c/ä"}).Release())
		require.NoError(t, acquire(t, d, Request{Name: strings.Repeat("x", 128)}).Release())
		_, err := d.Acquire(t.Context(), Request{Name: "one too many"})
		require.ErrorIs(t, err, api.ErrFull)
		require.ErrorContains(t, err, "all 2 entries are taken")
		acquireFails(t, d, Request{Name: "a/b c/ä", Permits: 9}, api.ErrInvalid)
	})
}

func TestReformatLosesTheLease(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		h := acquire(t, d, Request{Name: "x"})
		waiting := start(t, d, Request{Name: "x"})
		c.SB.UUID = layout.UUID{9}
		c.Format()
		received(t, "the loss", h.Lost())
		require.ErrorIs(t, h.Err(), api.ErrLeaseLost)
		require.ErrorContains(t, h.Err(), "another one")
		r := <-waiting
		require.ErrorIs(t, r.err, api.ErrUnavailable)
		require.ErrorIs(t, h.Release(), api.ErrLeaseLost)
		acquireFails(t, d, Request{Name: "x"}, api.ErrUnavailable)
	})
}

// TestOwnerHealsItsSlot: a bad sector blocks the others until its owner, which may not use the
// lock, has rewritten it.
func TestOwnerHealsItsSlot(t *testing.T) {
	t.Parallel()
	for name, used := range map[string]bool{"in use": true, "not in use": false} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			a, b := c.host(1), c.host(2)
			if used {
				require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
			}
			before := acquire(t, b, Request{Name: "x"})
			require.NoError(t, before.Release())
			c.Spoil(c.Geo.Slot(1, 1))
			h := acquire(t, b, Request{Name: "x"})
			require.Greater(t, h.Token(), before.Token())
			require.NoError(t, h.Release())
			require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		})
	}
}

func TestCloseWaitsForHolders(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b := c.host(1), c.host(2)
		h := acquire(t, a, Request{Name: "x"})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, a.Close(ctx), context.DeadlineExceeded)
		acquireFails(t, a, Request{Name: "y"}, api.ErrUnavailable)
		_, err := b.Acquire(t.Context(), Request{Name: "x", Try: true})
		require.True(t, errors.Is(err, api.ErrBusy), "a holder that has not stopped keeps the lock: %v", err)
		require.NoError(t, h.Release())
		require.NoError(t, a.Close(t.Context()))
		for _, name := range []string{"x", "never heard of"} {
			acquireFails(t, a, Request{Name: name}, api.ErrUnavailable, "though its device is closed")
		}
	})
}
