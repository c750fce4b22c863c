package latency

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecorder(t *testing.T) {
	var r Recorder
	require.Zero(t, r.Count()+int64(r.At(50)+r.Mean()+r.Max()))
	for i := 1; i <= 1000; i++ {
		r.Add(time.Duration(i) * time.Millisecond)
	}
	require.EqualValues(t, 1000, r.Count())
	require.InEpsilon(t, 500*time.Millisecond, r.At(50), 0.01)
	require.InEpsilon(t, 990*time.Millisecond, r.At(99), 0.01)
	require.InEpsilon(t, time.Second, r.At(99.9), 0.01)
	require.Equal(t, time.Second, r.At(100), "not above the maximum")
	require.Equal(t, 500500*time.Microsecond, r.Mean())
	kept := r.Clone()
	r.Add(2*Longest + 1)
	require.Equal(t, 2*Longest+1, r.Max(), "exact beyond the quantiles")
	r.Add(-1)
	require.EqualValues(t, 1002, r.Count())
	require.EqualValues(t, 1000, kept.Count())
	require.Equal(t, kept.Sum()+2*Longest+1, r.Sum())
}

func TestSummary(t *testing.T) {
	var s Recorder
	require.Zero(t, s.Summary())
	for i := 1; i <= 1000; i++ {
		s.Add(time.Duration(i) * time.Millisecond)
	}
	s.Add(2 * time.Hour)
	l := s.Summary()
	require.Equal(t, 1001, l.Count)
	require.InEpsilon(t, 500_000, l.P50, 0.01)
	require.InEpsilon(t, 900_000, l.P90, 0.01)
	require.InEpsilon(t, 990_000, l.P99, 0.01)
	require.InEpsilon(t, 1_000_000, l.P999, 0.01)
	require.EqualValues(t, 2*3600*1_000_000, l.Most, "exact, whatever the quantiles can tell")

	text, err := json.Marshal(Summary{Count: 3, P50: 1, P999: 1_000_000, Most: 2_000_000})
	require.NoError(t, err)
	require.JSONEq(t, `{"count":3,"p50_us":1,"p90_us":0,"p99_us":0,"p99_9_us":1000000,"max_us":2000000}`, string(text))
}
