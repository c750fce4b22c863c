package top

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/browser"
)

func TestMain(m *testing.M) { browser.Main(m) }

func eventually(is func() bool) bool {
	for end := time.Now().Add(browser.Generous); !is(); time.Sleep(browser.Soon) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// scene returns three hosts, each with a held lock, and some waiters.
func scene(t *testing.T) *browser.Cluster {
	t.Helper()
	c := browser.NewCluster(t, t.TempDir(), 3, "--name", "prod", "--lease", "8s")
	hold := func(id int, lock string, command ...string) {
		t.Helper()
		c.Begin(id, append([]string{"lock", lock, "--"}, command...)...)
		c.Noted(id, "enter", lock)
	}
	for _, name := range []string{"backup", "reindex", "deploy.sh"} {
		require.NoError(t, os.WriteFile(c.Path(name), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700))
	}
	hold(1, "nightly-backup", "./backup", "--all", "/srv")
	hold(2, "catalogue", "./reindex", "--full")
	hold(3, "deploy", "./deploy.sh", "web")
	c.Begin(2, "lock", "deploy", "--", "./deploy.sh", "mail")
	c.Noted(2, "ticket", "deploy")
	c.Begin(2, "lock", "nightly-backup", "--", "./backup", "--all", "/home")
	c.Noted(2, "ticket", "nightly-backup")
	for _, name := range []string{"web", "reindex", "certificates"} {
		c.Run(2, 0, "create", name)
	}
	return c
}

var colours = regexp.MustCompile("\x1b\\[[0-9;]*3[0-7]m")

// TestLive: three real hosts, of which one dies and one restarts.
func TestLive(t *testing.T) {
	c := scene(t)
	x := open(t, 80, 24, nil, c.Ctl(1, "top"))
	x.shows("all is well", "3 live", "HOSTS 3", "LOCKS 6", "db1 (1)", "this host", "deploy", "2 waited for")
	require.Regexp(t, colours, x.coloured())

	// Keys.
	x.press("?")
	x.shows("it is renewed six times per lease", "share these reads", "esc back")
	x.back()
	x.press("/", "deplo")
	x.shows("LOCKS 1 of 6", "/ deplo_")
	x.press("Enter", "Enter")
	x.shows("lock deploy", "held by", "db3 (3)", "./deploy.sh web", "waiting hosts, in order", "1. waiting")
	x.back()
	x.shows("LOCKS 1 of 6")
	x.press("Escape")
	x.shows("LOCKS 6", "by need")
	x.press("s")
	x.shows("by name")
	x.press("Home", "Enter")
	x.shows("host db1 (1)", "it holds", "nightly-backup")
	x.back()
	x.press("End")
	x.until("the last lock is selected", func(s string) bool { return regexp.MustCompile(`(?m)^▸ web\b`).MatchString(s) })
	x.press("p")
	paused := x.shows("paused at")
	c.Run(2, 0, "lock", "web", "--", "true")
	x.resize(80, 25)
	x.resize(80, 24)
	require.Equal(t, paused, x.shows("paused at"))
	x.press("p")
	x.until("it goes on", func(s string) bool { return !strings.Contains(s, "paused") })

	// Sizes.
	x.resize(120, 40)
	wide := x.shows("COMMAND", "./deploy.sh web", "EVENTS")
	for _, l := range strings.Split(wide, "\n") {
		require.LessOrEqual(t, len([]rune(l)), 120)
	}
	for _, size := range [][2]int{{20, 6}, {3, 2}, {1, 1}, {200, 60}} {
		x.resize(size[0], size[1])
		x.press("Down")
	}
	x.shows("LOCKS 6", "EVENTS")

	// A host dies.
	x.resize(120, 30)
	x.press("s", "s", "s", "Tab", "Tab")
	x.shows("by need")
	c.Kill(3)
	x.shows("host 3 (db3) is silent", "lock deploy is stuck", "dead in", "bakeryctl evict 3")
	picture(t, x)
	x.shows("host 3 (db3) is dead: its locks are free", "dead")
	x.until("the waiter has the lock", func(s string) bool {
		return regexp.MustCompile(`deploy +held +db2`).MatchString(s)
	})

	// A name that would reverse the rest of its line, and one of wide letters.
	c.Run(2, 0, "create", "flip\u202eped 日本")
	screen := x.shows("LOCKS 7", `"flip\u202eped 日本"  free`)
	require.NotContains(t, screen, "\u202e")

	// bakeryd goes away and comes back: no hold is lost.
	x.press("Home")
	require.NoError(t, c.Up[1].Process.Signal(syscall.SIGTERM))
	require.NoError(t, c.Up[1].Wait())
	x.shows("no answer for", "since ", "as of ", "no new events at the moment")
	c.Start(1)
	x.until("it is back", func(s string) bool {
		return !strings.Contains(s, "no answer") && !strings.Contains(s, "no new events") && regexp.MustCompile(`nightly-backup +held +db1`).MatchString(s)
	})
	x.press("q")
	require.NotContains(t, x.shows("it ended with 0"), "HOSTS", "the terminal is restored")
}

// TestNoColour: the screen without colours, and with the disk only.
func TestNoColour(t *testing.T) {
	c := scene(t)
	t.Run("NO_COLOR", func(t *testing.T) {
		x := open(t, 80, 24, []string{"NO_COLOR=1"}, c.Ctl(1, "top"))
		x.shows("all is well", "LOCKS 6")
		require.NotContains(t, x.coloured(), "\x1b[", "only letters")
		x.press("C-c")
		x.shows("it ended with 0")
	})
	t.Run("dumb", func(t *testing.T) {
		cmd := c.Ctl(1, "top")
		cmd.Args = append([]string{"env", "TERM=dumb"}, cmd.Args...)
		x := open(t, 120, 24, nil, cmd)
		x.shows("TERM is dumb", "bakeryctl top --once", "it ended with 64")
	})
	t.Run("status", func(t *testing.T) {
		x := open(t, 120, 50, nil, c.Ctl(1, "status"))
		x.shows("it ended with 0")
		require.Regexp(t, colours, x.coloured())
		x = open(t, 120, 50, []string{"NO_COLOR=1"}, c.Ctl(1, "status"))
		x.shows("it ended with 0")
		require.NotContains(t, x.coloured(), "\x1b[")
	})
	t.Run("device", func(t *testing.T) {
		x := open(t, 100, 30, nil, exec.Command(filepath.Join(browser.Bin, "bakeryctl"), "top", "--device", c.Path("locks.img")))
		x.shows("read from the device", "HOSTS 3", "LOCKS 6", "renewed")
		c.Kill(2)
		x.shows("host 2 (db2) is silent")
		x.press("q")
		x.shows("it ended with 0")
	})
}

// picture makes a browser draw the screen.
func picture(t *testing.T, x *terminal) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "top.html")
	require.NoError(t, os.WriteFile(path, []byte(page(strings.TrimRight(x.coloured(), "\n"))), 0o600))
	b := browser.Open(t, path, `document.getElementById('screen').textContent.includes('bakeryctl top')`)
	box := browser.Eval[[]float64](b, `(() => { const r = document.createRange(); r.selectNodeContents(document.getElementById('screen'));
		const x = r.getBoundingClientRect(); return [x.right, x.bottom] })()`)
	require.Len(t, box, 2, fmt.Sprint(box))
	b.Media("dark", int64(box[0])+18, int64(box[1])+14)
	b.Shot("top")
}
