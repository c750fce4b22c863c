//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTutorial types the commands of the tutorial into one shell per terminal, and compares what they
// print with the text. Numbers may differ, and a line "..." stands for any lines.
func TestTutorial(t *testing.T) {
	text, err := os.ReadFile("../../packaging/docs/tutorial.md")
	require.NoError(t, err)
	dir, err := os.MkdirTemp(base, "tutorial")
	require.NoError(t, err)
	loops := func() []string {
		out, err := exec.Command("losetup", "--noheadings", "--output=NAME", "--associated", filepath.Join(dir, "disk.img")).CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.Fields(string(out))
	}
	t.Cleanup(func() {
		for _, dev := range loops() { // the test failed
			require.NoError(t, exec.Command("losetup", "--detach", dev).Run())
		}
	})
	typed := typedCommands(strings.ReplaceAll(string(text), "--lease 10s", leased(10*time.Second)))
	require.Greater(t, len(typed), 30, "most commands were not found")
	r := &reader{dir: dir, terminals: map[string]*terminal{}}
	for _, c := range typed {
		r.terminal(t, c.terminal).follow(t, c)
	}
	require.Empty(t, loops(), "the tutorial detaches its loop device")
}

// typedCommand is what is typed into a terminal, and the output that follows. The line is empty if a
// command that is still running prints the output.
type typedCommand struct{ terminal, line, output string }

// typedCommands returns the commands of a text: blocks of sh, and console lines with a prompt.
func typedCommands(text string) (all []typedCommand) {
	block := regexp.MustCompile("(?ms)^(?:<!-- terminal (\\w+) -->\n)?```(sh|console)\n(.*?)^```$")
	prompt := regexp.MustCompile(`^(\w*)# (.*\n)$`)
	for _, b := range block.FindAllStringSubmatch(text, -1) {
		if b[2] == "sh" {
			all = append(all, typedCommand{line: b[3]})
			continue
		}
		if b[1] != "" {
			all = append(all, typedCommand{terminal: b[1]})
		}
		for line := range strings.Lines(b[3]) {
			if m := prompt.FindStringSubmatch(line); m != nil {
				all = append(all, typedCommand{terminal: m[1], line: m[2]})
			} else {
				all[len(all)-1].output += line
			}
		}
	}
	return all
}

// reader has the terminals of a reader of the tutorial, by the names in their prompts.
type reader struct {
	dir       string
	terminals map[string]*terminal
}

// terminal returns the terminal with a name. The first time, and after its shell has ended, it starts
// a shell there: one that stands for a host if it has a name.
func (r *reader) terminal(t *testing.T, name string) *terminal {
	t.Helper()
	if s := r.terminals[name]; s != nil && !s.exited() {
		return s
	}
	shell := exec.Command("bash")
	if name != "" {
		shell = exec.Command("./host", name)
	}
	s := &terminal{name: name, ended: make(chan struct{})}
	shell.Dir, shell.Stdout, shell.Stderr = r.dir, s, s
	shell.Env = append([]string{"PATH=" + filepath.Dir(plain.bakeryctl) + ":" + os.Getenv("PATH")}, testEnv[1:]...)
	in, err := shell.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, shell.Start())
	go func() {
		_ = shell.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = in.Close()
		if name != "" {
			_ = shell.Process.Kill() // kills all processes of the host
		}
		<-s.ended
	})
	s.in, r.terminals[name] = in, s
	return s
}

// terminal is a shell that reads commands from a pipe.
type terminal struct {
	name  string
	in    io.Writer
	ended chan struct{} // closed when the shell has ended
	typed int           // the number of commands
	seen  int           // the length of the output that was compared, without endMark

	mu  sync.Mutex
	out bytes.Buffer // guarded by mu
}

// noise are the lines that the tutorial leaves out: those of the shell about jobs that were killed, and
// that of bakeryctl if bakeryd starts again slowly.
var noise = regexp.MustCompile(`(?m)^(?:bash: line \d+: +\d+ (?:Killed|Terminated) .*|bakeryctl: bakeryd is gone; .*)\n`)

// endMark is printed after each command.
const endMark = "(the command has ended)\n"

func (s *terminal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *terminal) exited() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// output returns the output that was not compared, and reports whether all commands have ended.
func (s *terminal) output() (text string, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := noise.ReplaceAllString(s.out.String(), "")
	return strings.ReplaceAll(all, endMark, "")[s.seen:], strings.Count(all, endMark) == s.typed
}

func (s *terminal) enter(t *testing.T, line string) {
	t.Helper()
	_, err := fmt.Fprintf(s.in, "%secho '%s'\n", line, strings.TrimSpace(endMark))
	require.NoError(t, err)
	s.typed++
}

// follow types a command and waits until it has printed what the tutorial shows, or has ended if it
// prints nothing. A command that shows a state is repeated until it shows that of the tutorial.
func (s *terminal) follow(t *testing.T, c typedCommand) {
	t.Helper()
	if c.line != "" {
		s.enter(t, c.line)
	}
	want, repeat := printed(c.output), regexp.MustCompile(`^bakeryctl (hosts|status|events)\b`).MatchString(c.line)
	text := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var ended bool
		text, ended = s.output()
		switch {
		case c.line == "exit\n" && s.exited():
			return
		case want.MatchString(text) && (ended || c.output != ""):
			t.Logf("%s# %s%s", s.name, c.line, text)
			s.seen += len(text)
			return
		case ended && repeat:
			s.seen += len(text)
			s.enter(t, c.line)
		}
	}
	require.Equal(t, c.output, text, "%s# %s", s.name, c.line)
}

// printed returns a pattern for an output: numbers may differ, columns may be wider, and a line "..."
// stands for any
// lines, and elsewhere for any text.
func printed(output string) *regexp.Regexp {
	var all strings.Builder
	for line := range strings.Lines(output) {
		if line == "...\n" {
			all.WriteString("(?:.*\n)*")
			continue
		}
		p := regexp.QuoteMeta(strings.Join(strings.Fields(line), " "))
		p = strings.ReplaceAll(p, `\.\.\.`, ".*")
		p = regexp.MustCompile(`\b[0-9a-f]{16}\b`).ReplaceAllString(p, "INCARNATION")
		p = regexp.MustCompile(`[0-9]+(\\\.[0-9]+)?`).ReplaceAllString(p, "[0-9.]+")
		p = strings.ReplaceAll(p, "INCARNATION", "[0-9a-f]{16}")
		// bakeryctl leaves the holder out if bakeryd does not answer within a second.
		p = regexp.MustCompile(`held by .*; `).ReplaceAllString(p, "(?:$0)?")
		p = regexp.MustCompile(`: held by .*$`).ReplaceAllString(p, "(?:$0)?")
		all.WriteString(" *" + strings.ReplaceAll(p, " ", " +") + " *\n")
	}
	return regexp.MustCompile("^" + all.String() + "$")
}
