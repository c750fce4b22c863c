// Package docs only has a test, which compares the guides with the programs: commands in them must
// parse, links must have targets, and the times of the lease must be those of daemon/lease.
package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	readme   = "../../README.md"
	security = "../../.github/SECURITY.md"
)

// documents returns the guides, the README and the security policy of the project, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*.md")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	texts := map[string]string{}
	for _, p := range append(paths, readme, security) {
		text, err := os.ReadFile(p)
		require.NoError(t, err)
		texts[p] = string(text)
	}
	return texts
}

var (
	fence = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")
	span  = regexp.MustCompile("`([^`\n]+)`")
	link  = regexp.MustCompile(`\]\(([^)\s]*)\)`)
)

func TestLinks(t *testing.T) {
	for p, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := p
			if file != "" {
				target = filepath.Join(filepath.Dir(p), file)
				_, err := os.Stat(target)
				require.NoError(t, err, "%s links to %s", p, m[1])
			}
			if anchor != "" {
				there, err := os.ReadFile(target)
				require.NoError(t, err)
				require.Contains(t, anchors(string(there)), anchor, "%s links to %s", p, m[1])
			}
		}
	}
}

// anchors returns the anchors of a page's headings.
func anchors(text string) (found []string) {
	for line := range strings.Lines(fence.ReplaceAllString(text, "")) {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			found = append(found, strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
					return unicode.ToLower(r)
				}
				return -1
			}, strings.TrimSpace(heading)))
		}
	}
	return found
}

// programs are bakeryd and bakeryctl of this tree. Their help is read once for each command.
type programs struct {
	dir  string
	help map[string]string
}

func build(t *testing.T) *programs {
	t.Helper()
	p := &programs{t.TempDir(), map[string]string{}}
	out, err := exec.Command("go", "build", "-o", p.dir, "../../cmd/bakeryd", "../../cmd/bakeryctl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return p
}

// of returns the flags that a command's help lists, and the commands below it.
func (p *programs) of(command ...string) (flags, commands map[string]bool, err error) {
	key := strings.Join(command, " ")
	if p.help[key] == "" {
		out, err := exec.Command(filepath.Join(p.dir, command[0]), append(command[1:], "--help")...).CombinedOutput()
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %s", key, out)
		}
		p.help[key] = string(out)
	}
	flags, commands = map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(p.help[key]) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "   ") {
			commands[fields[0]] = true
		}
		for _, f := range fields {
			f = strings.TrimSuffix(f, ",")
			if !strings.HasPrefix(f, "-") {
				break
			}
			flags[f] = true
		}
	}
	return flags, commands, nil
}

// check returns an error unless words are a valid command line. Words after -- belong to another
// program.
func (p *programs) check(words []string) error {
	command := []string{path.Base(words[0])}
	rest := words[1:]
	flags, commands, err := p.of(command...)
	if err != nil {
		return err
	}
	if command[0] == "bakeryctl" && len(rest) > 1 && rest[0] == "--socket" { // the one flag that may precede the command
		rest = rest[2:]
	}
	for command[0] == "bakeryctl" && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		if len(command) == 2 && command[1] != "value" || len(command) == 3 {
			break // the rest are arguments
		}
		if !commands[rest[0]] {
			return fmt.Errorf("%s has no command %q", strings.Join(command, " "), rest[0])
		}
		command, rest = append(command, rest[0]), rest[1:]
		if flags, commands, err = p.of(command...); err != nil {
			return err
		}
	}
	for _, w := range rest {
		name, _, _ := strings.Cut(w, "=")
		switch {
		case w == "--":
			return nil
		case !strings.HasPrefix(w, "-") || w == "-" || flags[name]:
		default:
			return fmt.Errorf("%s has no flag %s", strings.Join(command, " "), name)
		}
	}
	return nil
}

// words splits a command line roughly as a shell does. Quoted words get a leading zero byte.
func words(line string) (out []string) {
	var word strings.Builder
	quote, begun := rune(0), false
	end := func() {
		if begun {
			out = append(out, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			if !begun {
				word.WriteByte(0)
			}
			quote, begun = r, true
		case unicode.IsSpace(r):
			end()
		case strings.ContainsRune("|&;()<>", r):
			end()
			out = append(out, ";")
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	end()
	return out
}

// commandLines finds every call of the programs in a line, also within quotes.
func commandLines(line string) (found [][]string) {
	all := words(line)
	first := 0 // start of the command that contains the word
	for i, w := range all {
		if w == ";" {
			first = i + 1
			continue
		}
		if quoted, ok := strings.CutPrefix(w, "\x00"); ok {
			found = append(found, commandLines(quoted)...)
			continue
		}
		if name := path.Base(w); name != "bakeryctl" && name != "bakeryd" || all[first] == "systemctl" || all[first] == "journalctl" {
			continue
		}
		call := []string{w}
		for _, next := range all[i+1:] {
			if next == ";" || next == "#" {
				break
			}
			call = append(call, next)
		}
		found = append(found, call)
	}
	return found
}

// lines returns the command lines in a document: blocks of sh, console lines with a prompt, and
// spans that begin with a program.
func lines(text string) (typed []string) {
	prompt := regexp.MustCompile(`^[a-z0-9]*[#$] `)
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[2], "\\\n", " ")) {
			switch {
			case block[1] == "console" && !prompt.MatchString(line):
			case block[1] == "sh", block[1] == "console":
				line, _, _ = strings.Cut(prompt.ReplaceAllString(line, ""), "  # ")
				typed = append(typed, strings.TrimSpace(line))
			}
		}
	}
	for _, m := range span.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		if strings.HasPrefix(m[1], "bakeryctl ") || strings.HasPrefix(m[1], "bakeryd ") {
			typed = append(typed, m[1])
		}
	}
	return typed
}

