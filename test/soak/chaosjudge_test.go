package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestChaosJudge_OverlapAfterOutages_ExceptsWhenNeitherRan: a section of host 1 writes after one of
// host 2 with a greater token. The lease is 1.2 s. bakeryd of host 1 last ran at 10 s, so the lease
// ends between 11 s and 11.2 s.
func TestChaosJudge_OverlapAfterOutages_ExceptsWhenNeitherRan(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		daemon, wrapper outages
		at              time.Duration
		excepted        bool
	}{
		"both run":                           {nil, nil, 13 * s, false},
		"bakeryd alone is stopped":           {outages{{from: 10 * s}}, nil, 13 * s, false},
		"the wrapper alone is dead":          {nil, outages{{from: 9 * s}}, 13 * s, false},
		"both are stopped":                   {outages{{from: 10 * s}}, outages{{from: 10*s + 500*ms}}, 13 * s, true},
		"the wrapper is dead before":         {outages{{from: 10 * s}}, outages{{from: 2 * s}}, 13 * s, true},
		"the wrapper is stopped too late":    {outages{{from: 10 * s}}, outages{{from: 11 * s}}, 13 * s, false},
		"before the lease can have ended":    {outages{{from: 10 * s}}, outages{{from: 10 * s}}, 10*s + 800*ms, false},
		"bakeryd runs again, for a moment":   {outages{{from: 10 * s, to: 12*s + 500*ms}}, outages{{from: 10 * s}}, 13 * s, true},
		"bakeryd runs again, for long":       {outages{{from: 10 * s, to: 11*s + 500*ms}}, outages{{from: 10 * s}}, 13 * s, false},
		"the wrapper runs again, for long":   {outages{{from: 10 * s}}, outages{{from: 10 * s, to: 11*s + 500*ms}}, 13 * s, false},
		"bakeryd ran between two outages":    {outages{{from: 10 * s, to: 11 * s}, {from: 12 * s}}, outages{{from: 10 * s}}, 12*s + 800*ms, false},
		"bakeryd is dead from then on":       {outages{{from: 1 * s, to: 2 * s}, {from: 10 * s}}, outages{{from: 10 * s}}, 20 * s, true},
		"the wrapper ran before, and stands": {outages{{from: 10 * s}}, outages{{from: 3 * s, to: 4 * s}, {from: 10 * s}}, 13 * s, true},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.daemon {
				c.daemon[i].why = "stopped"
			}
			for i := range c.wrapper {
				c.wrapper[i].why = "killed"
			}
			j := newChaosJudge(1200 * ms)
			j.daemons[1] = &c.daemon
			j.sections[1] = &chaosSection{host: 1, wrapper: c.wrapper}
			j.sections[2] = &chaosSection{host: 2}
			j.take(beat{Token: 5, At: 10 * s, Section: 1})
			j.take(beat{Token: 7, At: c.at - ms, Section: 2})
			j.take(beat{Token: 5, At: c.at, Section: 1})
			j.take(beat{Token: 5, At: c.at, Section: 1})
			if c.excepted {
				require.Empty(t, j.found)
				require.Equal(t, []int{1, 2}, []int{j.excepted["bakeryd stopped, wrapper killed"], j.beats})
				return
			}
			require.Len(t, j.found, 1, "a section is reported once")
			require.Contains(t, j.found[0], "two have lock 0 at once")
			require.Empty(t, j.excepted)
		})
	}
}

func TestChaosJudge_OneTokenTwice_Finds(t *testing.T) {
	j := newChaosJudge(time.Second)
	for id, token := range []layout.Ticket{3, 4, 4} {
		j.sections[uint32(id)] = &chaosSection{host: id}
		j.take(beat{Token: token, Section: uint32(id)})
	}
	require.Len(t, j.found, 1)
	require.Contains(t, j.found[0], "token 4 twice")
}

func TestOutages_WrapperEndsAsItContinues_HadDecidedThatBefore(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		lost bool
		at   time.Duration
		want outages
	}{
		"with its command":     {false, 4*s + ms, outages{{from: 3 * s, why: "ended"}}},
		"having stopped it":    {true, 4*s + ms, outages{{from: 3 * s, to: 4 * s, why: "stopped"}, {from: 4*s + ms, why: "ended"}}},
		"some time after that": {false, 5 * s, outages{{from: 3 * s, to: 4 * s, why: "stopped"}, {from: 5 * s, why: "ended"}}},
	} {
		o := outages{{from: 3 * s, to: 4 * s, why: "stopped"}}
		o.over(test.lost, test.at)
		require.Equal(t, test.want, o, name)
	}
}

func TestOutages_EndWithoutBegin_IsIgnored(t *testing.T) {
	var o outages
	o.end(1)
	o.begin("stopped", 2)
	o.begin("killed", 3) // stopped, then killed
	o.end(4)
	o.end(5)
	require.Equal(t, outages{{2, 4, "stopped"}}, o)
}
