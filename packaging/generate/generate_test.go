package generate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

var (
	bin  string            // directory of this tree's programs, and of the generated files
	made map[string]string // generated files, by path
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if bin, err = os.MkdirTemp("", "bakery-generate."); err != nil {
			panic(err)
		}
		defer os.RemoveAll(bin)
		run := func(program string, args ...string) {
			cmd := exec.Command(program, args...)
			cmd.Env = append(os.Environ(), "BAKERY_SOCKET=/set/by/a/user", "BAKERYD_HANDOFF=9")
			if out, err := cmd.CombinedOutput(); err != nil {
				panic(string(out))
			}
		}
		run("go", "build", "-tags", "packaging", "-o", bin, "../../cmd/bakeryd", "../../cmd/bakeryctl")
		run(filepath.Join(bin, "bakeryctl"), "generate", "1.2.3~4.abc", "2026-03-01", filepath.Join(bin, "bakeryd"), "../../layout/FORMAT.md", "../policy.example", filepath.Join(bin, "out"))
		made = map[string]string{}
		if err := fs.WalkDir(os.DirFS(filepath.Join(bin, "out")), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(filepath.Join(bin, "out", name))
			made[name] = string(text)
			return err
		}); err != nil {
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

// pageNames returns the names of all pages.
func pageNames() (names []string) {
	for name := range made {
		if strings.HasPrefix(name, "man/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestRendered: groff and mandoc have no warning about the pages.
func TestRendered(t *testing.T) {
	groff, mandoc := tool(t, "groff"), tool(t, "mandoc")
	require.Subset(t, pageNames(), []string{"man/bakery-lockspace.5", "man/bakery-policy.5", "man/bakeryctl-disk-replace.1", "man/bakeryctl-environment.7",
		"man/bakeryctl-exit-codes.7", "man/bakeryctl-lock.1", "man/bakeryctl-value-set.1", "man/bakeryctl.1", "man/bakeryd.8", "man/bakeryd.env.5"})
	for _, name := range pageNames() {
		for _, width := range []string{"78n", "80n", "132n"} {
			cmd := exec.Command(groff, "-t", "-man", "-Tutf8", "-ww", "-rLL="+width)
			cmd.Stdin = strings.NewReader(made[name])
			var said strings.Builder
			cmd.Stderr = &said
			out, err := cmd.Output()
			require.NoError(t, err, "%s: %s", name, &said)
			require.NotEmpty(t, out)
			require.Empty(t, said.String(), "%s at %s", name, width)
		}
		out, err := exec.Command(mandoc, "-Tlint", "-Wwarning", filepath.Join(bin, "out", name)).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		require.Empty(t, string(out), name)
	}
}

// TestWidth: a terminal of 80 columns shows the pages without broken lines. The diagrams of the lockspace are wider.
func TestWidth(t *testing.T) {
	for _, name := range pageNames() {
		if name == "man/bakery-lockspace.5" {
			continue
		}
		cmd := exec.Command(tool(t, "groff"), "-t", "-man", "-Tascii", "-P-cbou", "-rLL=78n")
		cmd.Stdin = strings.NewReader(made[name])
		out, err := cmd.Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			require.LessOrEqual(t, len(strings.TrimRight(line, "\n")), 80, "%s: %s", name, line)
		}
	}
}

// rendered returns a page as plain text.
func rendered(t *testing.T, name string) string {
	t.Helper()
	require.Contains(t, made, name)
	cmd := exec.Command(tool(t, "groff"), "-t", "-man", "-Tascii", "-P-cbou", "-rLL=1000n")
	cmd.Stdin = strings.NewReader(made[name])
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }

// help returns the help of a program or of one of its commands, in an empty environment.
func help(t *testing.T, program string, words ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, program), append(slices.Clone(words), "--help")...)
	cmd.Env = []string{}
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

var (
	heading = regexp.MustCompile(`^([A-Z][A-Za-z]*(?: [A-Za-z]+)*):$`)
	inline  = regexp.MustCompile(`^(Signals|Exit codes): (.*)$`)
)

// TestNothingIsLost: the page of a command has every word of its help, and every line of the examples.
func TestNothingIsLost(t *testing.T) {
	var ask func(page, program string, words ...string)
	asked := 0
	ask = func(name, program string, words ...string) {
		page := squeezed(rendered(t, name))
		asked++
		in := ""
		for line := range strings.Lines(help(t, program, words...)) {
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
					ask("man/"+strings.Join(append([]string{program}, append(words, f[0])...), "-")+".1", program, append(slices.Clone(words), f[0])...)
				}
			default:
				for _, w := range f {
					w = strings.ToLower(strings.Trim(w, "\"`,;.:()[]"))
					require.True(t, strings.Contains(strings.ToLower(page), w), "%s: %q of: %s", name, w, line)
				}
				if in == "Examples" {
					require.True(t, strings.Contains(page, squeezed(line)), "%s: %s", name, line)
				}
			}
		}
	}
	ask("man/bakeryd.8", "bakeryd")
	ask("man/bakeryctl.1", "bakeryctl")
	files := 0
	for _, name := range pageNames() {
		if strings.HasSuffix(name, ".5") || strings.HasSuffix(name, ".7") {
			files++
		}
	}
	require.Equal(t, len(pageNames()), asked+files, "all but the pages of files and topics")

	overview := squeezed(rendered(t, "man/bakeryctl.1"))
	for _, topic := range []string{"exit-codes", "environment"} {
		page := squeezed(rendered(t, "man/bakeryctl-"+topic+".7"))
		_, list, ok := strings.Cut(help(t, "bakeryctl", topic), "\n\n")
		require.True(t, ok)
		for _, w := range strings.Fields(list) {
			require.True(t, strings.Contains(page, w) && strings.Contains(overview, w), "%s: %q", topic, w)
		}
	}
	for _, name := range pageNames() {
		require.NotContains(t, made[name], "/set/by/a/user", name)
		if page, ok := strings.CutSuffix(strings.TrimPrefix(name, "man/"), ".1"); ok && strings.Count(page, "-") == 1 {
			require.Contains(t, overview, page+"(1)")
		}
	}
}

