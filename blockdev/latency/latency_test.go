package latency

import (
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
