package probe

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStopwatch(t *testing.T) {
	var s Stopwatch
	require.Zero(t, s.Latency())
	for i := 1; i <= 1000; i++ {
		s.Add(time.Duration(i) * time.Millisecond)
	}
	s.Add(2 * time.Hour)
	l := s.Latency()
	require.Equal(t, 1001, l.Count)
	require.InEpsilon(t, 500_000, l.P50, 0.01)
	require.InEpsilon(t, 900_000, l.P90, 0.01)
	require.InEpsilon(t, 990_000, l.P99, 0.01)
	require.InEpsilon(t, 1_000_000, l.P999, 0.01)
	require.EqualValues(t, 2*3600*1_000_000, l.Most, "exact, whatever the quantiles can tell")

	text, err := json.Marshal(Latency{Count: 3, P50: 1, P999: 1_000_000, Most: 2_000_000})
	require.NoError(t, err)
	require.JSONEq(t, `{"count":3,"p50_us":1,"p90_us":0,"p99_us":0,"p99_9_us":1000000,"max_us":2000000}`, string(text))
}

func TestEffort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	count := func() error { n++; return nil }
	require.NoError(t, Effort{Count: 5, Limit: time.Hour}.Repeat(ctx, count))
	require.Equal(t, 5, n)

	n = 0
	require.NoError(t, Effort{Count: 5}.Repeat(ctx, count), "no time at all")
	require.Equal(t, 1, n, "once at least")

	n = 0
	begun := time.Now()
	require.NoError(t, Effort{Count: 1, For: 20 * time.Millisecond}.Repeat(ctx, count))
	require.GreaterOrEqual(t, time.Since(begun), 20*time.Millisecond)
	require.Greater(t, n, 1)

	boom := errors.New("boom")
	require.ErrorIs(t, Effort{Count: 5, Limit: time.Hour}.Repeat(ctx, func() error { return boom }), boom)
	require.ErrorIs(t, Effort{Count: 5, Limit: time.Hour}.Repeat(ctx, func() error { cancel(); return nil }), context.Canceled)
}
