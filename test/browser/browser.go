// Package browser has the tools of tests of pages: a chromium, a tab that records all messages of
// the browser, and bakeryds on files. It is a separate module, so that nothing else needs a
// browser's protocol.
package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var shots = flag.String("shots", "", "leave pictures in this directory")

// Bin is the directory of the built programs.
var Bin string

// Main runs the tests of a package, and ends the browser.
func Main(m *testing.M) {
	flag.Parse()
	if disk := os.Getenv("BAKERY_TEST_DIR"); disk != "" { // a tmpfs has no direct IO
		os.Setenv("TMPDIR", disk)
	}
	dir, err := os.MkdirTemp("", "bakery-page")
	if err != nil {
		panic(err)
	}
	Bin = dir
	code := m.Run()
	endBrowser()
	if err := os.RemoveAll(dir); err != nil && code == 0 {
		panic(err)
	}
	os.Exit(code)
}

// endBrowser ends the browser and waits for its end.
var endBrowser = func() {}

// chromium is started once, for all tests.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(Generous), chromedp.UserDataDir(filepath.Join(Bin, "profile")))
	ctx, _ := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, _ = chromedp.NewContext(ctx)
	endBrowser = func() { _ = chromedp.Cancel(ctx) }
	return ctx, chromedp.Do(ctx)
})

// Tab is a page in the browser, with all its messages.
type Tab struct {
	T *testing.T // the current test

	ctx  context.Context
	home string // prefix of the allowed requests
	mu   sync.Mutex
	said []string // errors, refusals and console output
	sent []string // other requests
}

// Open shows the page in a file, and waits until an expression is true.
func Open(t *testing.T, path, ready string) *Tab {
	t.Helper()
	return show(t, "file://"+path, &Tab{T: t, home: "file:"}, ready)
}

// Visit shows the page of a server; requests to that server are allowed.
func Visit(t *testing.T, url, ready string) *Tab {
	t.Helper()
	return show(t, url, &Tab{T: t, home: url}, ready)
}

func show(t *testing.T, url string, b *Tab, ready string) *Tab {
	t.Helper()
	browser, err := chromium()
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("no chromium to look at the page with: ", err)
	}
	require.NoError(t, err)
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	b.ctx = ctx
	require.NoError(t, chromedp.Listen(ctx, b.hear)) // opens the tab
	b.ctx, cancel = context.WithTimeout(ctx, 5*Generous)
	t.Cleanup(cancel)
	Call(b, network.Enable, network.EnableParams{})
	Call(b, log.Enable, cdp.Empty{})
	b.Do(chromedp.EmulateViewport(1280, 800), chromedp.Navigate(url))
	b.Until(ready)
	return b
}

func (b *Tab) hear(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, ev.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.said = append(b.said, fmt.Sprintf("console: %s", ev.Type))
	case *log.EventEntryAdded:
		b.said = append(b.said, ev.Entry.Text)
	case *page.EventJavascriptDialogOpening:
		b.said = append(b.said, "dialog: "+ev.Message)
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(ev.Request.URL, b.home) {
			b.sent = append(b.sent, ev.Request.URL)
		}
	}
}

// Excuse forgets expected messages.
func (b *Tab) Excuse(words string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = slices.DeleteFunc(b.said, func(s string) bool { return strings.Contains(s, words) })
}

// Quiet checks that the page caused no error and made no other requests.
func (b *Tab) Quiet() {
	b.T.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.T, b.said)
	require.Empty(b.T, b.sent)
}

// Context returns the context for actions of chromedp.
func (b *Tab) Context() context.Context { return b.ctx }

// Do executes actions.
func (b *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.T.Helper()
	require.NoError(b.T, chromedp.Do(b.ctx, actions...))
}

// Call executes a command for which chromedp has no action.
func Call[P, R any](b *Tab, cmd cdp.Command[P, R], params P) {
	b.T.Helper()
	_, err := chromedp.Call(b.ctx, cmd, params)
	require.NoError(b.T, err)
}

// Eval returns the value of an expression.
func Eval[T any](b *Tab, expression string, opts ...chromedp.EvaluateOption) T {
	b.T.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, opts...))
	require.NoError(b.T, err, expression)
	return v
}

// Until waits until an expression is true.
func (b *Tab) Until(expression string) {
	b.T.Helper()
	require.Eventually(b.T, func() bool {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		return err == nil && ok
	}, Generous, Soon, expression)
}

// Key presses keys.
func (b *Tab) Key(keys string) { b.Do(chromedp.KeyEvent(keys)) }

// Shot returns a picture, and stores it with -shots.
func (b *Tab) Shot(name string) []byte {
	b.T.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("new Promise((f) => requestAnimationFrame(() => setTimeout(() => f(true), 30)))", chromedp.EvalAwaitPromise))
	require.NoError(b.T, err)
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b.T, err)
	require.Greater(b.T, len(png), 5000)
	if *shots != "" {
		require.NoError(b.T, os.MkdirAll(*shots, 0o755))
		require.NoError(b.T, os.WriteFile(filepath.Join(*shots, name+".png"), png, 0o644))
	}
	return png
}

// Media sets the colour scheme, light or dark, and the size.
func (b *Tab) Media(scheme string, width, height int64) {
	b.T.Helper()
	Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.Do(chromedp.EmulateViewport(width, height))
}
