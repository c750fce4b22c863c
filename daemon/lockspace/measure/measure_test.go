package measure

import (
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
