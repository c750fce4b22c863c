package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/locks"
)

// generous limits each wait of a test. It ends only if something never happens.
const generous = 3 * time.Minute

// granted is the answer to a request.
type granted struct {
	hold *locks.Hold
	err  error
}

// asking requests a lock in the background.
func asking(ctx context.Context, d *Host, req locks.Request) chan granted {
	out := make(chan granted, 1)
	go func() {
		h, err := d.Acquire(ctx, req)
		out <- granted{h, err}
	}()
	return out
}

// start requests a lock in the background, and returns when it waits or is answered.
func start(t *testing.T, d *Host, req locks.Request) <-chan granted {
	t.Helper()
	return startUntil(t.Context(), t, d, req)
}

// startUntil is start for a client that waits until ctx ends.
func startUntil(ctx context.Context, t *testing.T, d *Host, req locks.Request) <-chan granted {
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

func got(t *testing.T, c <-chan granted) *locks.Hold {
	t.Helper()
	r := received(t, "the grant", c)
	require.NoError(t, r.err)
	return r.hold
}

func none(t *testing.T, cs ...<-chan granted) {
	t.Helper()
	for _, c := range cs {
		select {
		case r := <-c:
			t.Fatalf("served: %+v", r)
		default:
		}
	}
}
