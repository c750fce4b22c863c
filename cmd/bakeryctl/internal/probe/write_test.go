package probe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev/latency"
)

func TestJudgeLatency(t *testing.T) {
	for _, c := range []struct {
		worst, lease time.Duration
		want         Verdict
		remedy       string
	}{
		{10 * time.Millisecond, 0, OK, ""},
		{2 * time.Second, 0, OK, "bakeryctl format --lease 45s"},
		{10 * time.Millisecond, time.Second, OK, ""},
		{200 * time.Millisecond, time.Second, Warning, ""},
		{2 * time.Second, time.Second, Unfit, "bakeryctl format --lease 45s"},
		{time.Hour, 0, Unfit, "find out why the device hangs"},
	} {
		var r Report
		r.judgeLatency(latency.Summary{Count: 1000, P999: (c.worst / 4).Microseconds(), Most: c.worst.Microseconds()}, c.lease)
		f := r.Findings[0]
		require.Equal(t, c.want, f.Verdict, "%+v", f)
		if c.remedy != "" {
			require.Equal(t, c.remedy, f.Remedy)
		}
	}
}
