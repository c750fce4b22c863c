package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/showtest"
)

var writeGolden = flag.Bool("golden", false, "rewrite the golden views of top")

// golden compares a view with the one in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *writeGolden {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got+"\n"), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got+"\n", "go test -run TestTopViews -golden rewrites it")
}

func TestTopViews(t *testing.T) {
	unreachable := call.Unreachable(errors.New("connection refused"))
	gone := func(m model) model {
		return m.update(nil, unreachable, noon.Add(2*time.Second)).tick(noon.Add(40 * time.Second))
	}
	for name, m := range map[string]model{
		"80x24":  aModel(80, 24),
		"120x40": aModel(120, 40),
		"40x12":  aModel(40, 12),
		"30x5":   aModel(30, 5),
		"all":    aModel(120, 0),
		"no-limit": withPaths(0, 0, "/dev/mapper/3600140588bd0d1ea0e74e0c9a2d2ae31-part1", "/dev/disk/by-id/wwn-0x600140588bd0d1ea0e74e0c9a2d2ae32",
			"/dev/disk/by-path/pci-0000:00:1f.2-ata-1.0-lun-17-of-a-long-name-part1"),
		"gone":         gone(aModel(100, 24)),
		"gone-at-once": gone(model{source: "/run/bakery/bakeryd.sock", width: 80, height: 12, now: noon}),
		"joining": model{width: 100, height: 12, now: noon, source: "/s"}.update(nil, &notReady{Message: "bakeryd is joining the lockspace",
			Hint: "try again"}, noon).tick(noon.Add(3 * time.Second)),
		"lost": func() model {
			r := showtest.Report()
			r.ThisHost.State, r.ThisHost.LeaseLeftMS, r.ThisHost.Incarnation = "lost", -12_300, r.Hosts[0].Incarnation
			r.Hosts[1].Health = report.HealthUnknown
			r.Hosts = append(r.Hosts, report.Host{ID: 4, Name: "db2", Health: report.HealthDead, SilentMS: new(int64(700_000))})
			return model{width: 100, height: 20, now: noon}.update(anAnswer(r), nil, noon)
		}(),
		"lock":     press(aModel(100, 40), "down", "up", "enter"),
		"host":     press(aModel(100, 40), "home", "enter"),
		"filtered": press(aModel(100, 24), "/", "d", "e", "p"),
		"none":     press(aModel(100, 24), "/", "z", "z", "enter"),
		"paused":   press(aModel(80, 24), "p"),
		"help":     press(aModel(120, 40), "?"),
		"well": func() model {
			r := showtest.Report()
			r.Hosts, r.Locks = r.Hosts[:2], nil
			return model{width: 80, height: 24, now: noon}.update(anAnswer(r), nil, noon)
		}(),
		"disks":       withDisks(120, 40),
		"disks-80x24": withDisks(80, 24),
		"disks-40x20": withDisks(40, 20),
		"paths-80x32": withPaths(80, 32, "/dev/mapper/3600140588bd0d1ea0e74e0c9a2d2ae31-part1", "/dev/disk/by-id/wwn-0x600140588bd0d1ea0e74e0c9a2d2ae32", "/dev/mapper/votes-c"),
		"path-80x24":  withPaths(80, 24, "/dev/disk/by-path/pci-0000:00:1f.2-ata-1.0-lun-17-of-a-long-name-part1"),
		"device": func() model {
			r := showtest.Report()
			r.ThisHost = nil
			r.Judge()
			return model{width: 80, height: 24, now: noon, source: "/dev/mapper/locks"}.update(&report.Glance{At: noon, Report: r}, nil, noon)
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			view := m.view(false, render.Fine)
			golden(t, name, view)
			require.Equal(t, view, ansi.Strip(m.view(true, render.Fine)), "colours change no text")
		})
	}
}

// TestOnce_NoTerminal_CutsNothing: the output of programs is read later, and by programs.
func TestOnce_NoTerminal_CutsNothing(t *testing.T) {
	r := showtest.Report()
	long := strings.Repeat("a long name ", 30) + "with an end"
	for i := range r.Locks {
		r.Locks[i].Name = long
	}
	for i := range r.Hosts {
		r.Hosts[i].Name = long
	}
	r.Locks[3].Permits = 2000
	for i := range 20 {
		r.Locks[3].Holders = append(r.Locks[3].Holders, report.Holder{Host: 20 + i, HostName: fmt.Sprint("h", i), Command: long})
	}
	a := anAnswer(r)
	source := Source{name: long, read: func(context.Context) (*report.Glance, error) { return a, nil }}
	out := func() string {
		var b strings.Builder
		require.NoError(t, Once(t.Context(), source, &b, false))
		return b.String()
	}
	t.Setenv("LC_ALL", "C.UTF-8")
	t.Setenv("COLUMNS", "")
	text := out()
	require.NotContains(t, text, "…")
	require.Contains(t, text, "bakeryctl evict 3 frees them immediately\n")
	require.Contains(t, text, "h19")
	require.Contains(t, text, "held 21/2000")
	t.Setenv("COLUMNS", "70")
	for line := range strings.Lines(out()) {
		require.LessOrEqual(t, render.Width(strings.TrimSuffix(line, "\n")), 70)
	}
}

