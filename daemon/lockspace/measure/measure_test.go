package measure

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
