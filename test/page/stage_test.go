package page

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/browser"
)

// TestStaged: the page with each kind of answer.
func TestStaged(t *testing.T) {
	c := browser.NewCluster(t, t.TempDir(), 1, "--lease", "6s")
	real := forward(t, c.Path("h1", "s"))
	t.Run("times", func(t *testing.T) { oneNumber(t, real) })
	t.Run("troubles", func(t *testing.T) { troubles(t, real) })
	t.Run("joining", func(t *testing.T) { joining(t, real) })
	t.Run("incidents", func(t *testing.T) { incidents(t, real) })
	t.Run("unanswered", func(t *testing.T) { unanswered(t, real) })
	t.Run("latency", func(t *testing.T) { latency(t, real) })
	t.Run("disks", func(t *testing.T) { memberDisks(t, real) })
	t.Run("hostile", func(t *testing.T) { hostile(t, real) })
	t.Run("many", func(t *testing.T) { manyLocks(t, real) })
	t.Run("hours", func(t *testing.T) { hours(t, real) })
}

// feed gives a page an extra answer.
func feed(b *browser.Tab, a object) {
	b.T.Helper()
	a["at"] = time.Now().UTC()
	text, err := json.Marshal(a)
	require.NoError(b.T, err)
	b.Do(chromedp.Evaluate[chromedp.Void]("statusPage.take(" + string(text) + ")"))
}

// troubles: the page draws the problems that a report lists. Package report tests which those are.
func troubles(t *testing.T, real string) {
	s := newStage(t, real, answer(3, 5, 2, 1))
	b := browser.Visit(t, s.url, ready)
	const todo = "if you are certain that it is off: bakeryctl evict 2"
	for _, c := range []struct {
		name                                  string
		change                                []func(object)
		level, headline, todo, more, announce string
	}{
		{"well", nil, "good", "All well", "", "", ""},
		{"error", []func(object){problem("error", "silent", "host 2 (db2) is silent", "no renewal for 21 s, dead in 15 s", todo),
			problem("error", "stuck", "lock lock-00001 is stuck", "held by host 2 (db2)", "")},
			"bad", "Host 2 (db2) is silent: no renewal for 21 s, dead in 15 s", "If you are certain that it is off: bakeryctl evict 2",
			"Lock lock-00001 is stuck: held by host 2 (db2)", "Host 2 (db2) is silent"},
		{"warning", []func(object){problem("warning", "dead", "host 3 (db3) is dead", "its locks are free", "start it again")},
			"warn", "Host 3 (db3) is dead: its locks are free", "Start it again", "", "Host 3 (db3) is dead: its locks are free. Start it again"},
		{"note", []func(object){problem("note", "orphan", "lock x is kept", "process 77 lives", "it ends")}, "good", "All well", "", "Lock x is kept: process 77 livesIt ends", ""},
		{"no remedy", []func(object){problem("warning", "lockspace", "the superblock is damaged", "", "")}, "warn", "The superblock is damaged", "", "", ""},
		{"hanging", []func(object){problem("error", "device", "the disk cannot be read", "IO to /dev/mapper/locks hangs", "its state is 9 s old"), func(o object) {
			o["error"] = object{"code": "device", "message": "IO to /dev/mapper/locks hangs"}
		}}, "bad", "The disk cannot be read: IO to /dev/mapper/locks hangs", "Its state is 9 s old", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.T = t
			s.set(answer(3, 5, 2, 1, c.change...))
			feed(b, answer(3, 5, 2, 1, c.change...))
			// Earlier answers may still arrive.
			require.EventuallyWithT(t, func(now *assert.CollectT) {
				require.Equal(now, c.headline, browser.Eval[string](b, headline))
				require.Equal(now, c.level, browser.Eval[string](b, `document.getElementById('verdict').dataset.level`))
			}, browser.Generous, browser.Soon)
			require.Equal(t, c.todo, text(b, "#todo"))
			require.Equal(t, c.more, text(b, "#troubles"))
			require.Contains(t, text(b, "#announce"), c.announce)
			icon := map[string]string{"good": "well", "warn": "warn", "bad": "bad"}[c.level]
			require.Equal(t, "/page/"+icon+".svg", browser.Eval[string](b, `document.getElementById('icon').getAttribute('href')`))
			b.Shot("trouble-" + c.name)
		})
	}
	b.T = t
	b.Quiet()
}

