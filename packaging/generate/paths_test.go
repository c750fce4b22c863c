package generate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// elsewherePaths has the paths that an operator chooses, or that systemd or packaging/scripts create.
var elsewherePaths = []string{"/etc/bakery/policy", "/etc/bakery/.mode-checked", "/etc/prometheus/bakeryd-alerts.yaml",
	"/etc/systemd/system/*.wants/bakery*@*.service", "/etc/systemd/system/bakeryd.service.d", "/etc/systemd/system/bakeryd.service.d/sanlock.conf"}

var (
	pathOfProject = regexp.MustCompile(`(?:^|[^\w/.:-])(/(?:etc|run|var|usr|opt|srv)[\w./%*@-]*bakery[\w./%*@-]*)`)
	installed     = regexp.MustCompile(`dst: (\S+?),? `)
	ofUnit        = regexp.MustCompile(`(?m)^(?:EnvironmentFile=-?|Environment=BAKERYD_SOCKET=)(\S+)$`)
	ofHost        = regexp.MustCompile(`^/(run|var/lib)/bakery/(?:(?:UUID|[0-9a-f]+-\.{3}|\*)-(?:N|\d+)|\*)(\.[a-z]+)(?:\.1)?$`)
)

// pathTable knows which paths the code and the packages use.
type pathTable struct {
	literals map[string]bool // of the source
	units    []*regexp.Regexp
	packages []string // destinations; a directory ends in a slash
}

func readPaths(t *testing.T) *pathTable {
	t.Helper()
	p := &pathTable{literals: map[string]bool{}}
	for _, dir := range []string{"../../cmd", "../../daemon"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					require.NoError(t, err)
					p.literals[text] = true
				}
				return true
			})
			return err
		}))
	}
	for _, text := range texts(t, "../systemd/*.service") {
		for _, m := range ofUnit.FindAllStringSubmatch(text, -1) {
			p.units = append(p.units, regexp.MustCompile("^"+strings.ReplaceAll(regexp.QuoteMeta(m[1]), "%i", `(?:%i|[\w-]+)`)+"$"))
		}
	}
	for _, text := range texts(t, "../nfpm.yaml") {
		for _, m := range installed.FindAllStringSubmatch(text, -1) {
			p.packages = append(p.packages, m[1])
		}
	}
	require.Greater(t, len(p.literals), 1000)
	require.Len(t, p.units, 3)
	require.Contains(t, p.packages, "/usr/bin/bakeryd")
	return p
}

// texts returns the contents of files, by path.
func texts(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, names, pattern)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			found[name] = string(text)
		}
	}
	return found
}

// used reports whether the code or the packages use a path.
func (p *pathTable) used(path string) bool {
	const doc = "/usr/share/doc/bakeryd"
	switch m := ofHost.FindStringSubmatch(path); {
	case slices.Contains(elsewherePaths, path), p.literals[path]:
		return true
	case slices.ContainsFunc(p.units, func(unit *regexp.Regexp) bool { return unit.MatchString(path) }):
		return true
	case slices.ContainsFunc(p.packages, func(dst string) bool { return dst == path || filepath.Dir(dst) == path }):
		return true
	case m != nil && m[1] == "run":
		return slices.ContainsFunc(slices.Collect(maps.Keys(p.literals)), func(l string) bool { return strings.HasSuffix(l, "-%d"+m[2]) }) ||
			slices.Contains([]string{".slots", ".sanlock"}, m[2]) && p.literals[m[2]]
	case m != nil: // what survives a reboot: see statePath of daemon/hostid
		return slices.Contains([]string{".events", ".joined", ".left"}, m[2]) && p.literals[m[2]]
	case path == doc || strings.HasPrefix(path, doc+"/"):
		return documented(strings.TrimPrefix(path, doc))
	}
	return false
}

// documented reports whether packaging/build puts a path into the directory of documentation.
func documented(path string) bool {
	source := map[string]string{"": "..", "/guides": "../docs", "/schema": "../schema", "/examples": "..", "/README.md": "../../README.md",
		"/PROTOCOL.md": "../../bakery/PROTOCOL.md", "/FORMAT.md": "../../layout/FORMAT.md"}[path]
	switch dir, name := filepath.Split(path); dir {
	case "/guides/":
		source = "../docs/" + name
	case "/schema/":
		source = "../schema/" + name
	case "/examples/":
		source = "../" + name
	case "/examples/systemd/":
		source = "../systemd/examples/" + name
	}
	_, err := os.Stat(source)
	return source != "" && err == nil
}

// TestPaths: the paths in the manual, in help texts, units, guides and scripts are those that the code and the
// packages use.
func TestPaths(t *testing.T) {
	known := readPaths(t)
	all := texts(t, "../../README.md", "../docs/*.md", "../../bakery/PROTOCOL.md", "../../layout/FORMAT.md", "../systemd/*.service",
		"../systemd/*.conf", "../systemd/examples/*", "../scripts/*", "../policy.example", "../prometheus/alerts.yaml", "../grafana/*.json")
	for _, name := range pageNames() {
		all[name] = rendered(t, name)
	}
	all["bakeryd.env"] = made["bakeryd.env"]
	for text := range known.literals { // messages and hints
		all["a text of the source"] += text + "\n"
	}
	found := map[string]bool{}
	for name, text := range all {
		for _, m := range pathOfProject.FindAllStringSubmatch(text, -1) {
			path := strings.TrimRight(m[1], "/.")
			require.True(t, known.used(path), "%s: %s is used by no code and no package", name, path)
			found[path] = true
		}
	}
	require.Greater(t, len(found), 25, "most paths were not found")

	for _, wrong := range []string{"/etc/bakeryd/bakeryd.env", "/etc/bakery/bakeryd.conf", "/run/bakeryd.sock", "/var/run/bakery", "/run/bakery/UUID-N.pid",
		"/var/lib/bakery/UUID-N.state", "/run/bakery/UUID-N.events", "/var/log/bakery", "/usr/sbin/bakeryd", "/usr/share/doc/bakery/guides",
		"/usr/share/doc/bakeryd/guides/nosuch.md", "/usr/share/doc/bakeryd/examples/nosuch"} {
		m := pathOfProject.FindStringSubmatch("see " + wrong + ".")
		require.NotNil(t, m, wrong)
		require.False(t, known.used(strings.TrimRight(m[1], "/.")), wrong)
	}
}

// TestDocumentation: every unit names a page of the manual and a guide, which exist.
func TestDocumentation(t *testing.T) {
	known := readPaths(t)
	for name, unit := range texts(t, "../systemd/*.service", "../systemd/examples/*") {
		kinds := map[string]int{}
		for _, line := range regexp.MustCompile(`(?m)^Documentation=(.*)$`).FindAllStringSubmatch(unit, -1) {
			for _, uri := range strings.Fields(line[1]) {
				kind, rest, _ := strings.Cut(uri, ":")
				kinds[kind]++
				switch kind {
				case "man":
					page, section, _ := strings.Cut(strings.TrimSuffix(rest, ")"), "(")
					require.Contains(t, made, "man/"+page+"."+section, name)
				case "file":
					require.True(t, known.used(rest), "%s: %s", name, rest)
				default:
					require.Equal(t, "https://github.com/bakeryd/bakeryd", uri, name)
				}
			}
		}
		require.Positive(t, kinds["man"], name)
		require.Positive(t, kinds["file"], name)
	}
}
