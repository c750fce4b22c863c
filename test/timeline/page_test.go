package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/browser"
)

// TestNight: the page of a real night, in which one host died.
func TestNight(t *testing.T) {
	paths := night(t, t.TempDir())
	path, said := draw(t, 0, paths...)
	require.Empty(t, said)
	b := open(t, path)
	b.Shot("light")

	t.Run("what happened is there", func(t *testing.T) {
		b.T = t
		require.Equal(t, "no violation in these journals", browser.Eval[string](b, `document.getElementById('verdict').textContent`))
		require.Equal(t, []string{"db1", "db2", "db3"}, browser.Eval[[]string](b, `timeline.data.hosts.map((h) => h.name)`))
		require.ElementsMatch(t, []string{"nightly-backup", "reboot", "catalogue", "deploy", "settings"}, browser.Eval[[]string](b, `timeline.data.locks.map((l) => l.name)`))
		require.Equal(t, backups[1]+backups[2]+backups[3], browser.Eval[int](b, `timeline.data.attempts.filter((a) => timeline.data.locks[a.lock].name === 'nightly-backup' && a.entered !== undefined && a.end === 'released').length`))
		deploy := browser.Eval[[]string](b, `timeline.data.attempts.filter((a) => timeline.data.locks[a.lock].name === 'deploy').map((a) => timeline.data.hosts[a.host].name + ' ' + a.end).sort()`)
		require.Equal(t, []string{"db1 released", "db2 released", "db2 timeout", "db3 dead"}, deploy)
		require.Subset(t, browser.Eval[[]string](b, `timeline.data.hosts[2].changes.map((c) => c.kind)`), []string{"joined", "dead"})
		require.Contains(t, browser.Eval[[]string](b, `timeline.data.hosts[1].changes.map((c) => c.kind)`), "resumed")
		require.Equal(t, 1, browser.Eval[int](b, `timeline.data.attempts.filter((a) => a.modes).length`), "one hold changed its mode")
		require.Equal(t, []int{2}, browser.Eval[[]int](b, `timeline.data.locks.filter((l) => l.permits > 1).map((l) => l.permits)`))
		require.Greater(t, browser.Eval[int](b, `timeline.hits().length`), 40, "the change is drawn")
	})
	t.Run("zoom and pan", func(t *testing.T) { b.T = t; zoomAndPan(b) })
	t.Run("filters", func(t *testing.T) { b.T = t; filters(b) })
	t.Run("details", func(t *testing.T) { b.T = t; details(b) })
	t.Run("table", func(t *testing.T) { b.T = t; table(b) })
	t.Run("schemes", func(t *testing.T) { b.T = t; schemes(b) })
	b.T = t
	b.Quiet()
	t.Run("doctored", func(t *testing.T) { doctored(t, paths) })
	t.Run("hostile", func(t *testing.T) { hostile(t, paths) })
}

func zoomAndPan(b *browser.Tab) {
	whole := span(b)
	wheel(b, -300, 600, 400)
	b.Until(fmt.Sprintf("timeline.view.till - timeline.view.from < %f", whole*0.8))
	from := browser.Eval[float64](b, "timeline.view.from")
	b.Do(chromedp.MouseEvent(chromedp.MousePressed, 700, 600, chromedp.ButtonLeft), chromedp.MouseEvent(chromedp.MouseMoved, 500, 600, chromedp.ButtonLeft),
		chromedp.MouseEvent(chromedp.MouseReleased, 500, 600, chromedp.ButtonLeft))
	require.Greater(b.T, browser.Eval[float64](b, "timeline.view.from"), from, "dragging to the left shows later events")
	b.Key("0")
	require.InDelta(b.T, whole, span(b), 1)
	b.Do(chromedp.Focus(chromedp.CSS("#plot")))
	b.Key("+")
	require.InDelta(b.T, whole*0.6, span(b), whole*0.01)
	from = browser.Eval[float64](b, "timeline.view.from")
	b.Key(kb.ArrowLeft)
	require.Less(b.T, browser.Eval[float64](b, "timeline.view.from"), from)
	for range 60 {
		b.Key("+")
	}
	require.Less(b.T, span(b), 1000.0, "down to microseconds")
	b.Key("-")
	b.Do(chromedp.Click(chromedp.CSS("#fit")))
	require.InDelta(b.T, whole, span(b), 1)
}