// joining: a bakeryd that answers, but has no lockspace.
func joining(t *testing.T, real string) {
	away := object{"read": object{}, "error": object{"code": "unavailable", "message": "not joined to the lockspace: joining", "hint": "The log of bakeryd says more."}}
	s := newStage(t, real, away)
	b := browser.Visit(t, s.url, `!!globalThis.statusPage`)
	says(b, "#headline", "bakeryd runs, but has not joined the lockspace: joining")
	says(b, "#link", "not joined")
	require.True(t, browser.Eval[bool](b, `document.getElementById('parts').hidden`), "there are no locks to show")
	b.Shot("joining")
	s.set(answer(3, 5, 2, 1))
	b.Until(headline + ` === 'All well'`)
	s.set(away)
	says(b, "#link", "not joined; this is ")
	require.False(t, browser.Eval[bool](b, `document.getElementById('parts').hidden`), "the last report is still shown")
	b.Quiet()
}

// latency is shown if it is in the answer.
func latency(t *testing.T, real string) {
	s := newStage(t, real, answer(3, 5, 2, 1))
	b := browser.Visit(t, s.url, ready)
	require.True(t, browser.Eval[bool](b, `document.getElementById('latency').hidden`))
	for i := range 170 {
		feed(b, answer(3, 5, 2, 1, latencies(i)))
	}
	require.Contains(t, text(b, "#latencies"), "Read 245 µs")
	require.Contains(t, text(b, "#latencies"), "Write 2 errors344 µs")
	require.Contains(t, text(b, "#latencies"), "12.4 ms")
	require.Equal(t, []int{150, 150, 150}, browser.Eval[[]int](b, `[...document.querySelectorAll('.sparkline polyline')].map((l) => l.getAttribute('points').split(' ').length)`))
	s.set(answer(3, 5, 2, 1, latencies(171)))
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1900, 1280, 420} {
			b.Media(scheme, width, 900)
			b.Shot(fmt.Sprintf("latency-%s-%d", scheme, width))
			fits(b, width)
		}
	}
	b.Quiet()
}

// memberDisks are shown if the lockspace is on several, also on a narrow screen.
func memberDisks(t *testing.T, real string) {
	s := newStage(t, real, answer(3, 5, 2, 1))
	b := browser.Visit(t, s.url, ready)
	require.True(t, browser.Eval[bool](b, `document.getElementById('disks').hidden`))
	lost := []func(object){disks, problem("warning", "disk", "member disk 3 (/dev/mapper/vote-c) is down", "input/output error", "check the device")}
	s.set(answer(3, 5, 2, 1, lost...))
	says(b, "#headline", "Member disk 3 (/dev/mapper/vote-c) is down: input/output error")
	says(b, "#disks h2", "Member disks 2 of 3 up")
	says(b, "#disklist > li:nth-child(1)", "1 · /dev/mapper/vote-a")
	says(b, "#disklist > li:nth-child(1)", "read 245 µs, p99 791 µs · write 344 µs, p99 1.49 ms")
	says(b, "#disklist > li:nth-child(3)", "7 records behind · 12 failed requests")
	says(b, "#disklist > li:nth-child(3)", "input/output error")
	require.Equal(t, []string{"good", "good", "bad"}, browser.Eval[[]string](b, `[...document.querySelectorAll('#disklist .chip')].map((c) => c.dataset.level)`))
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1900, 1280, 420} {
			b.Media(scheme, width, 900)
			b.Shot(fmt.Sprintf("disks-%s-%d", scheme, width))
			fits(b, width)
		}
	}
	s.set(answer(3, 5, 2, 1))
	b.Until(`document.getElementById('disks').hidden`)
	b.Quiet()
}