// TestOptions: each option begins an item, with its value; a default is at the end.
func TestOptions(t *testing.T) {
	stress := squeezed(rendered(t, "man/bakeryctl-stress.1"))
	require.Contains(t, stress, "--workers N use N workers (default 4)")
	require.Contains(t, stress, "--max-ticket N keep all numbers below N, at most 65536; in memory only --hold")
	require.Contains(t, stress, "--debug print each step")
	require.Contains(t, squeezed(rendered(t, "man/bakeryctl-lock.1")), "-n, --nonblock give up")
	require.Contains(t, squeezed(rendered(t, "man/bakeryd.8")), "--handoff times times a lock may pass between local clients while another host waits (default 8)")
	for _, name := range pageNames() {
		page := rendered(t, name)
		require.NotContains(t, page, "[=", name)
		require.NotContains(t, page, "``", name)
		for flag := range strings.SplitSeq(page, "\n") {
			require.NotRegexp(t, `^ +--[a-z-]+=`, flag, name)
		}
	}
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

// TestSections: every page has these sections, in the usual order.
func TestSections(t *testing.T) {
	for _, name := range pageNames() {
		page := rendered(t, name)
		parts := sectionsOf(page)
		want := []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"}
		switch filepath.Ext(name) {
		case ".5":
			want = []string{"NAME", "SYNOPSIS", "DESCRIPTION", "FILES", "EXAMPLES", "SEE ALSO"}
		case ".7":
			want = []string{"NAME", "DESCRIPTION", "EXAMPLES", "SEE ALSO"}
		}
		switch name {
		case "man/bakeryctl.1":
			want = []string{"NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"}
		case "man/bakeryd.8":
			want = []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SIGNALS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"}
		case "man/bakery-lockspace.5":
			want = []string{"NAME", "DESCRIPTION", "GEOMETRY", "SUPERBLOCK", "HOST RECORD", "DIRECTORY ENTRY", "SLOT", "EXAMPLES", "SEE ALSO"}
		}
		last := -1
		for _, title := range want {
			require.NotEmpty(t, strings.TrimSpace(parts[title]), "%s: %s", name, title)
			at := strings.Index("\n"+page, "\n"+title+"\n")
			require.Greater(t, at, last, "%s: %s", name, title)
			last = at
		}
		require.Regexp(t, `(?m)^\.TH .*2026-03-01.*1\.2\.3\\\(ti4\.abc`, made[name])
		require.Regexp(t, "^ *"+strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))+" - \\S", parts["NAME"])
	}
}

