package report

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestTimes_Rounding_NeverPromisesTooEarly(t *testing.T) {
	for _, c := range []struct {
		of            time.Duration
		elapsed, left string
	}{
		{-time.Second, "0 s", "0 s"},
		{0, "0 s", "0 s"},
		{1, "0 s", "1 s"},
		{999 * time.Millisecond, "0 s", "1 s"},
		{time.Second, "1 s", "1 s"},
		{14_100 * time.Millisecond, "14 s", "15 s"},
		{10*time.Minute - 1, "599 s", "600 s"},
		{10 * time.Minute, "10 min", "10 min"},
		{10*time.Minute + 1, "10 min", "11 min"},
		{10*time.Hour - 1, "599 min", "600 min"},
		{72*time.Hour + 1, "72 h", "73 h"},
		{math.MaxInt64, "2562047 h", "2562048 h"},
	} {
		require.Equal(t, c.elapsed, Elapsed(c.of), c.of)
		require.Equal(t, c.left, Left(c.of), c.of)
	}
}

// waitingFor returns a report in which host 3 is silent, and locks wait for it in all ways.
func waitingFor(policy layout.Policy, silent Host) *Report {
	r := stuckReport(silent, Lock{Name: "held", Number: 1, Holders: []Holder{{Host: 3, HostName: "db3"}}}).in(policy)
	first, second := Queued{Host: 3, HostName: "db3", Phase: layout.Waiting}, Queued{Host: 1, HostName: "db1", Phase: layout.Waiting}
	r.Locks = append(r.Locks, Lock{Name: "behind", Number: 2, Permits: 1, Queue: []Queued{first, second}})
	r.Judge()
	return r
}

// TestReport_SilentHost_HasOneNumberForEachEvent: all texts about a silent host have the same
// times, also when the report ages.
func TestReport_SilentHost_HasOneNumberForEachEvent(t *testing.T) {
	failing := silentHost(71_200, 0)
	failing.FailedFences, failing.NextFenceMS = 1, new(int64(4100))
	for _, c := range []struct {
		name   string
		report *Report
		aged   []string // after 0, 900, 5000 and 60,000 ms
	}{
		{"policy lease", waitingFor(layout.PolicyLease, silentHost(21_200, 14_100)), []string{"no renewal for 21 s, dead in 15 s",
			"no renewal for 22 s, dead in 14 s", "no renewal for 26 s, dead in 10 s", "no renewal for 81 s, being declared dead"}},
		{"policy fence", waitingFor(layout.PolicyFence, silentHost(21_200, 14_100)), []string{"no renewal for 21 s, fenced in 15 s",
			"no renewal for 22 s, fenced in 14 s", "no renewal for 26 s, fenced in 10 s", "no renewal for 81 s, being fenced"}},
		{"fencing fails", waitingFor(layout.PolicyFence, failing), []string{"no renewal for 71 s, being fenced, 1 attempt has failed, the next one begins in 5 s",
			"no renewal for 72 s, being fenced, 1 attempt has failed, the next one begins in 4 s",
			"no renewal for 76 s, being fenced, 1 attempt has failed, the next one begins", "no renewal for 131 s, being fenced, 1 attempt has failed, the next one begins"}},
		{"policy manual", waitingFor(layout.PolicyManual, silentHost(21_200, -1)), []string{"no renewal for 21 s, until it is back or evicted",
			"no renewal for 22 s, until it is back or evicted", "no renewal for 26 s, until it is back or evicted", "no renewal for 81 s, until it is back or evicted"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.report
			require.Len(t, r.Problems, 3)
			for i, age := range []time.Duration{0, 900 * time.Millisecond, 5 * time.Second, time.Minute} {
				want := c.aged[i]
				require.Equal(t, want, r.Hosts[2].Aged(age).Silence, age)
				require.Equal(t, want, r.Problems[0].Aged(age).Why, age)
				for k, l := range r.Locks {
					_, outcome, _ := strings.Cut(want, " s, ")
					require.Regexp(t, ", silent,? "+outcome, Aged(l.Stuck, l.Times, age), age)
					require.Equal(t, Aged(l.Stuck, l.Times, age), r.Problems[1+k].Aged(age).Why)
				}
			}
			require.Equal(t, c.aged[0], r.Hosts[2].Silence, "the report itself is unchanged")
		})
	}
}

// TestReport_EveryTimeInAProblem_Moves: a number with a unit that is not in Times would stand still
// on a page.
func TestReport_EveryTimeInAProblem_Moves(t *testing.T) {
	r := stuckReport(silentHost(21_200, 14_100), Lock{Name: "x", Number: 1, Holders: []Holder{{Host: 3, HostName: "db3"}}})
	r.ThisHost.LeaseLeftMS, r.ThisHost.IO = 11_100, &IO{OldestMS: 9_300}
	r.Judge()
	r.AddReadError("IO hangs", "", 9*time.Second)
	require.Len(t, r.Problems, 5)
	number := regexp.MustCompile(`\d+ s\b`)
	for _, p := range r.Problems {
		old := p.Aged(0)
		require.Equal(t, p, old)
		aged := p.Aged(3 * time.Second)
		before := number.FindAllString(p.Text+" "+p.Why+" "+p.Remedy, -1)
		after := number.FindAllString(aged.Text+" "+aged.Why+" "+aged.Remedy, -1)
		require.NotEmpty(t, before)
		require.Len(t, after, len(before))
		for i := range before {
			require.NotEqual(t, before[i], after[i], "%v", p)
		}
	}
}

func TestAged_HostileName_KeepsIt(t *testing.T) {
	r := stuckReport(silentHost(21_200, 14_100), Lock{Name: "x", Number: 1, Holders: []Holder{{Host: 3, HostName: "dead in 15 s"}}})
	r.Judge()
	l := r.Locks[0]
	require.Equal(t, `held by host 3 ("dead in 15 s"), silent, dead in 10 s`, Aged(l.Stuck, l.Times, 5*time.Second))
}

func TestProblem_AgedWithAHostileName_KeepsIt(t *testing.T) {
	for _, name := range []string{"no renewal for 21 s", "dead in 15 s"} {
		r := stuckReport(silentHost(21_200, 14_100), Lock{Name: "x"})
		r.Hosts[2].Name = name
		r.Judge()
		p := r.Problems[0].Aged(5 * time.Second)
		require.Equal(t, fmt.Sprintf("error silent: host 3 (%q) is silent: no renewal for 26 s, dead in 10 s -> "+
			strings.ReplaceAll(wait, "evict 2", "evict 3"), name), p.String())
	}
}