func TestCommands(t *testing.T) {
	p := build(t)
	checked := 0
	for name, text := range documents(t) {
		for _, line := range lines(text) {
			for _, call := range commandLines(line) {
				require.NoError(t, p.check(call), "%s: %s", name, line)
				checked++
			}
		}
	}
	require.Greater(t, checked, 100, "most commands were not found")

	for _, wrong := range []string{"bakeryctl lokc x -- true", "bakeryctl lock --nonesuch x", "bakeryd --devise x", "sh -c 'bakeryctl value got'",
		"bakeryctl value get --nonesuch x", "bakeryctl status -z"} {
		for _, call := range commandLines(wrong) {
			require.Error(t, p.check(call), wrong)
		}
		require.Len(t, commandLines(wrong), 1)
	}

	flags, _, err := p.of("bakeryd")
	require.NoError(t, err)
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile(`\bBAKERYD_([A-Z_]+)\b`).FindAllStringSubmatch(text, -1) {
			require.True(t, flags["--"+strings.ToLower(strings.ReplaceAll(m[1], "_", "-"))], "%s: %s", name, m[0])
		}
	}
}

// TestLeaseTable: lease-and-policy.md has a row for each of these times, with the code's values.
func TestLeaseTable(t *testing.T) {
	rows := map[string]func(timing.Times) time.Duration{
		"a host renews every":                               timing.Times.Renew,
		"one request may take, at the end of the lease":     timing.Times.Budget,
		"others call it silent after":                       timing.Times.Alive,
		"its commands get SIGTERM at":                       func(l timing.Times) time.Duration { return l.Lease - l.Grace() },
		"SIGKILL at":                                        func(l timing.Times) time.Duration { return l.Lease },
		"others have its locks at":                          timing.Times.Dead,
		"time-out of the watchdog, if armed":                timing.Times.Watchdog,
		"others have its locks at, with a watchdog":         func(l timing.Times) time.Duration { return l.Dead() + l.Watchdog() },
		"policy fence: time for one attempt":                timing.Times.FenceTime,
		"policy fence: the next host tries after":           timing.Times.FenceWindow,
		"to join, on a device that answers within 0.1 s":    timing.Times.ShortWait,
		"to join, on a slower one or one slow for a moment": timing.Times.LongWait,
		"a path may hang for, at most":                      func(l timing.Times) time.Duration { return l.Lease / 2 },
	}
	checkTimes(t, rows, "| | lease ", func(d time.Duration) timing.Times { return timing.Times{Lease: d} })
}

// TestFenceAfterTable: lease-and-policy.md has a row for each of these times, with the code's values.
func TestFenceAfterTable(t *testing.T) {
	const lease = 30 * time.Second
	rows := map[string]func(timing.Times) time.Duration{
		"a host renews every":                                   timing.Times.Renew,
		"others call it silent after":                           timing.Times.Alive,
		"it grants no locks from":                               timing.Times.Sure,
		"others fence it at":                                    func(x timing.Times) time.Duration { return x.FenceAfter },
		"a path may hang for, at most":                          func(x timing.Times) time.Duration { return x.FenceAfter / 2 },
		"IO of one lock may hang for, at most":                  timing.Times.Stuck,
		"if the fence fails, the next host tries after another": timing.Times.FenceWindow,
	}
	checkTimes(t, rows, "| lease 30 s | fence-after ", func(d time.Duration) timing.Times {
		require.GreaterOrEqual(t, d, layout.MinFenceAfter(lease))
		return timing.Times{Lease: lease, FenceAfter: d}
	})
}

// checkTimes checks the table of lease-and-policy.md whose head begins with a text.
func checkTimes(t *testing.T, rows map[string]func(timing.Times) time.Duration, head string, times func(time.Duration) timing.Times) {
	t.Helper()
	text, err := os.ReadFile("lease-and-policy.md")
	require.NoError(t, err)
	what := head[strings.LastIndex(head, "| ")+2:]
	var leases []timing.Times
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if leases == nil && strings.HasPrefix(line, head) {
			for _, c := range cells[1:] {
				d, err := time.ParseDuration(strings.ReplaceAll(strings.TrimPrefix(c, what), " ", ""))
				require.NoError(t, err)
				leases = append(leases, times(d))
			}
		}
		of, ok := rows[cells[0]]
		if !ok || leases == nil {
			continue
		}
		require.Len(t, cells, len(leases)+1, line)
		for i, l := range leases {
			require.Equal(t, fmt.Sprintf("%.3g s", of(l).Seconds()), cells[i+1], "%s, %v", cells[0], l)
		}
		delete(rows, cells[0])
	}
	require.Len(t, leases, 4)
	require.Empty(t, rows, "rows missing in the table")
}
