package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

var (
	bin  string            // directory of this tree's programs
	made map[string]string // generated files, by path
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if bin, err = os.MkdirTemp("", "bakery-generate."); err != nil {
			panic(err)
		}
		defer os.RemoveAll(bin)
		if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/bakeryd", "../../cmd/bakeryctl").CombinedOutput(); err != nil {
			panic(string(out))
		}
		if made, err = generate(release{"1.2.3~4.abc", "2026-03-01"}, bin, "../../layout/FORMAT.md"); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

// tool returns the path of a program, and skips the test if it is missing.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s", name)
	}
	return path
}

// written writes all files and returns their directory.
func written(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, run(release{"1.2.3~4.abc", "2026-03-01"}, bin, "../../layout/FORMAT.md", dir))
	return dir
}

var pageNames = []string{"man/bakeryd.8", "man/bakeryctl.8", "man/bakery-lockspace.5"}

// TestRendered: groff and mandoc have no warning about the pages.
func TestRendered(t *testing.T) {
	groff, mandoc := tool(t, "groff"), tool(t, "mandoc")
	dir := written(t)
	for _, name := range pageNames {
		for _, width := range []string{"78n", "80n", "132n"} {
			cmd := exec.Command(groff, "-t", "-man", "-Tutf8", "-ww", "-rLL="+width, name)
			cmd.Dir = dir
			var said strings.Builder
			cmd.Stderr = &said
			out, err := cmd.Output()
			require.NoError(t, err, "%s: %s", name, &said)
			require.NotEmpty(t, out)
			require.Empty(t, said.String(), "%s at %s", name, width)
		}
		cmd := exec.Command(mandoc, "-Tlint", name)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		require.Empty(t, string(out), name)
	}
}

// rendered returns a page as plain text, with runs of blanks as one.
func rendered(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command(tool(t, "groff"), "-t", "-man", "-Tascii", "-P-cbou", "-rLL=1000n")
	cmd.Stdin = strings.NewReader(made[name])
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }

// TestNothingIsLost: a page has every line of every help text.
func TestNothingIsLost(t *testing.T) {
	var ask func(page, program string, words ...string)
	asked := 0
	ask = func(page, program string, words ...string) {
		out, err := exec.Command(filepath.Join(bin, program), append(slices.Clone(words), "--help")...).Output()
		require.NoError(t, err)
		asked++
		in := ""
		for line := range strings.Lines(string(out)) {
			if m := heading.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
				in = m[1]
				continue
			}
			if m := inline.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				in, line = m[1], m[2]
			}
			f := strings.Fields(line)
			switch {
			case len(f) == 0, in == "Global Flags", in == "Additional help topics", in == "Usage", f[0] == "Use":
			case in == "Available Commands":
				if f[0] != "help" {
					ask(page, program, append(slices.Clone(words), f[0])...)
				}
			case slices.Equal(words, []string{"value"}): // only groups other commands
			default:
				for _, w := range f {
					w = strings.Trim(w, "`,;.:")
					require.True(t, strings.Contains(page, w), "%s %v: %q of: %s", program, words, w, line)
				}
				if in == "Examples" {
					require.True(t, strings.Contains(page, squeezed(line)), "%s %v: %s", program, words, line)
				}
			}
		}
	}
	ask(squeezed(rendered(t, "man/bakeryd.8")), "bakeryd")
	ask(squeezed(rendered(t, "man/bakeryctl.8")), "bakeryctl")
	require.Greater(t, asked, 20)
}

// sectionsOf returns the text of each section, by title.
func sectionsOf(text string) map[string]string {
	parts := map[string]string{}
	title := ""
	for line := range strings.Lines(text) {
		if regexp.MustCompile(`^[A-Z]`).MatchString(line) {
			title = strings.TrimSpace(line)
			continue
		}
		parts[title] += line
	}
	return parts
}

func TestSections(t *testing.T) {
	for _, name := range pageNames {
		parts := sectionsOf(rendered(t, name))
		want := []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "ENVIRONMENT", "FILES", "EXIT STATUS", "EXAMPLES", "SEE ALSO"}
		if strings.HasSuffix(name, "5") {
			want = []string{"NAME", "DESCRIPTION", "GEOMETRY", "SUPERBLOCK", "HOST RECORD", "DIRECTORY ENTRY", "SLOT", "EXAMPLES", "SEE ALSO"}
		}
		for _, title := range want {
			require.NotEmpty(t, strings.TrimSpace(parts[title]), "%s: %s", name, title)
		}
		require.Contains(t, made[name], "2026-03-01")
		require.Contains(t, made[name], `1.2.3\(ti4.abc`)
	}
}

