package probe

import (
	"encoding/json"
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
