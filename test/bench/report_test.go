package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func report(t *testing.T, r *results) string {
	t.Helper()
	var b bytes.Buffer
	r.write(&b)
	return b.String()
}

func fixture(t *testing.T) *results {
	t.Helper()
	r, err := load("testdata")
	require.NoError(t, err)
	return r
}

func TestGoals(t *testing.T) {
	got := map[string]*goal{}
	for _, g := range fixture(t).goals() {
		got[g.what] = g
	}
	require.Len(t, got, 12)
	for begins, want := range map[string]struct {
		measured string
		reached  bool
	}{
		"what bakeryd adds":    {"0.56 x: 54 µs on top of 268 µs; the toy 96 µs", true},
		"the same":             {"1.07 x", false},
		"against sanlock":      {"14.9 x faster", false},
		"against etcd":         {"3.0 x faster", true},
		"hand-over":            {"1.40 x", true},
		"local hand-off":       {"0.60 x: 10,900 a second", false},
		"re-acquire":           {"1.50 x: 147 µs; 99 % of the grants without IO", true},
		"`bakeryctl lock":      {"3.1 ms more", false},
		"start of":             {"1.50 x", true},
		"lockspace formatted":  {"", false},
		"idle bakeryd, res":    {"17.0 MiB", false},
		"idle bakeryd, of a c": {"0.050 %", true},
	} {
		n := 0
		for what, g := range got {
			if strings.HasPrefix(what, begins) {
				n++
				require.Equal(t, want.measured, g.measured, what)
				require.Equal(t, want.reached, g.reached, what)
			}
		}
		require.Equal(t, 1, n, begins)
	}
}

func TestSlowerThanEtcd(t *testing.T) {
	r := &results{rivals: &rivalry{Series: []*series{{Name: "bakeryd", Ratio: 1}, {Name: "etcd", Ratio: .5}}}}
	g := r.goals()[3]
	require.Equal(t, "2.0 x slower", g.measured)
	require.False(t, g.reached)
}

func TestReport(t *testing.T) {
	text := report(t, fixture(t))
	for _, want := range []string{
		"| against etcd, one node, same disk | at least 3 x faster | 3.0 x faster | yes |",
		"| lockspace formatted for 2,000 hosts with 3 joined, against one formatted for 3 | at most 1.05 x |  | not measured |",
		"| CPU | Example 9000, 4 cores, a virtual machine |",
		"| uncontended, through bakeryd | 322 µs | 380 µs | 640 µs | 1,500 µs | 9,400 µs | 5,000 | 268 µs | 1.20 |",
		"| uncontended, in process | 290 µs | 330 µs | 560 µs | 1,300 µs | 3,100 µs | 5,000 | 271 µs | 1.07 |",
		"| the toy: two round trips | 98 µs | 120 µs | 205 µs | 410 µs | 2,000 µs | 5,000 |  |  |",
		"In the median turn bakeryd adds 54 µs to the floor: 0.56 times the 96 µs of the toy.",
		"in 1.50 times the 98 µs of the toy. 7,920 of its 8,000 grants were no request to the disk.",
		"| 8 | 10,900 | 18,240 | 0.60 | 660 µs | 1,380 µs | 2,690 µs | 420 µs | 700 µs | 1,200 µs |",
		"8 clients in the process of a host, without a socket: 64,000 a second.",
		"| `bakeryctl lock`, until its request arrives | 1,800 µs | 2,900 µs | 4,100 µs | 480 |",
		"Skipped: wrapper: there is no flock(1).",
		"| sanlock, libsanlock | 3,230 µs | 9,000 µs | 18,000 µs | 3,000 µs | 300 µs | 4,000 | 14.90 x |",
		"cannot set the limits for memlock 1",
		"sanlock took 21.0 s to join",
		"Not measured: the disk has no room for it.",
		"| resident | 17.0 MiB, 7.0 of them anonymous | at most 16 MiB |",
		"| futex | 4.5 |",
		"| requests to the device per L/6 | pwrite64 1.1, pread64 1.0 | one write, one read |",
		"| 102 | 1 read, 51 KiB, 2 writes; 31 µs | 1 read, 51 KiB, 2 writes; 33 µs |",
		"Slope: 512 bytes read and 0.20 µs for each further host; 0.000 bytes for each further lock.",
		"| 2,000 | 1 | 2 | 0 | 80 µs | 1.25 | 190 µs | 2.90 |",
		"10 KiB for each further lock that was used among 2 hosts",
		"| 2 | nothing | 206 requests, 202 KiB |",
		"| 102 | 0.2 ms, 256 KiB | refused |",
		"With 102 hosts and 101 locks: reading the lockspace takes longer than 20s.",
		"| 2 | 140 | 120 KiB | 90 | 45 KiB | 50.0 | 450 µs |",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "Trial runs")
	require.NotContains(t, text, "NaN")
	require.NotContains(t, text, "%!")
}