func filters(b *browser.Tab) {
	locks := `[...new Set(timeline.rows().filter((r) => r.lock).map((r) => r.lock.name))].sort()`
	b.Key("/")
	require.Equal(b.T, "filter", browser.Eval[string](b, `document.activeElement.id`))
	filter(b, "")
	b.Do(chromedp.SendKeys(chromedp.CSS("#filter"), "NIGHT"))
	require.Equal(b.T, []string{"nightly-backup"}, browser.Eval[[]string](b, locks))
	b.Key(kb.Escape)
	drawn := func() int {
		b.Shot("filtered")
		return browser.Eval[int](b, `new Set(timeline.hits().filter((h) => h.a).map((h) => h.a)).size`)
	}
	require.Equal(b.T, backups[1]+backups[2]+backups[3], drawn(), "and no hold of another lock is drawn")
	b.Do(chromedp.Click(chromedp.CSS("#hosts button:nth-child(3)")))
	require.Equal(b.T, []string{"db1", "db2"}, browser.Eval[[]string](b, `timeline.rows().filter((r) => r.type === 'lockhost').map((r) => r.host.name).sort()`))
	b.Do(chromedp.Click(chromedp.CSS("#hosts button:nth-child(3)")))
	filter(b, "")
	require.Len(b.T, browser.Eval[[]string](b, locks), 5)
}

func details(b *browser.Tab) {
	hold := `timeline.data.attempts.find((a) => timeline.data.locks[a.lock].name === 'deploy' && a.end === 'dead')`
	b.Until(`!!timeline.whereIs(` + hold + `)`)
	at := browser.Eval[[]float64](b, `(() => { const h = timeline.whereIs(`+hold+`), p = document.getElementById('plot').getBoundingClientRect();
		return [p.x + h.x + h.w / 3, p.y + h.y + h.h / 2]; })()`)
	b.Do(chromedp.MouseEvent(chromedp.MouseMoved, at[0], at[1]))
	tip := `document.getElementById('tip')`
	b.Until(`!` + tip + `.hidden`)
	require.Contains(b.T, browser.Eval[string](b, tip+`.textContent`), "db3 held deploy for at most ")
	b.Shot("tip")
	b.Do(chromedp.MouseClickXY(at[0], at[1]))
	said := browser.Eval[string](b, `document.getElementById('details').textContent`)
	require.Contains(b.T, said, "ended by the verdict on its host")
	require.Contains(b.T, said, "the host was declared dead")
	b.Key("n")
	require.NotEqual(b.T, said, browser.Eval[string](b, `document.getElementById('details').textContent`))
	b.Key(kb.Enter)
	b.Shot("details")
	b.Key(kb.Escape)
	require.Contains(b.T, browser.Eval[string](b, `document.getElementById('details').textContent`), "Waited longest")
	b.Key("0")
}

func table(b *browser.Tab) {
	b.Key("t")
	b.Until(`document.querySelectorAll('#table tbody tr').length > 50`)
	rows := browser.Eval[[][]string](b, `[...document.querySelectorAll('#table tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))`)
	text := fmt.Sprint(rows)
	require.Contains(b.T, text, "db3 was declared dead (says ")
	require.Contains(b.T, text, "held; ended by the verdict on its host")
	require.Contains(b.T, text, "timed out")
	require.Regexp(b.T, `^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}$`, rows[0][0])
	b.Shot("table")
	b.Do(chromedp.Click(chromedp.CSS("#relative")))
	require.Regexp(b.T, `^\+0\.000 s$`, browser.Eval[string](b, `document.querySelector('#table tbody td').textContent`))
	b.Do(chromedp.Click(chromedp.CSS("#utc")))
	b.Key("t")
	require.True(b.T, browser.Eval[bool](b, `document.getElementById('table').hidden`))
	b.Key("?")
	require.Contains(b.T, browser.Eval[string](b, `document.getElementById('legend').textContent`), "a violation")
	b.Shot("legend")
	b.Key("?")
}

