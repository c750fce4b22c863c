package page

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/browser"
)

func TestMain(m *testing.M) { browser.Main(m) }

const ready = `!!globalThis.statusPage && !!statusPage.model()`

const headline = `document.getElementById('headline').textContent`

// text returns the text of a part of the page.
func text(b *browser.Tab, selector string) string {
	b.T.Helper()
	return browser.Eval[string](b, fmt.Sprintf(`document.querySelector(%q).textContent`, selector))
}

// says waits until a part of the page contains words.
func says(b *browser.Tab, selector, words string) {
	b.T.Helper()
	b.Until(fmt.Sprintf(`document.querySelector(%q)?.textContent.includes(%q)`, selector, words))
}

// TestLive: three real hosts, of which one dies and one restarts.
func TestLive(t *testing.T) {
	c := browser.NewCluster(t, t.TempDir(), 3, "--name", "prod", "--lease", "12s")
	for _, name := range []string{"backup", "report", "deploy"} {
		script := "#!/bin/sh\n[ -z \"$2\" ] || { echo $$ >$2.new && mv $2.new $2; }\nexec sleep 1000\n"
		require.NoError(t, os.WriteFile(c.Path(name), []byte(script), 0o700))
	}
	c.Run(1, 0, "create", "reboot", "--permits", "2")
	b := browser.Visit(t, forward(t, c.Path("h1", "s")), ready)
	b.Do(chromedp.Evaluate[chromedp.Void](`globalThis.loaded = 'once'`))

	b.Until(headline + ` === 'All well'`)
	says(b, "#summary", "3 hosts live · 0 locks held · no waiters")
	says(b, "#facts", "seen from db1 · lease 12 s · policy lease")
	says(b, "title", "All well · prod")
	require.Equal(t, []string{"db1 (1)", "db2 (2)", "db3 (3)"}, browser.Eval[[]string](b, `[...document.querySelectorAll('#hostlist b')].map((e) => e.textContent)`))
	b.Until(`document.querySelectorAll('#eventlist li').length > 2`)
	filled := `parseFloat(document.querySelector('#lease .meter i').style.width)`
	low := browser.Eval[float64](b, `new Promise((f) => { let low = 100; const t = setInterval(() => { const w = `+filled+`; if (w > low + 4) { clearInterval(t); f(low); } low = Math.min(low, w); }, 50); })`, chromedp.EvalAwaitPromise)
	require.Less(t, low, 100.0, "the lease bar falls, and rises at a renewal")

	held(t, c, b)
	death(t, c, b)
	restart(t, c, b)
	require.Equal(t, "once", browser.Eval[string](b, `globalThis.loaded`), "the page was not reloaded")
	b.Quiet()
}

// held: holders and waiters are shown, and a list that is redrawn keeps its scroll position.
func held(t *testing.T, c *browser.Cluster, b *browser.Tab) {
	for i := range 30 {
		c.Run(1, 0, "create", fmt.Sprintf("shard-%02d", i))
	}
	c.Begin(1, "lock", "nightly-backup", "--", "./backup", "--full")
	c.Noted(1, "enter", "nightly-backup")
	c.Begin(2, "lock", "nightly-backup", "--", "./backup", "--full")
	c.Noted(2, "ticket", "nightly-backup")
	c.Begin(1, "lock", "nightly-backup", "--", "./backup", "--full")
	c.Noted(1, "waiting", "nightly-backup")
	c.Begin(2, "lock", "-s", "catalogue", "--", "./report", "week")
	c.Noted(2, "enter", "catalogue")
	first := `#locklist > li:first-child`
	says(b, first+" .name", "nightly-backup")
	says(b, first+" .chip", "2 waiting")
	says(b, first+" .holders li", "db1 (1)")
	says(b, first+" .holders .command", "./backup --full")
	says(b, first+" .queue", "db2 (2)waiting")
	says(b, first+" .queue .client", "client herepid ")
	says(b, "#locklist > li:nth-child(2)", "catalogue")
	says(b, "#locklist > li:nth-child(2) .mode", "shared")
	says(b, "#summary", "2 locks held · 2 waiting · 31 locks free")
	require.Equal(t, "All well", browser.Eval[string](b, headline), "a wait is not an error")
	b.Shot("queue-light")
	shoot(b)

	b.Media("light", 1280, 400)
	b.Do(chromedp.Evaluate[chromedp.Void](`(() => {
		globalThis.row = document.querySelector('` + first + `');
		const r = document.createRange();
		r.selectNodeContents(row.querySelector('.name'));
		getSelection().removeAllRanges();
		getSelection().addRange(r);
		scrollTo(0, 120);
		globalThis.model = statusPage.model();
		globalThis.moves = 0;
		new MutationObserver((all) => { moves += all.filter((x) => x.type === 'childList').length; }).observe(document.getElementById('locks'), { childList: true, subtree: true });
	})()`))
	for range 3 {
		b.Until(`statusPage.model() !== globalThis.model`)
		b.Do(chromedp.Evaluate[chromedp.Void](`globalThis.model = statusPage.model()`))
	}
	require.True(t, browser.Eval[bool](b, `document.querySelector('`+first+`') === row && getSelection().toString() === 'nightly-backup' && scrollY === 120 && moves === 0`),
		"selection and scroll position stay, and no element is created again")
	b.Do(chromedp.Evaluate[chromedp.Void](`getSelection().removeAllRanges(); scrollTo(0, 0)`))
	b.Media("light", 1280, 800)

	b.Key("/")
	b.Do(chromedp.SendKeys(chromedp.CSS("#locksearch"), "shared-nothing"))
	says(b, "#nolocks", "No lock matches.")
	b.Key(kb.Escape)
	b.Do(chromedp.SendKeys(chromedp.CSS("#locksearch"), "db2 BACKUP"))
	b.Until(`document.querySelectorAll('#locklist > li').length === 1 && document.getElementById('free').hidden`)
	b.Key(kb.Escape)
	b.Do(chromedp.Click(chromedp.CSS(`button[data-which="wanted"]`)))
	b.Until(`document.querySelectorAll('#locklist > li').length === 1`)
	b.Do(chromedp.Click(chromedp.CSS(`button[data-which="all"]`)))
}

