package timeline

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/browser"
)

func TestMain(m *testing.M) { browser.Main(m) }

func open(t *testing.T, path string) *browser.Tab {
	t.Helper()
	return browser.Open(t, path, `!!globalThis.timeline && timeline.view.painted !== undefined`)
}

func span(b *browser.Tab) float64 {
	return browser.Eval[float64](b, "timeline.view.till - timeline.view.from")
}

// filter enters the name of a lock.
func filter(b *browser.Tab, words string) {
	b.T.Helper()
	b.Do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => { const f = document.getElementById('filter'); f.value = %q; f.dispatchEvent(new Event('input')); })()`, words)))
}

// wheel turns the mouse wheel over the middle of the rows.
func wheel(b *browser.Tab, by, x, y float64) {
	b.T.Helper()
	browser.Call(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseWheel, X: x, Y: y, DeltaX: 0.001, DeltaY: by})
}

// draw makes bakeryctl draw journals as a page.
func draw(t *testing.T, want int, args ...string) (path, said string) {
	t.Helper()
	require.NoError(t, browser.Build())
	path = filepath.Join(t.TempDir(), "page.html")
	cmd := exec.Command(filepath.Join(browser.Bin, "bakeryctl"), append([]string{"timeline", "-o", path}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	_ = cmd.Run()
	require.Equal(t, want, cmd.ProcessState.ExitCode(), errs.String())
	return path, errs.String()
}
