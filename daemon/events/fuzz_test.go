package events

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/clock"
)

var journalLines = []string{
	`{"seq":"5","at":"2026-11-21T03:12:00Z","uptime_ms":1,"kind":"enter","lock":"x","host":1,"token":"3676650270761156864","ahead":[{"host":2}]}` + "\n",
	`{"seq":"6","at":"2026-11-21T03:12:00Z","uptime_ms":1,"kind":"weather"}` + "\n" + `{"seq":"7","at":"20`,
	`{"seq":"18446744073709551615","at":"2026-11-21T03:12:00Z","uptime_ms":1,"kind":"exit"}` + "\n",
	`{"seq":"8"}` + "\n\n\x00\n" + `{"seq":"9","at":"2026-11-21T03:12:00Z","uptime_ms":1,"kind":"exit","seq":"3"}` + "\n",
	`{"seq":"9` + "\n}", "{\"seq\":\"", "\n",
}

// FuzzScan checks that any file yields events in order, above the given Seq, that can be written
// and read again, none of them twice.
func FuzzScan(f *testing.F) {
	for _, text := range journalLines {
		f.Add([]byte(text), uint64(4))
	}
	f.Fuzz(func(t *testing.T, text []byte, since uint64) {
		n := 0
		for e, err := range scan(bytes.NewReader(text), since) {
			require.NoError(t, err)
			n++
			var again Event
			require.NoError(t, json.Unmarshal(e.AppendLine(nil), &again))
			require.True(t, e.Kind == Gap || e.Seq > since, "%+v", e)
		}
		require.LessOrEqual(t, n, 2*bytes.Count(text, []byte("\n")), "an event and a gap for each line at most")
		require.LessOrEqual(t, lastSeq(text), uint64(maxSeq))
	})
}

// FuzzContinue checks that a log continues after any file contents, and that its events can be
// read.
func FuzzContinue(f *testing.F) { // 2000x
	for _, text := range journalLines {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(dir, "x.events")
		require.NoError(t, os.WriteFile(path, text, 0o600))
		l := New(clock.Boottime, slog.New(slog.DiscardHandler))
		l.Keep(path, Self{Host: 1, Name: "db1", Incarnation: 1})
		l.Add(Event{Kind: Enter, Lock: "added"})
		l.Close()
		added := 0
		require.NoError(t, ReadFile(path, Query{Lock: "added"}, func(es []Event) error {
			for _, e := range es {
				if e.Kind == Enter && e.Lock == "added" && e.HostName == "db1" {
					added++
				}
			}
			return nil
		}), "%q", text)
		require.Positive(t, added, "%q", text)
	})
}