func schemes(b *browser.Tab) {
	light := func(shot []byte) float64 {
		img, err := png.Decode(bytes.NewReader(shot))
		require.NoError(b.T, err)
		r, g, bl, _ := img.At(img.Bounds().Dx()-20, img.Bounds().Dy()-6).RGBA()
		return float64(r+g+bl) / 3 / 65535
	}
	require.Greater(b.T, light(b.Shot("wide")), 0.9)
	b.Media("dark", 1280, 800)
	require.Less(b.T, light(b.Shot("dark")), 0.2)
	for _, scheme := range []string{"dark", "light"} {
		b.Media(scheme, 420, 800)
		b.Shot("narrow-" + scheme)
		require.LessOrEqual(b.T, browser.Eval[float64](b, `document.documentElement.scrollWidth`), 420.0, "nothing overflows")
	}
	b.Media("light", 1120, 720)
	b.Do(chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`), chromedp.MouseEvent(chromedp.MouseMoved, 600, 10))
	b.Shot("night")
	b.Media("light", 1280, 800)
}

// doctored: two hosts that hold one lock at once, and a token that goes back, are marked; the rest
// is not.
func doctored(t *testing.T, paths []string) {
	dir := t.TempDir()
	var all []string
	done := 0
	for i, path := range paths {
		es := readEvents(t, path)
		for _, e := range es {
			if i == 0 && done == 0 && e.is("exit", "nightly-backup") && e.at(t).After(es[len(es)/3].at(t)) {
				e["at"] = e.at(t).Add(200 * time.Millisecond).Format(time.RFC3339Nano) // while another holds it
				e["uptime_ms"] = e["uptime_ms"].(float64) + 200
				done++
			}
		}
		all = append(all, writeEvents(t, filepath.Join(dir, filepath.Base(path)), es))
	}
	require.Equal(t, 1, done)
	path, said := draw(t, 1, all...)
	require.Contains(t, said, "bakeryctl: violation: two holders: db1 (token ")
	b := open(t, path)
	require.True(t, browser.Eval[bool](b, `timeline.data.findings[0].proven && timeline.data.findings[0].kind === 'two holders'`))
	require.Contains(t, browser.Eval[string](b, `document.getElementById('verdict').textContent`), "VIOLATION")
	b.Key("v")
	shot := b.Shot("violation-light")
	require.Greater(t, browser.Eval[int](b, `timeline.hits().filter((h) => h.finding).length`), 0)
	require.Contains(t, browser.Eval[string](b, `document.getElementById('details').textContent`), "held nightly-backup at the same time for ")
	require.Greater(t, reds(t, shot), 3000, "glaringly")
	b.Media("dark", 1280, 800)
	require.Greater(t, reds(t, b.Shot("violation-dark")), 3000)
	b.Quiet()
}

// reds counts pixels in the colour of violations, or near it.
func reds(t *testing.T, shot []byte) (n int) {
	img, err := png.Decode(bytes.NewReader(shot))
	require.NoError(t, err)
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			if r, g, b, _ := img.At(x, y).RGBA(); r > 0xb000 && g < 0x6000 && b < 0x7000 {
				n++
			}
		}
	}
	return n
}

// hostile: names, commands and reasons are shown as text, whatever they contain.
func hostile(t *testing.T, paths []string) {
	evil := []string{`</script><script>alert(1)</script>`, `<img src=x onerror=alert(2)>`, "\x1b]0;x\a\u202e\u2028", `"};alert(3);//`, `<!--<script>`, `javascript:alert(4)`, `__proto__`}
	es, named := readEvents(t, paths[0]), map[any]string{}
	for i, e := range es {
		for _, member := range []string{"lock", "host_name", "by_host_name", "command", "reason"} {
			if was, ok := e[member]; ok {
				if named[was] == "" {
					named[was] = evil[len(named)%len(evil)]
					if n := len(named); n > len(evil) {
						named[was] += fmt.Sprint(n) // two locks of one name would have two holders
					}
				}
				e[member] = named[was]
			}
		}
		if i%20 == 0 {
			more := maps.Clone(e)
			more["kind"], more["mode"] = evil[i/20%len(evil)], evil[i/20%len(evil)]
			es = append(es, more)
		}
	}
	path, said := draw(t, 0, writeEvents(t, filepath.Join(t.TempDir(), "evil.events"), es), "--title", evil[0])
	require.NotContains(t, said, "\x1b")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(raw), evil[0])
	require.NotContains(t, string(raw), "\x1b")
	require.NotContains(t, string(raw), "\u202e")
	b := open(t, path)
	require.Equal(t, evil[0], browser.Eval[string](b, `document.title`))
	b.Key("t")
	b.Until(`document.querySelectorAll('#table tbody tr').length > 5`)
	require.Contains(t, browser.Eval[string](b, `document.getElementById('table').textContent`), evil[1], "unchanged")
	require.Zero(t, browser.Eval[int](b, `document.querySelectorAll('img, iframe, a').length`))
	require.Equal(t, 2, browser.Eval[int](b, `document.querySelectorAll('script').length`))
	b.Shot("hostile")
	b.Quiet()
}