func TestView_Colours_MatchTheWords(t *testing.T) {
	view := aModel(120, 40).view(true, render.Fine)
	for _, want := range []string{"\x1b[31mbad\x1b[0m", "\x1b[31msilent\x1b[0m", "\x1b[32mlive\x1b[0m", "\x1b[31mstuck\x1b[0m", "\x1b[32mheld\x1b[0m", "\x1b[33mtimeout"} {
		require.Contains(t, view, want)
	}
	require.NotContains(t, aModel(120, 40).view(false, render.Fine), "\x1b")
}

func TestView_SimpleGlyphs_IsASCII(t *testing.T) {
	m := aModel(120, 40)
	m.answer.Report.Locks[0].Name = "日本"
	for _, r := range m.arrange().view(false, render.Simple) {
		require.True(t, r == '\n' || r >= ' ' && r <= '~', "%q", r)
	}
}

// nasty are hostile parts of names.
var nasty = []string{"\x1b[2J", "\x1b]0;title\x07", "\u202e", "\u2066", "日本語", "é", "e\u0301\u0301\u0301\u0301", "\r", "\n", "\t", "\x00", "\u009b31m", "\x9b31m", "\xff",
	"\u200b", "\u200d", "👨\u200d👩\u200d👧", "❤\ufe0f", "1\ufe0f\u20e3", "🇩🇪", "👍🏽", "\u3164", "\u115f", "가", "\u1100\u1161", "\u00ad", "\u2028", "\ue000", "\ue0fe", "ﷺ", "𒐫", "נ", "a", " ", "web-1", "\"", "\\", "…", "█"}

func nastyText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(12) {
		b.WriteString(nasty[r.IntN(len(nasty))])
	}
	return b.String()
}

// nastyModel is told what no bakeryd would say.
func nastyModel(r *rand.Rand) model {
	text := func() string { return nastyText(r) }
	ms := func() *int64 {
		if r.IntN(3) == 0 {
			return nil
		}
		return new(r.Int64() >> r.IntN(63))
	}
	made := &report.Report{Lockspace: report.Lockspace{Name: text(), Device: text(), LeaseMS: r.Int64N(40_000) - 10}}
	if r.IntN(4) > 0 {
		made.ThisHost = &report.ThisHost{ID: r.IntN(4), Name: text(), State: text(), LeaseLeftMS: r.Int64() >> r.IntN(63)}
	}
	for range r.IntN(20) {
		made.Hosts = append(made.Hosts, report.Host{ID: r.IntN(30), Name: text(), Health: report.Health([]string{"live", "dead", "silent", "joining", "left", "", text()}[r.IntN(7)]),
			SilentMS: ms(), DeadInMS: ms(), Unreadable: r.IntN(9) == 0, AskedToLeave: r.IntN(9) == 0, WatchdogArmed: r.IntN(2) == 0, MachineID: text(),
			Verdicts: []report.Verdict{{Host: r.IntN(30)}}})
	}
	for range r.IntN(60) {
		l := report.Lock{Name: text(), Number: r.IntN(80), Permits: r.IntN(3)}
		for range r.IntN(3) {
			l.Holders = append(l.Holders, report.Holder{Host: r.IntN(30), HostName: text(), PID: r.Int(), Command: text(), Since: time.Unix(r.Int64N(1<<33), 0),
				Mode: layout.Mode(r.IntN(3)), Orphan: r.IntN(5) == 0, Processes: []int{r.Int()}})
			l.Queue = append(l.Queue, report.Queued{Place: r.Int(), Host: r.IntN(30), HostName: text()})
			l.Local = append(l.Local, report.Local{PID: r.Int(), Command: text()})
		}
		if r.IntN(8) == 0 {
			l.Stuck = text()
		}
		made.Locks = append(made.Locks, l)
	}
	for range r.IntN(6) {
		made.Disks = append(made.Disks, report.Disk{Position: r.Int(), Device: text(), State: text(), Since: time.Unix(r.Int64N(1<<33), 0), Behind: r.Int(),
			IO: report.IO{Read: report.Latency{Count: r.Uint64(), P50US: r.Int64(), P99US: r.Int64()}}})
	}
	for range r.IntN(9) {
		made.Problems = append(made.Problems, report.Problem{Severity: report.Severity(text()), Text: text(), Why: text(), Remedy: text()})
	}
	if made.ThisHost != nil && r.IntN(2) == 0 {
		made.ThisHost.IO = &report.IO{Read: report.Latency{Count: 1, P50US: r.Int64(), P99US: r.Int64(), Errors: r.Uint64()}, OldestMS: r.Int64()}
	}
	a := &report.Glance{At: noon, Report: made, Error: &api.Error{Message: text(), Hint: text()}}
	m := model{source: text(), now: noon}.update(a, nil, noon)
	if r.IntN(2) == 0 {
		m = m.update(a, nil, noon)
	}
	for range r.IntN(40) {
		m = m.addEvent(events.Event{Kind: events.Kind(text()), Lock: text(), HostName: text(), Command: text(), Reason: text(), At: noon, WaitedMS: r.Int64(), Mode: "shared"})
	}
	switch r.IntN(5) {
	case 0:
		m = m.update(nil, errors.New(text()), noon.Add(time.Duration(r.Int64N(1e12))))
	case 1:
		m = m.update(nil, &notReady{Message: text() + "x", Hint: text()}, noon)
	}
	return m
}