var evil = []string{`</script><script>alert(1)</script>`, `<img src=x onerror=alert(2)>`, "\x1b]0;x\a\u202eevil\u2028\u200b\u3164\u00a0", `"};alert(3);//`, `<!--<script>`, `javascript:alert(4)`, `__proto__`,
	"constructor", "{{7*7}}", "Z\u0351\u036b\u0343a\u0352\u034ag\u0353\u0333o", "a very long name without any blank in it: " + fmt.Sprintf("%0120d", 7)}

// hostile: names, commands and reasons are shown as text, whatever they contain.
func hostile(t *testing.T, real string) {
	a := answer(len(evil), 2*len(evil), len(evil), len(evil))
	for i, e := range evil {
		set(fmt.Sprintf("report.hosts.%d", i), object{"name": e, "health": []string{"live", "silent", "dead", e}[i%4]})(a)
		set(fmt.Sprintf("report.locks.%d", i), object{"name": e, "stuck": e})(a)
		l := in(a, fmt.Sprintf("report.locks.%d", i))
		l["holders"].([]object)[0]["command"], l["holders"].([]object)[0]["host_name"], l["holders"].([]object)[0]["token"] = e, e, e
		l["queue"].([]object)[0]["host_name"], l["queue"].([]object)[0]["phase"] = e, e
		l["local"] = []object{{"pid": 7, "command": e, "mode": e, "since": e, "place": 1}}
		problem([]string{"error", "warning", "note", e}[i%4], e, e, e, e)(a)
	}
	set("report.lockspace", object{"name": evil[0], "device": evil[1], "policy": evil[2], "warnings": evil})(a)
	disks(a)
	for _, d := range in(a, "report")["disks"].([]object) {
		d["device"], d["state"], d["error"], d["since"] = evil[1], evil[0], evil[2], evil[3]
	}
	s := newStage(t, real, a)
	for i, e := range evil {
		s.events = append(s.events, object{"seq": fmt.Sprint(i + 1), "at": e, "kind": e, "lock": e, "host_name": e, "command": e, "reason": e, "by_host": 1, "by_host_name": e})
	}
	b := browser.Visit(t, s.url, ready)
	b.Until(fmt.Sprintf(`document.querySelectorAll('#eventlist li').length === %d`, len(evil)))
	for _, part := range []string{"#locklist", "#hostlist", "#eventlist", "#troubles", "#disklist"} {
		require.Contains(t, text(b, part), evil[1], "unchanged")
	}
	whole := browser.Eval[string](b, `document.documentElement.outerHTML`)
	for _, odd := range []string{"\x1b", "\u202e", "\u2028", "\u200b", "\u3164", "\u00a0"} {
		require.NotContains(t, whole, odd)
	}
	require.Contains(t, text(b, "#locklist"), `\u{1b}]0;x\u{7}\u{202e}evil\u{2028}\u{200b}\u{3164}\u{a0}`)
	require.Equal(t, 1, browser.Eval[int](b, `document.querySelectorAll('script').length`))
	require.Zero(t, browser.Eval[int](b, `document.querySelectorAll('img, iframe, a, object, main style').length`))
	for _, width := range []int64{1280, 360} {
		b.Media("light", width, 900)
		b.Shot(fmt.Sprint("hostile-", width))
		fits(b, width)
	}
	b.Quiet()
}

