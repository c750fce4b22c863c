package watchdog_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/watchdog"
)

// contract tests the promises of every Device. The watchdog that open opens must be closed, and
// must support Disarm. It is disarmed when contract succeeds.
func contract(t *testing.T, open func(want time.Duration) (watchdog.Device, error)) {
	const want = 30 * time.Second
	arm := func(t *testing.T) watchdog.Device {
		t.Helper()
		d, err := open(want)
		require.NoError(t, err)
		return d
	}
	closed := func(t *testing.T, d watchdog.Device) {
		t.Helper()
		require.ErrorIs(t, d.Feed(), watchdog.ErrClosed)
		require.ErrorIs(t, d.Disarm(), watchdog.ErrClosed)
		require.ErrorIs(t, d.Leave(), watchdog.ErrClosed)
	}

	t.Run("time-out in whole seconds", func(t *testing.T) {
		for _, want := range []time.Duration{want - time.Second + 1, want} {
			d, err := open(want)
			require.NoError(t, err)
			require.Equal(t, 30*time.Second, d.Timeout())
			require.NoError(t, d.Disarm())
		}
	})
	t.Run("no time-out", func(t *testing.T) {
		for _, want := range []time.Duration{0, -time.Second} {
			_, err := open(want)
			require.ErrorIs(t, err, watchdog.ErrTimeout)
		}
	})
	t.Run("disarmed, it is closed", func(t *testing.T) {
		d := arm(t)
		require.NoError(t, d.Feed())
		require.NoError(t, d.Disarm())
		closed(t, d)
	})
	t.Run("left, it is closed and can be taken on", func(t *testing.T) {
		d := arm(t)
		require.NoError(t, d.Leave())
		closed(t, d)
		next := arm(t)
		closed(t, d)
		require.NoError(t, next.Feed())
		require.NoError(t, next.Disarm())
	})
	t.Run("one program at a time", func(t *testing.T) {
		d := arm(t)
		_, err := open(want)
		require.ErrorIs(t, err, watchdog.ErrBusy)
		require.NoError(t, d.Feed())
		require.NoError(t, d.Disarm())
	})
	t.Run("fed from everywhere while it is disarmed", func(t *testing.T) {
		d := arm(t)
		var feeders sync.WaitGroup
		for range 4 {
			feeders.Go(func() {
				err := d.Feed()
				for err == nil {
					err = d.Feed()
				}
				assert.ErrorIs(t, err, watchdog.ErrClosed)
			})
		}
		require.NoError(t, d.Disarm())
		feeders.Wait()
		closed(t, d)
	})
}