// death: a host is killed with a lock that another waits for.
func death(t *testing.T, c *browser.Cluster, b *browser.Tab) {
	pids := c.Path("eu-west")
	wrapper := c.Begin(3, "lock", "deploy", "--", "./deploy", "v41", "eu-west")
	require.Eventually(t, func() bool { _, err := os.Stat(pids); return err == nil }, browser.Generous, browser.Soon)
	c.Begin(1, "lock", "deploy", "--", "./deploy", "v42")
	c.Noted(1, "ticket", "deploy")
	b.Until(`[...document.querySelectorAll('#locklist > li')].some((l) => l.querySelector('.name').textContent === 'deploy' && l.querySelector('.holders')?.textContent.includes('db3 (3)'))`) // from the disk
	raw, err := os.ReadFile(pids)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	c.Kill(3)
	require.NoError(t, wrapper.Process.Kill())
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))

	b.Until(headline + `.startsWith('Host 3 (db3) is silent: no renewal for ')`)
	require.Regexp(t, `^Host 3 \(db3\) is silent: no renewal for \d+ s, (dead in \d+ s|being declared dead)$`, browser.Eval[string](b, headline))
	says(b, "#todo", "bakeryctl evict 3")
	says(b, "#hostlist > li:first-child", "silent")
	says(b, "#troubles", "Lock deploy is stuck: held by host 3 (db3), silent, ")
	says(b, "#announce", "Host 3 (db3) is silent")
	b.Shot("silent-light")
	b.Media("dark", 1280, 800)
	b.Shot("silent-dark")
	b.Media("light", 1280, 720)
	b.Shot("status")
	b.Media("light", 1280, 800)
	b.Until(headline + ` === 'Host 3 (db3) is dead: its locks are free'`)
	says(b, "#hostlist", "declared dead by db")
	says(b, "#eventlist", "dead")
	b.Until(`[...document.querySelectorAll('#locklist > li')].some((l) => l.textContent.includes('deploy') && l.querySelector('.holders').textContent.includes('db1 (1)'))`)
	b.Shot("dead-light")
	c.Start(3)
	b.Until(headline + ` === 'All well'`)
}

// restart: bakeryd goes away, and comes back.
func restart(t *testing.T, c *browser.Cluster, b *browser.Tab) {
	require.Equal(t, "good", browser.Eval[string](b, `document.getElementById('link').dataset.level`))
	c.Kill(1)
	b.Until(headline + `.startsWith('bakeryd has not answered for ')`)
	says(b, "#headline", "Its lease ends in ")
	says(b, "#link", "no answer; this is ")
	require.True(t, browser.Eval[bool](b, `document.body.classList.contains('stale')`))
	b.Shot("gone-light")
	c.Start(1)
	b.Until(headline + ` === 'All well'`)
	says(b, "#link", "live · disk read ")
	says(b, "#eventlist", "resumed")
	require.Contains(t, text(b, "#locklist"), "nightly-backup")
	b.Excuse("Failed to load resource: net::ERR_")
}

// fits fails if the page, or a part of it, is wider than the window or its panel.
func fits(b *browser.Tab, width int64) {
	b.T.Helper()
	require.LessOrEqual(b.T, browser.Eval[float64](b, `document.documentElement.scrollWidth`), float64(width), "nothing overflows")
	require.Empty(b.T, browser.Eval[[]string](b, `[...document.querySelectorAll('section')].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.id)`), "no section overflows")
}

// shoot stores pictures in all schemes and widths.
func shoot(b *browser.Tab) {
	for _, scheme := range []string{"dark", "light"} {
		b.Media(scheme, 1280, 800)
		b.Shot("queue-" + scheme)
		for _, width := range []int64{360, 420, 720, 1900} {
			b.Media(scheme, width, 900)
			b.Shot(fmt.Sprintf("queue-%s-%d", scheme, width))
			fits(b, width)
		}
	}
	b.Media("light", 1280, 800)
}