// TestAliases: the synopsis has the other names of a command.
func TestAliases(t *testing.T) {
	root := &cobra.Command{Use: "bakeryctl"}
	root.AddCommand(&cobra.Command{Use: "locks [NAME]", Aliases: []string{"list"}, Run: func(*cobra.Command, []string) {}})
	made, err := Source{Bakeryctl: root, Bakeryd: filepath.Join(bin, "bakeryd"), Format: "../../layout/FORMAT.md", Policy: "../policy.example"}.files()
	require.NoError(t, err)
	require.Contains(t, made["man/bakeryctl-locks.1"], ".SH SYNOPSIS\n\\fBbakeryctl locks\\fP [NAME] [flags]\n.br\n\\fBbakeryctl list\\fP [NAME] [flags]\n")
}

// TestUses: the page of a command has the variables and files that it uses, and the pages that it names.
func TestUses(t *testing.T) {
	for page, want := range map[string]struct{ env, not, files, see string }{
		"lock":         {"BAKERY_SOCKET PATH XDG_STATE_HOME BAKERY_TOKEN BAKERY_DEADLINE_MS", "TERM NO_COLOR NOTIFY_SOCKET", "bakeryd.sock UUID-N.lock", "bakeryctl-request(1) bakery-policy(5) flock(1)"},
		"status":       {"BAKERY_SOCKET NO_COLOR", "XDG_STATE_HOME BAKERY_SESSION PATH", "bakeryd.sock", "bakeryctl(1) bakeryd(8)"},
		"mode":         {"BAKERY_SOCKET BAKERY_SESSION BAKERY_TOKEN", "BAKERY_HOST_ID", "bakeryd.sock", "bakeryctl-lock(1)"},
		"events":       {"NO_COLOR", "XDG_STATE_HOME", "UUID-N.events", "bakeryctl-timeline(1)"},
		"disk-replace": {"BAKERY_SOCKET XDG_RUNTIME_DIR", "NO_COLOR", "UUID-N.left", "bakeryctl-disk(1) bakeryctl(1) bakeryctl-disks(1)"},
		"dump":         {"", "BAKERY_SOCKET", "", "bakery-lockspace(5)"},
	} {
		parts := sectionsOf(rendered(t, "man/bakeryctl-"+page+".1"))
		for _, name := range strings.Fields(want.env) {
			require.Regexp(t, `(?m)^ +`+name+`\b`, parts["ENVIRONMENT"], page)
		}
		for _, name := range strings.Fields(want.not) {
			require.NotRegexp(t, `(?m)^ +`+name+`\b`, parts["ENVIRONMENT"], page)
		}
		for _, name := range strings.Fields(want.files) {
			require.Contains(t, parts["FILES"], "/"+name, page)
		}
		for _, name := range strings.Fields(want.see) {
			require.Contains(t, parts["SEE ALSO"], name, page)
		}
	}
}

