package top

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/browser"
)

// terminal is a separate tmux with one program in it.
type terminal struct {
	t      *testing.T
	socket string
}

// open runs a command in a terminal, with some of the environment.
func open(t *testing.T, wide, high int, env []string, command *exec.Cmd) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no tmux here, and CI skips nothing: ", err)
		}
		t.Skip("SKIP: no tmux here: ", err)
	}
	dir, err := os.MkdirTemp("", "tmux") // a short path
	require.NoError(t, err)
	x := &terminal{t, filepath.Join(dir, "s")}
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", x.socket, "kill-server").Run()
		require.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, browser.Generous, browser.Soon)
	})
	args := []string{"-S", x.socket, "-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(wide), "-y", strconv.Itoa(high)}
	for _, v := range append(env, "LC_ALL=C.UTF-8") {
		args = append(args, "-e", v)
	}
	quoted := []string{}
	for _, a := range command.Args {
		quoted = append(quoted, "'"+strings.ReplaceAll(a, "'", `'\''`)+"'")
	}
	// The exit code is shown, and the terminal stays until the end of the test.
	cmd := exec.Command("tmux", append(args, strings.Join(quoted, " ")+"; echo it ended with $?; exec sleep 1000")...)
	cmd.Dir = command.Dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return x
}

// tmux executes a command of tmux.
func (x *terminal) tmux(args ...string) string {
	x.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...).Output()
	require.NoError(x.t, err, "tmux %q", args)
	return string(out)
}

func (x *terminal) press(keys ...string) {
	x.t.Helper()
	x.tmux(append([]string{"send-keys"}, keys...)...)
}

// back leaves help or details. tmux would join an escape with a key that follows immediately.
func (x *terminal) back() {
	x.t.Helper()
	x.press("Escape")
	x.until("the end of that", func(screen string) bool { return !strings.Contains(screen, "esc back") })
}

func (x *terminal) resize(wide, high int) {
	x.t.Helper()
	x.tmux("resize-window", "-x", strconv.Itoa(wide), "-y", strconv.Itoa(high))
}

// screen returns the screen's text; coloured adds its colours as escape sequences.
func (x *terminal) screen() string   { x.t.Helper(); return x.tmux("capture-pane", "-p") }
func (x *terminal) coloured() string { x.t.Helper(); return x.tmux("capture-pane", "-p", "-e") }

// until waits for a screen, and returns it.
func (x *terminal) until(what string, is func(screen string) bool) string {
	x.t.Helper()
	var last string
	if !eventually(func() bool { last = x.screen(); return is(last) }) {
		x.t.Fatalf("not seen: %s; but:\n%s", what, last)
	}
	return last
}

// shows waits until all texts are on the screen.
func (x *terminal) shows(texts ...string) string {
	x.t.Helper()
	return x.until(fmt.Sprintf("%q", texts), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

// page returns a screen as an HTML page.
func page(coloured string) string {
	var b bytes.Buffer
	b.WriteString(`<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #16181d; color: #d7dae0 }
pre { margin: 0; padding: 14px 18px; font: 14px/19px "DejaVu Sans Mono", monospace }
.c1 { font-weight: bold; color: #fff } .c2 { color: #868c98 } .c31 { color: #ff7b72 } .c32 { color: #5ac26a } .c33 { color: #e3b341 }
</style><pre id="screen">`)
	on := map[string]bool{}
	for i, part := range strings.Split(coloured, "\x1b[") {
		text := part
		if i > 0 {
			codes, rest, _ := strings.Cut(part, "m")
			text = rest
			for code := range strings.SplitSeq(codes, ";") {
				switch code {
				case "", "0":
					clear(on)
				case "39":
					delete(on, "31")
					delete(on, "32")
					delete(on, "33")
				case "22":
					delete(on, "1")
					delete(on, "2")
				default:
					on[code] = true
				}
			}
		}
		class := ""
		for _, c := range []string{"1", "2", "31", "32", "33"} {
			if on[c] {
				class += " c" + c
			}
		}
		text = strings.NewReplacer("&", "&amp;", "<", "&lt;").Replace(text)
		fmt.Fprintf(&b, `<span class="%s">%s</span>`, strings.TrimSpace(class), text)
	}
	b.WriteString("</pre>")
	return b.String()
}
