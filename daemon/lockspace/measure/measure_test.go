package measure

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRounds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run := func(count int, limit time.Duration) (n int) {
		for n = range rounds(ctx, count, limit) {
		}
		return n
	}
	require.Equal(t, 5, run(5, time.Hour))
	require.Equal(t, 1, run(5, 0), "no time at all, but once at least")
	begun := time.Now()
	require.Greater(t, run(math.MaxInt, 20*time.Millisecond), 1)
	require.GreaterOrEqual(t, time.Since(begun), 20*time.Millisecond)

	for n := range rounds(ctx, 5, time.Hour) {
		require.Equal(t, 1, n)
		cancel()
	}
	require.Zero(t, run(5, time.Hour))
}
