package clocktest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/clock"
)

// TestClock runs the contract of clock.Clock over all implementations.
func TestClock(t *testing.T) {
	t.Run("Boottime", func(t *testing.T) { contract(t, clock.Boottime, func(t *testing.T, f func(*testing.T)) { f(t) }) })
	t.Run("Bubble", func(t *testing.T) { contract(t, Clock{}, synctest.Test) })
	t.Run("FastBubble", func(t *testing.T) { contract(t, Clock{Rate: 1.1}, synctest.Test) })
	t.Run("SlowBubble", func(t *testing.T) { contract(t, Clock{Rate: 0.9}, synctest.Test) })
}

func contract(t *testing.T, c clock.Clock, in func(*testing.T, func(*testing.T))) {
	alarm := func(t *testing.T) clock.Alarm {
		a, err := c.NewAlarm()
		require.NoError(t, err)
		t.Cleanup(a.Close)
		return a
	}
	t.Run("rings at its moment", func(t *testing.T) {
		in(t, func(t *testing.T) {
			a := alarm(t)
			at := c.Now() + 20*time.Millisecond
			require.NoError(t, a.Set(at))
			require.NoError(t, a.Wait())
			require.GreaterOrEqual(t, c.Now(), at)
		})
	})
	t.Run("rings immediately if set to the past", func(t *testing.T) {
		in(t, func(t *testing.T) {
			a := alarm(t)
			for _, at := range []time.Duration{-time.Second, 0, c.Now() - time.Second} {
				require.NoError(t, a.Set(at))
				require.NoError(t, a.Wait())
			}
		})
	})
	t.Run("can be moved while it is awaited", func(t *testing.T) {
		in(t, func(t *testing.T) {
			a := alarm(t)
			require.NoError(t, a.Set(c.Now()+time.Hour))
			rang := make(chan error, 1)
			go func() { rang <- a.Wait() }()
			require.NoError(t, a.Set(c.Now()+time.Millisecond))
			require.NoError(t, <-rang)
		})
	})
	t.Run("ends the wait when closed", func(t *testing.T) {
		in(t, func(t *testing.T) {
			a := alarm(t)
			require.NoError(t, a.Set(c.Now()+time.Hour))
			ended := make(chan error, 1)
			go func() { ended <- a.Wait() }()
			a.Close()
			require.Error(t, <-ended)
			require.Error(t, a.Set(0))
		})
	})
	t.Run("does not spin for a millisecond", func(t *testing.T) {
		in(t, func(t *testing.T) { require.False(t, c.Spin(time.Millisecond)) })
	})
}

func TestClock_Rate_ScalesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fast := Clock{Rate: 1.1}
		began, at := time.Now(), fast.Now()
		a, err := fast.NewAlarm()
		require.NoError(t, err)
		require.NoError(t, a.Set(at+11*time.Second))
		require.NoError(t, a.Wait())
		require.InDelta(t, 10*time.Second, time.Since(began), 2)
		require.InDelta(t, 11*time.Second, fast.Now()-at, 2)
	})
}