// constants returns the exit codes in a program's source.
func constants(t *testing.T, file string) (codes []int) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(strings.ToLower(v.Names[0].Name), "exit") && len(v.Values) == 1 {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.INT {
				code, err := strconv.Atoi(lit.Value)
				require.NoError(t, err)
				codes = append(codes, code)
			}
		}
		return true
	})
	slices.Sort(codes)
	return codes
}

// TestExitStatus: the pages list exactly the exit codes of the programs.
func TestExitStatus(t *testing.T) {
	for name, source := range map[string]string{"man/bakeryd.8": "../../cmd/bakeryd/run.go", "man/bakeryctl.8": "../../cmd/bakeryctl/internal/cli/exit.go"} {
		var listed []int
		for _, m := range regexp.MustCompile(`(?m)^ +(\d+)(?:\+N)?  +\S`).FindAllStringSubmatch(sectionsOf(rendered(t, name))["EXIT STATUS"], -1) {
			code, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			listed = append(listed, code)
		}
		slices.Sort(listed)
		want := constants(t, source)
		require.GreaterOrEqual(t, len(want), 5)
		require.Equal(t, want, listed, name)
	}
}

// TestExitCodesOfCommands: the codes that a command lists are codes of bakeryctl.
func TestExitCodesOfCommands(t *testing.T) {
	p, err := askPrograms(bin)
	require.NoError(t, err)
	have := constants(t, "../../cmd/bakeryctl/internal/cli/exit.go")
	checked := 0
	for _, c := range leaves(p.bakeryctl) {
		for _, line := range c.exits {
			if m := regexp.MustCompile(`^  (\d+)(?:\+N)?  `).FindStringSubmatch(line); m != nil {
				code, err := strconv.Atoi(m[1])
				require.NoError(t, err)
				require.Contains(t, have, code, "%s: %s", c.name(), line)
				checked++
			}
		}
	}
	require.Greater(t, checked, 40)
}

// TestFormatPage: the limits and magics in the page are those of the code.
func TestFormatPage(t *testing.T) {
	page := squeezed(rendered(t, "man/bakery-lockspace.5"))
	for _, want := range []string{
		"N, hosts 1.." + strconv.Itoa(layout.MaxHosts) + " ",
		"M, locks 1.." + strconv.Itoa(layout.MaxLocks) + " ",
		"length of the value 0.." + strconv.Itoa(layout.MaxValue) + " ",
		"request: length of the message 0.." + strconv.Itoa(layout.MaxRequest) + " ",
		"length of the name 1.." + strconv.Itoa(layout.MaxLockName) + "; 0 in a free entry",
		"BKSB superblock, BKHR host record, BKDE directory entry, BKSL slot",
		"format version, " + strconv.Itoa(layout.Version) + " ",
		"slot of host h in lock l, 0..M stride x (2 + N + M + l x N + h - 1)",
		"creation 1..2^44 ",
		"/usr/share/doc/bakeryd/PROTOCOL.md",
	} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, page, "`", "Markdown markup")
	require.NotContains(t, page, "**")

	for text, message := range map[string]string{"x": "has no title", "# X\n\n#### y": "unsupported level of heading", "# X\n```\ny": "without an end"} {
		_, err := lockspacePage(text, release{"1", "2026-03-01"})
		require.ErrorContains(t, err, message)
	}
}

