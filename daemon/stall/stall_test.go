package stall

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWatch_SeveralIOs_OldestIsTheOneThatBeganFirst(t *testing.T) {
	var w Watch
	_, ok := w.Oldest()
	require.False(t, ok)
	w.End(0)
	late, early := IO{Lock: 1, Since: 20}, IO{Lock: 2, Since: 10}
	first := w.Begin(late)
	second := w.Begin(early)
	oldest, ok := w.Oldest()
	require.True(t, ok)
	require.Equal(t, early, oldest)
	require.Empty(t, w.Before(9))
	require.Equal(t, []IO{early}, w.Before(19))
	require.Len(t, w.Before(20), 2)
	w.End(second)
	oldest, _ = w.Oldest()
	require.Equal(t, late, oldest)
	w.End(first)
	_, ok = w.Oldest()
	require.False(t, ok)
}

func TestQuarantine_LossAfterLoss_PauseDoublesUpToTheLimit(t *testing.T) {
	const lease = 10 * time.Second
	var q Quarantine
	why := errors.New("stuck")
	now := time.Duration(1)
	for _, leases := range []time.Duration{1, 2, 4, 8, 16, 32, MaxPause, MaxPause} {
		q.Add(now, 3, lease, why)
		q.Add(now, 3, lease, errors.New("another IO of the same lock"))
		left, because := q.Of(now+100*lease, 3)
		require.Equal(t, leases*lease, left, "it begins with the next lease")
		require.Equal(t, why, because)
		now += 100 * lease
		q.Start(now)
		q.Start(now + 1)
		left, _ = q.Of(now+lease/4, 3)
		require.Equal(t, leases*lease-lease/4, left)
		other, because := q.Of(now, 4)
		require.Zero(t, other)
		require.NoError(t, because)
		now += leases * lease
		left, because = q.Of(now, 3)
		require.Zero(t, left)
		require.NoError(t, because)
	}
}

func TestQuarantine_LossLongAfterThePause_PauseIsShort(t *testing.T) {
	const lease = 10 * time.Second
	var q Quarantine
	now := time.Duration(1)
	for range 3 {
		q.Add(now, 3, lease, errors.New("stuck"))
		q.Start(now)
	}
	left, _ := q.Of(now, 3)
	require.Equal(t, 4*lease, left)
	now += 4*lease + MaxPause*lease
	require.Empty(t, q.Locks(now))
	q.Add(now, 3, lease, errors.New("stuck"))
	require.Equal(t, []int{3}, q.Locks(now))
	left, _ = q.Of(now, 3)
	require.Equal(t, lease, left)
}