func TestView_HostileNames_KeepTheScreenIntact(t *testing.T) {
	t.Parallel()
	keys := []string{"up", "down", "pgup", "pgdown", "home", "end", "enter", "esc", "tab", "/", "s", "p", "?", "a", "日", "backspace", "ctrl+u", "q", "space", "x"}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for n := range 100 {
		m := nastyModel(r)
		for range 12 {
			m.width, m.height = 1+r.IntN(130), 1+r.IntN(50)
			if r.IntN(3) == 0 {
				m.width, m.height = 1+r.IntN(8), 1+r.IntN(8)
			}
			m = press(m, keys[r.IntN(len(keys))]).tick(noon.Add(time.Duration(r.Int64N(1e11))))
			if m.typing && r.IntN(2) == 0 {
				m, _ = m.key("", nastyText(r))
			}
			lines := strings.Split(m.view(false, render.Fine), "\n")
			where := fmt.Sprintf("seed %d, model %d, %dx%d", seed, n, m.width, m.height)
			require.LessOrEqual(t, len(lines), m.height, where)
			for _, l := range lines {
				require.True(t, utf8.ValidString(l), "%s: %q", where, l)
				require.LessOrEqual(t, ansi.StringWidthWc(l), m.width, "%s: %q", where, l)
				require.LessOrEqual(t, ansi.StringWidth(l), m.width, "%s: %q", where, l)
				for _, c := range l {
					require.False(t, unicode.In(c, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp, unicode.Variation_Selector), "%s: %q", where, l)
				}
			}
			require.Equal(t, strings.Join(lines, "\n"), ansi.Strip(m.view(true, render.Fine)), where)
		}
	}
}

func TestView_ManyLocks_CreatesVisibleRowsOnly(t *testing.T) {
	r := showtest.Report()
	for i := range 60_000 {
		r.Locks = append(r.Locks, report.Lock{Name: fmt.Sprintf("lock-%05d", i), Number: 100 + i, Permits: 1})
	}
	m := model{width: 80, height: 24, now: noon}.update(anAnswer(r), nil, noon)
	few, many := testing.AllocsPerRun(20, func() { _ = aModel(80, 24).view(false, render.Fine) }), testing.AllocsPerRun(20, func() { _ = m.view(false, render.Fine) })
	require.Less(t, many, 3*few)
	m = press(m, "end")
	require.Contains(t, m.view(false, render.Fine), "▸ lock-59999")
	m = press(m, "pgup", "up")
	require.Contains(t, m.view(false, render.Fine), "▸ lock-59986")
}

func TestView_LittleRoom_PrefersLocksToEvents(t *testing.T) {
	r := showtest.Report()
	r.Locks = append(r.Locks, report.Lock{Name: "web", Number: 5, Permits: 1}, report.Lock{Name: "zone", Number: 6, Permits: 1})
	for high := 18; high <= 60; high++ {
		m := model{width: 112, height: high, now: noon}.update(anAnswer(r), nil, noon)
		for range 100 {
			m = m.addEvent(events.Event{Kind: events.Enter, Lock: "a-lock", At: noon})
		}
		lines := strings.Split(m.view(false, render.Fine), "\n")
		require.Len(t, lines, high)
		view := strings.Join(lines, "\n")
		if high >= 28 {
			require.Contains(t, view, "\n  LOCKS 6  ", "all of them, in %d lines:\n%s", high, view)
		}
		if high >= 26 {
			require.NotContains(t, view, "\n\n\n", "no line is left over, in %d:\n%s", high, view)
		}
	}
}

// TestTally_LockIsStuckAndHeldAndWaitedFor_CountsOnce: the counts add up to the number of locks.
func TestTally_LockIsStuckAndHeldAndWaitedFor_CountsOnce(t *testing.T) {
	holder, waiter := report.Holder{Host: 1}, report.Queued{Host: 2, Place: 1}
	r := &report.Report{Locks: []report.Lock{
		{Stuck: "held by host 1", Holders: []report.Holder{holder}, Queue: []report.Queued{waiter}},
		{Holders: []report.Holder{holder}, Local: []report.Local{{Place: 1}}},
		{Holders: []report.Holder{{Host: 3, HostHealth: report.HealthUnknown}}, Queue: []report.Queued{waiter}},
		{Holders: []report.Holder{holder}}, {},
	}}
	s := &screen{model: model{width: 200, answer: &report.Glance{Report: r}}}
	s.tally()
	require.Contains(t, strings.Join(s.lines, "\n"), "locks 1 stuck, 1 unknown, 1 held, 1 waited for, 1 free")
}