// TestReportOfAnything: the report can be written from any subset of parts, and says that the
// others are missing.
func TestReportOfAnything(t *testing.T) {
	r, err := load(t.TempDir())
	require.NoError(t, err)
	require.Equal(t, len(parts), strings.Count(report(t, r), "Not measured."))
	require.Empty(t, r.plots())
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			dir := t.TempDir()
			b, err := os.ReadFile("testdata/" + p.name + ".json")
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(dir+"/"+p.name+".json", b, 0o600))
			r, err := load(dir)
			require.NoError(t, err)
			require.Equal(t, len(parts)-1, strings.Count(report(t, r), "Not measured."))
		})
	}
}

// TestReportOfBenchThatLeftAllOut: skipped measurements are absent from the JSON.
func TestReportOfBenchThatLeftAllOut(t *testing.T) {
	dir := t.TempDir()
	result := json.RawMessage(`{"device": "x", "stride": 512, "hosts": 2, "skipped": [{"name": "handover", "reason": "no second host."}]}`)
	require.NoError(t, kept{Part: "bench", At: time.Now(), Quick: true, Result: result}.write(dir))
	r, err := load(dir)
	require.NoError(t, err)
	text := report(t, r)
	require.Contains(t, text, "Skipped: handover: no second host.\n")
	require.Contains(t, text, "Trial runs, whose figures mean nothing: bench.")
	require.Empty(t, r.goals()[0].measured)
}

// TestLoadTellsWhatIsWrong: a file that cannot be read is an error, not a part that was not
// measured.
func TestLoadTellsWhatIsWrong(t *testing.T) {
	for _, bad := range []string{"{", `{"part": "bench", "result": 5}`, `{"part": "other", "result": {}}`} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(dir+"/bench.json", []byte(bad), 0o600))
		_, err := load(dir)
		require.ErrorContains(t, err, "bench.json", bad)
	}
}

func TestPlots(t *testing.T) {
	plots := fixture(t).plots()
	text := report(t, fixture(t))
	require.Len(t, plots, strings.Count(text, ".svg)"))
	for _, f := range plots {
		require.Contains(t, text, "("+f.File+")")
		require.NotEmpty(t, f.XTicks)
		require.NotEmpty(t, f.YTicks)
		for _, l := range f.Lines {
			require.NotEmpty(t, l.Points, "%s: %s", f.File, l.Name)
			for _, p := range l.Points {
				require.LessOrEqual(t, f.YTicks[0].At, p[1])
				require.GreaterOrEqual(t, f.YTicks[len(f.YTicks)-1].At, p[1])
			}
		}
	}
}

func TestCompete(t *testing.T) {
	var order []string
	times := map[string][]time.Duration{"a": {1000, 100, 120}, "b": {3000, 200, 180}} // microseconds: a busy first round
	contenderOf := func(name string) contender {
		return contender{name, func() ([]turn, error) {
			d := times[name][0] * time.Microsecond
			times[name] = times[name][1:]
			order = append(order, name)
			return []turn{{lock: d / 4 * 3, unlock: d / 4}}, nil
		}}
	}
	got, err := compete(3, []contender{contenderOf("a"), contenderOf("b")})
	require.NoError(t, err)
	require.Equal(t, "abbaab", strings.Join(order, ""), "the order changes")
	require.Equal(t, 120., got[0].P50US)
	require.Equal(t, 200., got[1].P50US)
	require.Equal(t, 2., got[1].Ratio, "the median of 3, 2 and 1.5")
	require.Equal(t, 90., got[0].LockUS)
	require.Equal(t, 3000., got[1].P999US, "of all rounds")
	require.Equal(t, 3, got[1].Rounds)

	_, err = compete(1, []contender{{"broken", func() ([]turn, error) { return nil, fmt.Errorf("no") }}})
	require.ErrorContains(t, err, "broken: no")
}

func TestReadTurns(t *testing.T) {
	got, err := readTurns(strings.NewReader("1500 20\n3 4\n"))
	require.NoError(t, err)
	require.Equal(t, []turn{{1500, 20}, {3, 4}}, got)
	for _, bad := range []string{"", "x 1\n", "1\n"} {
		_, err := readTurns(strings.NewReader(bad))
		require.Error(t, err, "%q", bad)
	}
}

func TestQuantileAndMiddle(t *testing.T) {
	times := []time.Duration{5, 1, 4, 2, 3}
	require.Equal(t, time.Duration(3), quantile(times, .5))
	require.Equal(t, time.Duration(5), quantile(times, .99))
	require.Equal(t, 2.5, middle([]float64{4, 1, 2, 3}))
	require.Zero(t, middle(nil))
}