// TestLanes: simultaneous attempts have different lanes, up to the maximum.
func TestLanes(t *testing.T) {
	var es []event
	note := func(s int, kind string, request int) {
		es = append(es, event{"seq": fmt.Sprint(len(es) + 1), "at": time.Date(2026, 3, 1, 3, 0, s, 0, time.UTC), "kind": kind, "lock": "x", "host": 1, "request": fmt.Sprint(request), "pid": request})
	}
	for i := range 12 {
		note(i, "request", i+1)
	}
	note(20, "timeout", 1)
	note(21, "request", 99)
	path, _ := draw(t, 0, writeEvents(t, filepath.Join(t.TempDir(), "lanes.events"), es))
	b := open(t, path)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7, 0}, browser.Eval[[]int](b, `timeline.data.attempts.map((a) => a.lane)`), "the last takes the place of the first")
	require.Equal(t, [][]int{{0, 8}}, browser.Eval[[][]int](b, `timeline.data.locks[0].hosts`))
	b.Quiet()
}

// TestSummary_NamesOnlyWaitsAndHolds: a removal, an attempt that does not wait, a host that has
// left before --since and an unused lock are not shown.
func TestSummary_NamesOnlyWaitsAndHolds(t *testing.T) {
	var es []event
	note := func(s int, kind string, more event) {
		e := event{"seq": fmt.Sprint(len(es) + 1), "at": time.Date(2026, 3, 1, 3, s/60, s%60, 0, time.UTC), "kind": kind, "host": 1, "host_name": "db", "incarnation": "0000000000000001"}
		maps.Copy(e, more)
		es = append(es, e)
	}
	client := func(lock string, request, pid int) event {
		return event{"lock": lock, "request": fmt.Sprint(request), "pid": pid, "command": "job"}
	}
	remover := event{"lock": "x", "request": "7", "command": "remove the lock"}
	note(0, "joined", nil)
	note(1, "left", event{"host": 3, "host_name": "old", "incarnation": "0000000000000003", "by_host": 1, "by_host_name": "db"})
	note(2, "request", client("unused", 5, 5))
	note(3, "cancel", client("unused", 5, 5))
	note(70, "joined", event{"host": 2, "incarnation": "0000000000000002", "by_host": 1, "by_host_name": "db"})
	note(71, "request", remover)
	note(75, "removed", remover)
	note(76, "request", client("x", 8, 8))
	note(78, "busy", client("x", 8, 8))
	page := []string{writeEvents(t, filepath.Join(t.TempDir(), "summary.events"), es), "--since", "2026-03-01T03:01:00Z"}
	path, _ := draw(t, 0, page...)
	b := open(t, path)
	require.NotContains(t, browser.Eval[string](b, `document.getElementById('details').textContent`), "longest", "empty lists are not shown")
	require.Equal(t, []string{"host 1 (db)", "host 2 (db)"}, browser.Eval[[]string](b, `timeline.rows().filter((r) => r.type === 'host').map((r) => r.host.name)`))
	require.Equal(t, []string{"x"}, browser.Eval[[]string](b, `timeline.rows().filter((r) => r.type === 'lock').map((r) => r.lock.name)`))
	require.Contains(t, browser.Eval[string](b, `document.getElementById('facts').textContent`), "1 lock, 2 hosts, 0 holds, 1 in vain")
	b.Quiet()

	note(80, "request", client("x", 9, 9))
	note(82, "waiting", client("x", 9, 9))
	writeEvents(t, page[0], es)
	path, _ = draw(t, 0, page...)
	b = open(t, path)
	summary := browser.Eval[string](b, `document.getElementById('details').textContent`)
	require.Contains(t, summary, "Waited longest2 shost 1 (db): x, not over by the end of its host’s journal")
	require.NotContains(t, summary, "Held longest")
	b.Quiet()
}

