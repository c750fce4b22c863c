package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/history"
)

// change returns the part of a section that follows e in another mode.
func change(e entry, mode layout.Mode, asked, since, end time.Duration) entry {
	e.Mode, e.Asked, e.Since, e.End, e.How = mode, asked, since, end, endWell
	return e
}

func TestCheckSectionLogs_MadeUp(t *testing.T) {
	x, r := layout.Exclusive, layout.Shared
	for name, c := range map[string]struct {
		change func(all []entry) []entry
		wrong  bool
		still  bool
	}{
		"as it was":               {change: func(all []entry) []entry { return all }},
		"two at once":             {change: func(all []entry) []entry { all[0].End = 31; return all }, wrong: true},
		"past its deadline":       {change: func(all []entry) []entry { all[0].End, all[0].Deadline = 31, 25; return all }},
		"in time":                 {change: func(all []entry) []entry { all[0].End, all[0].Deadline = 31, 31; return all }, wrong: true},
		"a host that stood still": {still: true, change: func(all []entry) []entry { all[0].End = 31; return all }},
		"a killed one inside":     {change: func(all []entry) []entry { all[1].Since = 15; return all }, wrong: true},
		"one that was not let in": {change: func(all []entry) []entry { all[1].Since, all[1].Entered = 15, false; return all }, wrong: true},
		"one that was refused at once": {change: func(all []entry) []entry {
			all[1].Since, all[1].Entered, all[1].End, all[1].How = 15, false, 16, endRefused
			return all
		}, wrong: true},
		"a token twice":             {change: func(all []entry) []entry { all[1].Token = all[0].Token; return all }, wrong: true},
		"a token back":              {change: func(all []entry) []entry { all[2].Token = layout.MakeTicket(5, 1); return all }, wrong: true},
		"readers":                   {change: func(all []entry) []entry { all[0].Mode, all[1].Mode, all[0].End = r, r, 40; return all }},
		"a reader next to a writer": {change: func(all []entry) []entry { all[0].Mode, all[0].End = r, 40; return all }, wrong: true},
		"a downgrade": {change: func(all []entry) []entry {
			all[1].Mode = r
			return append(all, change(all[0], r, 20, 21, 40))
		}},
		"an upgrade next to a reader": {change: func(all []entry) []entry {
			all[1].Mode, all[1].End, all[1].How, all[0].Mode = r, 45, endWell, r
			return append(all, change(all[0], x, 32, 35, 40))
		}, wrong: true},
		"two permits": {change: func(all []entry) []entry { return of("semaphore", all) }},
		"two permits, three inside": {change: func(all []entry) []entry {
			all[0].End, all[1].End, all[1].How, all[2].Host = 55, 55, endWell, 3
			return of("semaphore", all)
		}, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			still := func(host int, _, to time.Duration) bool { return c.still && host == 1 && to < 50 }
			checked, found := checkSectionLogs(c.change(sectionLogOf()), still, func(*history.History) string { return "a page" })
			require.Equal(t, 1, checked.Windows)
			require.Zero(t, checked.Undecided)
			require.Equal(t, c.wrong, len(found) > 0, found)
		})
	}
}

func of(lock string, all []entry) []entry {
	for i := range all {
		all[i].Lock = lock
	}
	return all
}
