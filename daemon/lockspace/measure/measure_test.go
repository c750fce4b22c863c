package measure

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev/probe"
)

func TestJudgeLatency(t *testing.T) {
	measured := func(worst time.Duration) *Measurement {
		return &Measurement{Write: probe.Latency{Count: 1000, P999: (worst / 4).Microseconds(), Most: worst.Microseconds()}}
	}
	for _, c := range []struct {
		worst, lease time.Duration
		want         probe.Verdict
		remedy       string
	}{
		{10 * time.Millisecond, 0, probe.OK, ""},
		{2 * time.Second, 0, probe.OK, "bakeryctl format --lease 45s"},
		{10 * time.Millisecond, time.Second, probe.OK, ""},
		{200 * time.Millisecond, time.Second, probe.Warning, ""},
		{2 * time.Second, time.Second, probe.Unfit, "bakeryctl format --lease 45s"},
		{time.Hour, 0, probe.Unfit, "find out why the device hangs"},
	} {
		f := measured(c.worst).JudgeLatency(c.lease)
		require.Equal(t, c.want, f.Verdict, "%+v", f)
		if c.remedy != "" {
			require.Equal(t, c.remedy, f.Remedy)
		}
	}
}

func TestRepeat(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	count := func() error { n++; return nil }
	require.NoError(t, repeat(ctx, 5, time.Hour, count))
	require.Equal(t, 5, n)

	n = 0
	require.NoError(t, repeat(ctx, 5, 0, count), "no time at all")
	require.Equal(t, 1, n, "once at least")

	n = 0
	begun := time.Now()
	require.NoError(t, repeat(ctx, math.MaxInt, 20*time.Millisecond, count))
	require.GreaterOrEqual(t, time.Since(begun), 20*time.Millisecond)
	require.Greater(t, n, 1)

	boom := errors.New("boom")
	require.ErrorIs(t, repeat(ctx, 5, time.Hour, func() error { return boom }), boom)
	require.ErrorIs(t, repeat(ctx, 5, time.Hour, func() error { cancel(); return nil }), context.Canceled)
}
