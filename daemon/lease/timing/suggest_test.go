package timing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestSuggest(t *testing.T) {
	const usual = 30 * time.Second
	for _, c := range []struct{ p999, worst, least, choose time.Duration }{
		{0, 0, time.Second, usual},
		{time.Millisecond, 50 * time.Millisecond, time.Second, usual},
		{time.Millisecond, 51 * time.Millisecond, 2 * time.Second, usual},
		{30 * time.Millisecond, 31 * time.Millisecond, 2 * time.Second, usual},
		{time.Second, 1500 * time.Millisecond, 45 * time.Second, 45 * time.Second},
		{time.Second, 3 * time.Second, time.Minute, time.Minute},
		{time.Second, 3 * time.Minute, layout.MaxLease, layout.MaxLease},
	} {
		least, choose, ok := Suggest(c.p999, c.worst, usual)
		require.True(t, ok)
		require.Equal(t, c.least, least, "%v", c)
		require.Equal(t, c.choose, choose, "%v", c)
		require.GreaterOrEqual(t, Times{Lease: least}.Budget(), c.worst)
		require.LessOrEqual(t, choose, layout.MaxLease)
	}
	_, _, ok := Suggest(0, 3*time.Minute+1, usual)
	require.False(t, ok)
}