// TestManyEvents draws fifty thousand events, and measures the slowest frame.
func TestManyEvents(t *testing.T) {
	const events = 50_000
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	seq, at := 1, time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	note := func(kind string, host, lock, request int, token uint64) {
		require.NoError(t, enc.Encode(event{"seq": fmt.Sprint(seq), "at": at.Format(time.RFC3339Nano), "uptime_ms": at.Sub(at.Truncate(24 * time.Hour)).Milliseconds(), "kind": kind, "lock": fmt.Sprint("lock-", lock),
			"host": host, "host_name": fmt.Sprint("db", host), "incarnation": fmt.Sprintf("%016x", host), "request": fmt.Sprint(request), "pid": 1000 + request%500, "command": "/usr/bin/work", "mode": "exclusive", "token": fmt.Sprint(token)}))
		seq++
		at = at.Add(20 * time.Millisecond)
	}
	for i := 0; seq <= events; i++ {
		host, lock := 1+i%5, i/7%40
		note("request", host, lock, i+1, 0)
		note("enter", host, lock, i+1, uint64(i+1)<<19|uint64(host)<<8)
		note("exit", host, lock, i+1, uint64(i+1)<<19|uint64(host)<<8)
	}
	journal := filepath.Join(t.TempDir(), "many.json")
	require.NoError(t, os.WriteFile(journal, out.Bytes(), 0o600))
	began := time.Now()
	path, _ := draw(t, 0, journal)
	t.Logf("measured: page of %d events: %v", events, time.Since(began).Round(time.Millisecond))
	info, err := os.Stat(path)
	require.NoError(t, err)
	b := open(t, path)
	require.Equal(t, (events+2)/3, browser.Eval[int](b, `timeline.data.attempts.length`))
	slowest := 0.0
	for _, keys := range []string{"0", "+", "+", "+", "-", kb.ArrowRight, "+", "+", "+", "+", "0"} {
		b.Key(keys)
		b.Shot("many")
		slowest = max(slowest, browser.Eval[float64](b, `timeline.view.painted`))
	}
	b.Key("t")
	b.Until(`document.querySelectorAll('#table tbody tr').length === 200`)
	t.Logf("measured: page of %.1f MB, the slowest frame took %.1f ms", float64(info.Size())/1e6, slowest)
	require.False(t, strings.Contains(browser.Eval[string](b, `document.getElementById('facts').textContent`), "NaN"))
	b.Quiet()
}