// TestReferences: the pages of bakeryd to which a page refers exist, with these sections.
func TestReferences(t *testing.T) {
	for _, name := range pageNames() {
		for _, m := range regexp.MustCompile(`\b(bakery[a-z-]*)\((\d)\)`).FindAllStringSubmatch(rendered(t, name), -1) {
			require.Contains(t, made, "man/"+m[1]+"."+m[2], name)
		}
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

// exitCodes returns the codes that a page lists, in order.
func exitCodes(t *testing.T, name string) (listed []int) {
	t.Helper()
	parts := sectionsOf(rendered(t, name))
	list := parts["EXIT STATUS"]
	if list == "" {
		list = parts["DESCRIPTION"]
	}
	for _, m := range regexp.MustCompile(`(?m)^ +(\d+)(?:\+N)?  +\S`).FindAllStringSubmatch(list, -1) {
		code, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		listed = append(listed, code)
	}
	slices.Sort(listed)
	return listed
}

// TestExitStatus: the pages of the programs list exactly their exit codes, and those of commands some of them.
func TestExitStatus(t *testing.T) {
	const ofBakeryctl = "../../cmd/bakeryctl/internal/cli/exit.go"
	for name, source := range map[string]string{"man/bakeryd.8": "../../cmd/bakeryd/run.go", "man/bakeryctl.1": ofBakeryctl, "man/bakeryctl-exit-codes.7": ofBakeryctl} {
		want := constants(t, source)
		require.GreaterOrEqual(t, len(want), 5)
		require.Equal(t, want, exitCodes(t, name), name)
	}
	checked := 0
	for _, name := range pageNames() {
		if strings.HasSuffix(name, ".1") {
			listed := exitCodes(t, name)
			require.Subset(t, constants(t, ofBakeryctl), listed, name)
			require.NotEmpty(t, listed, name)
			checked += len(listed)
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

	// The numbers of steps are those of the source, which other text refers to.
	source, err := os.ReadFile("../../layout/FORMAT.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\d+\. \S+ \S+`).FindAllString(strings.ReplaceAll(string(source), "*", ""), -1) {
		require.Contains(t, page, m)
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
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-., )?--([a-z-]+) `).FindAllStringSubmatch(help(t, "bakeryd"), -1) {
		name := "BAKERYD_" + strings.ToUpper(strings.ReplaceAll(m[1], "-", "_"))
		want := 1
		if m[1] == "help" || m[1] == "version" {
			want = 0
		}
		require.Equal(t, want, strings.Count(text, "\n#"+name+"="), name)
		for _, shell := range []string{"bash/bakeryd", "zsh/_bakeryd"} {
			require.Contains(t, made["completion/"+shell], "--"+m[1])
		}
		require.Contains(t, made["completion/fish/bakeryd.fish"], "-l "+m[1]+" ")
	}
	require.Contains(t, env, "BAKERYD_HANDOFF=8")
	require.Contains(t, env, "BAKERYD_SOCKET=/run/bakery/bakeryd.sock")
	require.Contains(t, env, "BAKERYD_RUNTIME_DIR=/run/bakery")
	require.Contains(t, env, "BAKERYD_NAME=")
	cmd := exec.Command(filepath.Join(bin, "bakeryd"))
	cmd.Env = env
	said, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "bakeryd: wrong command line: --device is missing\nhint: give --device PATH, or set BAKERYD_DEVICE, for the packaged unit in /etc/bakery/bakeryd.env\n", string(said))
}

// TestCompletion: the completions of bakeryctl are those that it prints itself.
func TestCompletion(t *testing.T) {
	for shell, name := range map[string]string{"bash": "bakeryctl", "zsh": "_bakeryctl", "fish": "bakeryctl.fish"} {
		out, err := exec.Command(filepath.Join(bin, "bakeryctl"), "completion", shell).Output()
		require.NoError(t, err)
		require.Equal(t, string(out), made["completion/"+shell+"/"+name])
	}
}

func TestMarkdown(t *testing.T) {
	for help, want := range map[string]string{
		"  1      no\n         way\n  128+N  yes":       "\n**1**\n: no way\n\n\n**128+N**\n: yes\n",
		"It is\n\n  memory   one:\n           two\nend": "It is\n\n\n**memory**\n: one: two\n\nend",
		"These:\n  - one\n    more\n  - two":            "These:\n\n  - one\n    more\n  - two",
		"So:\n\n    a  b\n    c  d":                     "So:\n\n    a  b\n    c  d",
	} {
		require.Equal(t, want, markdown(help), "%q", help)
	}
}

// The characters that roff or a terminal may change stay as they are.
func TestRoff(t *testing.T) {
	require.Contains(t, roff("--x 'y' \\`z\\` ^ ~ a \\- b"), `\-\-x \(aqy\(aq \(gaz\(ga \(ha \(ti a \- b`)
}
