package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func number(n uint64) *uint64 { return &n }

// diaryOf has three sections, one after the other, and the second was killed before it wrote.
func diaryOf() []entry {
	return []entry{
		{Section: "a", Lock: "hot", Host: 1, Token: layout.MakeTicket(10, 1), Since: 10, Read: number(0), Wrote: number(1), End: 20, How: endWell},
		{Section: "b", Lock: "hot", Host: 2, Token: layout.MakeTicket(20, 2), Since: 30, Read: number(1)},
		{Section: "c", Lock: "hot", Host: 1, Token: layout.MakeTicket(30, 1), Since: 50, Read: number(1), Wrote: number(2), End: 60, How: endWell},
	}
}

func never(int, time.Duration, time.Duration) bool { return false }

func TestDiaries(t *testing.T) {
	for name, c := range map[string]struct {
		change func(all []entry) []entry
		found  string // empty: nothing
	}{
		"good":               {change: func(all []entry) []entry { return all }},
		"b wrote, after all": {change: func(all []entry) []entry { all[2].Read, all[2].Wrote = number(2), number(3); return all }},
		"a lost update":      {change: func(all []entry) []entry { all[2].Read, all[2].Wrote = number(0), number(1); return all }, found: "an update of \"hot\" was lost"},
		"a stray update":     {change: func(all []entry) []entry { all[2].Read, all[2].Wrote = number(3), number(4); return all }, found: "an update of \"hot\" was lost"},
		"two at once":        {change: func(all []entry) []entry { all[0].End = 31; return all }, found: "two had \"hot\" at once"},
		"past its deadline":  {change: func(all []entry) []entry { all[0].End, all[0].Deadline = 31, 25; return all }},
		"a token twice":      {change: func(all []entry) []entry { all[1].Token = all[0].Token; return all }, found: "of \"hot\" twice"},
		"a token back":       {change: func(all []entry) []entry { all[2].Token = layout.MakeTicket(5, 1); return all }, found: "\"hot\""},
		"refused":            {change: func(all []entry) []entry { all[1].How, all[1].Read = endRefused, number(2); return all }},
		"shared": {change: func(all []entry) []entry {
			all[0].Mode, all[2].Read = layout.Shared, number(0)
			all[1].Read = number(0)
			all[1].How = endWell
			return all
		}},
	} {
		t.Run(name, func(t *testing.T) {
			found := checkDiaries(c.change(diaryOf()), never)
			if c.found == "" {
				require.Empty(t, found)
				return
			}
			require.NotEmpty(t, found)
			require.Contains(t, found[0], c.found)
		})
	}
}

// TestReadDiaries: the last line of a section counts, and half a line is what a killed one leaves.
func TestReadDiaries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "diary")
	d, err := openDiary(path)
	require.NoError(t, err)
	all := diaryOf()
	begun := all[0]
	begun.Wrote, begun.End, begun.How = nil, 0, ""
	require.NoError(t, d.write(begun))
	require.NoError(t, d.write(entry{Failed: "busy"}))
	require.NoError(t, d.write(all[0]))
	_, err = d.file.WriteString(`{"section":"b","lock":"h`)
	require.NoError(t, err)
	parts, failed, err := readDiaries([]string{path})
	require.NoError(t, err)
	require.Equal(t, all[:1], parts)
	require.Equal(t, map[string]int{"busy": 1}, failed)
	require.NoError(t, os.WriteFile(path, []byte("{\"section\":7}\n"), 0o600))
	_, _, err = readDiaries([]string{path})
	require.Error(t, err)
}

func TestLeaks(t *testing.T) {
	small := footprint{RSS: 20000, Files: 20, Goroutines: 30}
	require.Empty(t, (&leakReport{Old: small, Fresh: small, EarlyRSS: 20000, LateRSS: 21000}).found())
	for name, l := range map[string]leakReport{
		"goroutines": {Old: footprint{Goroutines: 50}, Fresh: small},
		"files":      {Old: footprint{Files: 50}, Fresh: small},
		"memory":     {Old: small, Fresh: small, EarlyRSS: 20000, LateRSS: 60000},
	} {
		require.Len(t, l.found(), 1, name)
	}
}
