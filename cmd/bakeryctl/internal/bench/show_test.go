package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev/latency"
)

// measured returns an example result.
func measured(t *testing.T) *Report {
	t.Helper()
	var r Report
	require.NoError(t, json.Unmarshal([]byte(`{"device": "/dev/mapper/locks", "lockspace": "prod", "stride": 4096, "hosts": 16, "highest": 5,
		"handover": {"count": 790, "p50_us": 432, "p99_us": 1200, "p999_us": 12345, "floor_p50_us": 306, "ratio": 1.412, "between": "A and B", "hold_us": 2000},
		"reacquire": {"count": 3040, "p50_us": 110, "p99_us": 210, "p999_us": 1400, "without_io": 3020, "toy_p50_us": 98, "ratio": 1.122},
		"handoff": {"per_second": 7400, "in_process_per_second": 61000, "clients": 8, "ratio": 0.407, "by_clients": [
			{"clients": 1, "per_second": 8100, "toy_per_second": 10200, "ratio": 0.794, "wait": {"p50_us": 50, "p99_us": 130, "p999_us": 900}},
			{"clients": 8, "per_second": 7400, "toy_per_second": 18200, "ratio": 0.407, "wait": {"p50_us": 940, "p99_us": 3380, "p999_us": 14690}}]},
		"wrapper": {"p50_us": 4100, "p99_us": 5200, "p999_us": 9800, "true_p50_us": 1100, "flock_p50_us": 2000, "over_flock_us": 2100, "count": 300},
		"skipped": [{"name": "in_process", "reason": "no id"}]}`), &r))
	return &r
}

func TestShowBench(t *testing.T) {
	var out bytes.Buffer
	r := measured(t)
	require.NoError(t, Show(&out, r))
	require.Equal(t, `lockspace prod on /dev/mapper/locks
  records 4096 bytes apart, a read covers 5 slots of 16

                         COUNT  P50     P99      P99.9  FLOOR  RATIO
re-acquire, by bakeryd   3040   110 us  210 us   1.40 ms
hand-over between hosts  790    432 us  1.20 ms  12.3 ms  306 us  1.41

local hand-off         PER SECOND  TOY    RATIO  WAIT P50  P99      P99.9
1 client               8100        10200  0.79   50 us     130 us   900 us
8 clients              7400        18200  0.41   940 us    3.38 ms  14.7 ms
8 clients, in process  61000

re-acquire  1.12 x the toy; 3020 of 3040 grants without a request to the disk
hand-over   A and B, each holds it for 2.00 ms
wrapper     bakeryctl lock NAME -- true: 4.10 ms, P99 5.20 ms, P99.9 9.80 ms
            2.10 ms more than flock FILE true, 2.00 ms; true alone: 1.10 ms

skipped in_process: no id
`, out.String())
}

// The floor and the lock have different times.
func TestShowHistogram(t *testing.T) {
	least, lock := latency.Recorder{Figures: 3}, latency.Recorder{Figures: 3}
	for i := range 1000 {
		least.Add(time.Duration(200+i%100) * time.Microsecond)
		lock.Add(time.Duration(300+i%200) * time.Microsecond)
	}
	lock.Add(time.Second)
	var out bytes.Buffer
	showHistogram(&out, &Report{Floor: &floor{times: &least}, Uncontended: &socketTimes{lockTimes: lockTimes{compared: compared{times: &lock}}}})
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")[1:]
	require.Regexp(t, `^ +floor +uncontended, by bakeryd$`, lines[0])
	require.LessOrEqual(t, len(lines), barRows+2)
	require.Regexp(t, `^ +longer  `, lines[len(lines)-1])
	longest := 0
	for _, line := range lines {
		require.LessOrEqual(t, len(line), 80)
		longest = max(longest, strings.Count(line, "#"))
	}
	require.GreaterOrEqual(t, longest, barWidth)
	require.NotContains(t, lines[1], "  0.1%", "the scale starts at the floor")

	// Equal times need one row, and nothing is divided by zero.
	same := latency.Recorder{Figures: 3}
	same.Add(250 * time.Microsecond)
	out.Reset()
	showHistogram(&out, &Report{Floor: &floor{times: &same}, InProcess: &lockTimes{compared: compared{times: &same}}})
	require.Contains(t, out.String(), "100.0% ######################")
	require.Contains(t, out.String(), "uncontended, in process")
}