// manyLocks: of ten thousand locks and two thousand hosts all can be found, and few are drawn.
func manyLocks(t *testing.T, real string) {
	a := answer(2000, 10_000, 700, 300)
	set("report.locks.9998", object{"stuck": "behind host 7 (db7) in the queue", "queue": []object{{"place": 1, "host": 7, "host_name": "db7", "mode": "shared", "ticket": "1", "phase": "waiting"}}})(a)
	set("report.hosts.1233", object{"health": "silent", "silent_ms": 20 * second, "dead_in_ms": 16 * second})(a)
	s := newStage(t, real, a)
	b := browser.Visit(t, s.url, ready)
	says(b, "#locklist > li:first-child", "lock-09999")
	says(b, "#locklist > li:nth-child(2) .chip", "1 waiting")
	says(b, "#hostlist > li:first-child", "db1234 (1234)")
	says(b, "#hostlist > li:nth-child(2)", "this host")
	says(b, "#summary", "1,999 hosts live · 700 locks held · 301 waiting · 9,299 locks free")
	nodes := `document.querySelectorAll('*').length`
	require.Less(t, browser.Eval[int](b, nodes), 4000)
	b.Shot("many-light")
	b.Do(chromedp.SendKeys(chromedp.CSS("#locksearch"), "lock-0777"))
	b.Until(`document.querySelectorAll('#freelist > li').length === 10`)
	says(b, "#lockcount", "10 of 10,000")
	b.Do(chromedp.SendKeys(chromedp.CSS("#hostsearch"), "db199"))
	b.Until(`document.querySelectorAll('#hostlist > li').length === 11`)
	b.Do(chromedp.Evaluate[chromedp.Void](`for (const f of document.querySelectorAll('input')) { f.value = ''; f.dispatchEvent(new Event('input')); }`))
	b.Until(`document.querySelectorAll('#locklist > li').length === 60`)
	b.Do(chromedp.Click(chromedp.CSS("#morelocks")))
	b.Until(`document.querySelectorAll('#locklist > li').length === 360`)
	text, err := json.Marshal(a)
	require.NoError(t, err)
	took := browser.Eval[float64](b, `(() => { const a = `+string(text)+`, t = performance.now(); statusPage.take(a); document.body.offsetHeight; return performance.now() - t; })()`)
	t.Logf("measured: an answer of %d KB with 2,000 hosts and 10,000 locks is drawn in %.0f ms, %d elements", len(text)>>10, took, browser.Eval[int](b, nodes))
	b.Quiet()
}

// hours: a thousand different answers leak nothing.
func hours(t *testing.T, real string) {
	s := newStage(t, real, answer(20, 100, 20, 5, latencies(1)))
	event := func(i int) object {
		return object{"seq": fmt.Sprint(i + 1), "at": time.Now().UTC(), "kind": "enter", "lock": "x", "command": "work"}
	}
	for i := range 150 {
		s.events = append(s.events, event(i))
	}
	b := browser.Visit(t, s.url, ready)
	b.Until(`document.querySelectorAll('#eventlist > li').length === 100`)
	var variants []object
	for i := range 28 {
		a := answer(20+i%7, 100+i%11, 20+i%13, 5+i%5, latencies(i))
		set(fmt.Sprintf("report.hosts.%d", i%20), object{"health": []string{"silent", "dead", "left", "joining"}[i%4]})(a)
		a["at"] = time.Now().UTC()
		variants = append(variants, a)
	}
	text, err := json.Marshal(variants)
	require.NoError(t, err)
	b.Do(chromedp.Evaluate[chromedp.Void]("globalThis.variants = " + string(text)))
	updates := 0
	update := func(n int) {
		for range n / 100 {
			s.mu.Lock()
			s.events = append(s.events, event(1000+updates))
			s.mu.Unlock()
			b.Do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`for (let i = %d; i < %d; i++) {
				const a = structuredClone(variants[i %% variants.length]);
				for (const l of a.report.locks) for (const h of l.holders) h.token = String(i * 1000 + l.number); // every hold is a new one
				statusPage.take(a);
			}`, updates, updates+100)))
			updates += 100
		}
		feed(b, answer(20, 100, 20, 5, latencies(1)))
		for range 2 {
			browser.Call(b, heapprofiler.CollectGarbage, cdp.Empty{})
		}
	}
	count := func() (nodes, elements int) {
		c, err := chromedp.Call(b.Context(), memory.GetDOMCounters, cdp.Empty{})
		require.NoError(t, err)
		return int(c.Nodes), browser.Eval[int](b, `document.querySelectorAll('main *').length - document.querySelectorAll('#eventlist *').length`)
	}
	update(100)
	nodes, elements := count()
	update(1000)
	after, same := count()
	t.Logf("measured: %d nodes after 100 updates, %d after 1,100; %d and %d elements", nodes, after, elements, same)
	require.Equal(t, elements, same)
	require.Less(t, after, nodes*5/4, "except for uncollected garbage")
	b.Quiet()
}
