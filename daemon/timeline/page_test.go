package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	hostclock "github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// written returns the page of a world, and the data for its script.
func (w *world) written(o Options) (page string, data Timeline) {
	w.t.Helper()
	var out bytes.Buffer
	require.NoError(w.t, w.build(o).Write(&out))
	page = out.String()
	_, text, ok := strings.Cut(page, `<script type="application/json" id="data">`)
	require.True(w.t, ok)
	text, _, _ = strings.Cut(text, "</script>")
	require.NoError(w.t, json.Unmarshal([]byte(text), &data))
	return page, data
}

// TestPageIsOneFile: the page requests nothing else, and its policy prevents that.
func TestPageIsOneFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(1).hold(0, 10, 1)
	page, data := w.written(Options{Title: "night", Note: "seed 7"})
	require.Equal(t, []any{"night", "seed 7", 1}, []any{data.Title, data.Note, len(data.Attempts)})
	require.True(t, strings.HasPrefix(page, PageMark))
	for _, never := range []string{"http:", "https:", "src=", "href=", "@import", "url(", "{{"} {
		require.NotContains(t, page, never)
	}
	require.Equal(t, 1, strings.Count(page, "<style>"))
	require.Equal(t, 2, strings.Count(page, "<script"), "the data and the script")
	_, script, _ := strings.Cut(page, "<script>")
	script, _, _ = strings.Cut(script, "</script>")
	require.Contains(t, page, "script-src "+digest(script))
	require.NotContains(t, script, "innerHTML")
}

// TestHostileNames: no text of a journal ends its element, or reaches a reader's terminal
// unescaped.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	for _, evil := range []string{"</script><script>alert(1)</script>", "<!--<script>", "\x1b]0;x\a", "\u202e\u2028", "{{data}}", "{{script}}", "\xff\xfe", `"}]}`} {
		w := newWorld(t)
		h := w.host(1)
		all := func(e *events.Event) {
			e.Lock, e.Command, e.Reason, e.Ahead = evil, evil, evil, []events.Peer{{Host: 2, HostName: evil, Phase: evil, Command: evil}}
		}
		h.enter(0, 1, all)
		h.note(1, events.Event{Kind: events.Kill, Lock: evil, Reason: evil, Token: h.journal[1].Token})
		h.note(1, events.Event{Kind: events.Dead, Host: 2, HostName: evil, ByHost: 1, ByHostName: evil, Reason: evil})
		h.note(2, events.Event{Kind: events.Kind(evil), Lock: evil, Mode: evil})
		h.note(2, events.Event{Kind: events.Kind(evil), Reason: evil})
		page, data := w.written(Options{Title: evil, Note: evil})
		plain, _ := newWorld(t).plain()
		require.Equal(t, strings.Count(plain, "</script>"), strings.Count(page, "</script>"), "%q", evil)
		require.Equal(t, strings.Count(plain, "<!--"), strings.Count(page, "<!--"))
		require.NotContains(t, page, "\x1b")
		require.NotContains(t, page, "\u202e")
		require.Equal(t, text.PrintableLine(string([]rune(evil))), data.Locks[0].Name)
		require.Equal(t, "function", map[bool]string{true: "function"}[strings.Contains(page, "function describe(a)")])
	}
}

func (w *world) plain() (string, Timeline) {
	w.host(1).hold(0, 1, 1)
	return w.written(Options{})
}

// TestCrop: holds that extend beyond the range stay complete, and findings stay with their
// attempts.
func TestCrop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.onOneMachine(1, 2)
	w.host(1).hold(0, 10_000, 1)
	w.host(2).hold(20_000, 30_000, 2)
	w.host(1).hold(29_000, 31_000, 3)
	in := func(from, until int) *Timeline {
		return w.build(Options{From: dawn.Add(time.Duration(from) * time.Second), Until: dawn.Add(time.Duration(until) * time.Second)})
	}
	tl := in(5, 15)
	require.Len(t, tl.Attempts, 1)
	require.InDelta(t, 0, ms(tl.Attempts[0].Entered), 0.001)
	require.Empty(t, tl.Findings)
	require.Equal(t, []string{"two holders!"}, in(25, 30).foundKinds())
	require.Equal(t, []int{0, 1}, in(25, 30).Findings[0].Attempts)
	require.Empty(t, w.build(Options{Locks: []string{"y"}}).Attempts)
	_, err := Build(w.sources(), Options{From: dawn.Add(time.Hour)})
	require.ErrorIs(t, err, ErrNoEvents)
	_, err = Build(nil, Options{})
	require.ErrorIs(t, err, ErrNoEvents)
}

// TestKeptJournal: a file of bakeryd with the rotated one, and output of `bakeryctl events`.
func TestKeptJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db1.events")
	log := events.New(hostclock.Boottime, slog.New(slog.NewTextHandler(io.Discard, nil)))
	log.Keep(path, events.Self{Host: 1, Name: "db1", Incarnation: 7})
	asked := log.Add(events.Event{Kind: events.Request, Lock: "x"})
	log.Add(events.Event{Kind: events.Busy, Lock: "x", Request: asked})
	log.Close()
	s, err := ReadFile(path)
	require.NoError(t, err)
	require.Len(t, s.Events, 2)
	tl, err := Build([]Source{s, s}, Options{}) // twice the same is once
	require.NoError(t, err)
	require.Len(t, tl.Attempts, 1)
	require.Equal(t, WasBusy, tl.Attempts[0].End)

	s, err = Read(strings.NewReader("\n"), "nothing")
	require.NoError(t, err)
	require.Empty(t, s.Events)
	_, err = Read(strings.NewReader("{}\n[]\n"), "other")
	require.ErrorIs(t, err, ErrNotJournal)
	require.EqualError(t, err, `read other: no journal of events: line 1 is "{}"`)
	boom := errors.New("boom")
	_, err = Read(io.MultiReader(strings.NewReader("{"), failing{boom}), "disk")
	require.ErrorIs(t, err, boom)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// FuzzBuild: any lines yield a page or an error, and the page's elements end where they should.
func FuzzBuild(f *testing.F) {
	w := newWorld(&testing.T{})
	w.host(1).hold(0, 10, 1)
	w.host(2).hold(5, 20, 2)
	for _, s := range w.sources() {
		var lines []byte
		for i := range s.Events {
			lines = s.Events[i].AppendLine(lines)
		}
		f.Add(lines, lines)
	}
	f.Add([]byte(`{"seq":"1","at":"2026-03-01T03:12:00Z","uptime_ms":-9223372036854775808,"kind":"exit","lock":"x","host":1,"held_ms":9223372036854775807,"token":"524544"}`), []byte("{"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var sources []Source
		for i, b := range [][]byte{one, two} {
			if s, err := Read(bytes.NewReader(b), fmt.Sprint(i)); err == nil {
				sources = append(sources, s)
			}
		}
		var out bytes.Buffer
		tl, err := Build(sources, Options{})
		if err != nil {
			require.ErrorIs(t, err, ErrNoEvents)
			return
		}
		require.NoError(t, tl.Write(&out))
		require.Equal(t, 2, strings.Count(out.String(), "</script>"))
	})
}