// TestSettings: bakeryd.env has every variable once, commented out, and bakeryd accepts the values
// in it.
func TestSettings(t *testing.T) {
	text := made["bakeryd.env"]
	var env []string
	for line := range strings.Lines(text) {
		require.True(t, line == "\n" || strings.HasPrefix(line, "#"), line)
		if name, value, ok := strings.Cut(strings.TrimSpace(line[1:]), "="); ok && strings.HasPrefix(line, "#BAKERYD_") {
			env = append(env, name+"="+value)
		}
	}
	out, err := exec.Command(filepath.Join(bin, "bakeryd"), "--help").Output()
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-., )?--([a-z-]+) `).FindAllStringSubmatch(string(out), -1) {
		name := "BAKERYD_" + strings.ToUpper(strings.ReplaceAll(m[1], "-", "_"))
		want := 1
		if m[1] == "help" || m[1] == "version" {
			want = 0
		}
		require.Equal(t, want, strings.Count(text, "\n#"+name+"="), name)
	}
	require.Contains(t, env, "BAKERYD_HANDOFF=8")
	require.Contains(t, env, "BAKERYD_SOCKET=/run/bakery/bakeryd.sock")
	require.Contains(t, env, "BAKERYD_RUNTIME_DIR=/run/bakery")
	require.Contains(t, env, "BAKERYD_NAME=")
	cmd := exec.Command(filepath.Join(bin, "bakeryd"))
	cmd.Env = env
	said, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "bakeryd: wrong command line: --device is missing\nhint: see bakeryd --help\n", string(said))
}

// TestParseHelp parses every form of help text, and reports text that it cannot parse.
func TestParseHelp(t *testing.T) {
	c, below, err := parseHelp(`Do it.

It says:
more of it.

Usage:
  x y [flags]

It goes on.

Available Commands:
  get         Get it
  long-one    Do more

Flags:
  -w, --wait TIME   wait for TIME
                    and more
      --now         do not (default false)

Additional help topics:
  x topic     Its meaning

Signals: TERM ends it,
at once.

Exit codes: 0 when done; 64 for a wrong
command line; it is that.

Use "x [command] --help" for more information about a command.
`)
	require.NoError(t, err)
	require.Equal(t, []string{"Do it.", "", "It goes on."}, c.about)
	require.Equal(t, []string{"x y [flags]"}, c.usage)
	require.Equal(t, [][2]string{{"get", "Get it"}, {"long-one", "Do more"}}, below)
	require.Equal(t, []option{{"-w", "--wait", "TIME", "wait for TIME and more"}, {"", "--now", "", "do not (default false)"}}, c.flags)
	require.Equal(t, []section{{"It says", []string{"more of it."}}, {"Signals", []string{"TERM ends it,", "at once."}}}, c.sections)
	require.Equal(t, []string{"  0  when done", "  64  for a wrong command line; it is that"}, c.exits)
	require.Equal(t, map[string]string{"topic": "Its meaning"}, c.topics)

	for text, message := range map[string]string{"Flags:\n  wait\n": "not a line of a list of flags", "Available Commands:\n  get\n": "not a line of a list of commands"} {
		_, _, err := parseHelp(text)
		require.ErrorContains(t, err, message)
	}
}

func roff(write func(*page)) string {
	p := new(page)
	write(p)
	return p.String()
}

func TestRoff(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{"One. Two of", "--it, see flock(1)."}, "One.\nTwo of \\fB\\-\\-it\\fR, see \\fBflock\\fR(1).\n"},
		{[]string{".dot 'and' a\\b é"}, "\\&.dot \\(aqand\\(aq a\\eb \\[u00E9]\n"},
		{[]string{"  1   no", "      way", "  12  yes"}, ".TP\n\\fB1\\fR\nno way\n.TP\n\\fB12\\fR\nyes\n"},
		{[]string{"live    it is", "silent  it", "        is not"}, ".TP\n\\fBlive\\fR\nit is\n.TP\n\\fBsilent\\fR\nit is not\n"},
		{[]string{"a  b  c", "d  e  f"}, ".RS 2\n.nf\na  b  c\nd  e  f\n.fi\n.RE\n"},
		{[]string{"These:", "  - one", "    more", "  - two"}, "These:\n.IP \\(bu 2\none more\n.IP \\(bu 2\ntwo\n"},
		{[]string{"So:", "", "  run it", "    twice"}, "So:\n.PP\n.RS 2\n.nf\nrun it\n  twice\n.fi\n.RE\n"},
	} {
		require.Equal(t, c.want, roff(func(p *page) { p.prose(c.lines) }), "%q", c.lines)
	}
	require.Equal(t, "Of \\fBcode here\\fR and \\fIthis\\fR, \\fBthat\\fR, a link.\n",
		strings.ReplaceAll(roff(func(p *page) { p.marked("Of `code here` and *this*, **that**, [a link](x.md).") }), `\ `, " "))
}
