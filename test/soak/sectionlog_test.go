package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// sectionLogOf returns a log of three sections, of which the second was killed.
func sectionLogOf() []entry {
	return []entry{
		{Section: "a", Lock: "hot", Host: 1, Token: layout.MakeTicket(10, 1), Asked: 1, Since: 10, Entered: true, End: 20, How: endWell},
		{Section: "b", Lock: "hot", Host: 2, Token: layout.MakeTicket(20, 2), Asked: 1, Since: 30, Entered: true},
		{Section: "c", Lock: "hot", Host: 1, Token: layout.MakeTicket(30, 1), Asked: 31, Since: 50, Entered: true, End: 60, How: endWell},
	}
}

// TestReadSectionLogs: a section's last line counts, and the incomplete line of a killed writer is
// skipped.
func TestReadSectionLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "diary")
	d, err := openSectionLog(path)
	require.NoError(t, err)
	all := sectionLogOf()
	begun := all[0]
	begun.Entered, begun.End, begun.How = false, 0, ""
	require.NoError(t, d.write(begun))
	require.NoError(t, d.write(entry{Failed: "busy"}))
	require.NoError(t, d.write(all[0]))
	_, err = d.file.WriteString(`{"section":"b","lock":"h`)
	require.NoError(t, err)
	parts, failed, err := readSectionLogs([]string{path})
	require.NoError(t, err)
	require.Equal(t, all[:1], parts)
	require.Equal(t, map[string]int{"busy": 1}, failed)
	require.NoError(t, os.WriteFile(path, []byte("{\"section\":7}\n"), 0o600))
	_, _, err = readSectionLogs([]string{path})
	require.Error(t, err)
}

func TestLeaks(t *testing.T) {
	small := footprint{RSS: 20000, Files: 20, Goroutines: 30}
	require.Empty(t, (&leakReport{Old: small, Fresh: small, EarlyRSS: 20000, LateRSS: 21000}).found())
	for name, l := range map[string]leakReport{
		"goroutines": {Old: footprint{Goroutines: 50}, Fresh: small},
		"files":      {Old: footprint{Files: 60}, Fresh: small},
		"memory":     {Old: small, Fresh: small, EarlyRSS: 20000, LateRSS: 60000},
	} {
		require.Len(t, l.found(), 1, name)
	}
}
