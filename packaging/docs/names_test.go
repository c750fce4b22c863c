package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// named are the names that the code gives to things: members of JSON, and keys of log lines.
type named struct{ members, keys map[string]string } // the file of each

// logs have the index of the first key among the arguments of the calls that log, or that make attributes for
// that.
var logs = map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0, "Noted": 2, "Trouble": 2, "append": 1}

// namesOf reads the source of bakeryd and bakeryctl. The handover file and the data of the timeline's page are read by
// the same program only.
func namesOf(t *testing.T) named {
	n := named{map[string]string{}, map[string]string{}}
	for _, root := range []string{"../../daemon", "../../cmd"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && slices.Contains([]string{"handover", "timeline", "bench", "testdata"}, d.Name()) {
				return filepath.SkipDir
			}
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "/events/file.go") {
				return nil // file.go also reads the lines of earlier versions
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ofLogs := strings.HasPrefix(path, "../../daemon") && !strings.Contains(path, "/metrics/") || strings.HasPrefix(path, "../../cmd/bakeryd")
			ast.Inspect(f, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.Field:
					if node.Tag != nil {
						tag, _ := strconv.Unquote(node.Tag.Value)
						name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
						n.members[name] = path
					}
				case *ast.CallExpr:
					if from, ok := logs[calleeOf(node)]; ok && ofLogs {
						n.take(node.Args[min(from, len(node.Args)):], path)
					}
				case *ast.CompositeLit:
					if array, ok := node.Type.(*ast.ArrayType); ok && ofLogs {
						if of, ok := array.Elt.(*ast.Ident); ok && of.Name == "any" {
							n.take(node.Elts, path)
						}
					}
				}
				return true
			})
			return nil
		}))
	}
	delete(n.members, "")
	delete(n.members, "-")
	return n
}

func calleeOf(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// take takes each second argument that is a string as a key. Keys are words, other texts are not.
func (n named) take(args []ast.Expr, path string) {
	if len(args)%2 != 0 {
		return
	}
	for i := 0; i < len(args); i += 2 {
		if text, ok := args[i].(*ast.BasicLit); ok && text.Kind == token.STRING {
			if key, _ := strconv.Unquote(text.Value); key != "" && strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_") == "" {
				n.keys[key] = path
			}
		}
	}
}

// quoted are the words in backquotes of a text.
var quoted = regexp.MustCompile("`([a-z0-9_]+)`")

func quotedIn(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	return all
}

// TestGlossary_Names_AreThoseOfTheCode: a second name of a thing fails, as does a name that the code does not have.
func TestGlossary_Names_AreThoseOfTheCode(t *testing.T) {
	text, err := os.ReadFile("glossary.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "## Names in JSON, logs and metrics\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	columns := make([]map[string]bool, 5) // thing, JSON, log key, metric label, table column
	for i := range columns {
		columns[i] = map[string]bool{}
	}
	rows := 0
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) == len(columns)+2 && strings.Contains(line, "`") {
			rows++
			for i, cell := range cells[1 : 1+len(columns)] {
				for word := range quotedIn(cell) {
					columns[i][word] = true
				}
			}
		}
	}
	require.Greater(t, rows, 12)
	_, others, found := strings.Cut(section, "Other keys of log lines:")
	require.True(t, found)
	keys := quotedIn(others)
	for key := range columns[2] {
		keys[key] = true
	}

	code := namesOf(t)
	require.Greater(t, len(code.members), 150)
	require.Greater(t, len(code.keys), 50)
	for key, path := range code.keys {
		if !keys[key] {
			t.Errorf("%s: log key %q is not in glossary.md: use one of its names, or add it", path, key)
		}
	}
	for key := range keys {
		require.Contains(t, code.keys, key, "a log key of glossary.md that no line has")
	}
	// A member that has one of these words names the thing of a row.
	about := []string{"host", "hosts", "lock", "locks", "number", "incarnation", "token", "ticket", "disk", "disks", "position", "device", "boot",
		"pid", "pids", "ms", "us", "ns", "sec", "secs", "second", "seconds", "minutes", "millis", "duration", "elapsed"}
	for name, path := range code.members {
		of := strings.Split(name, "_")
		if slices.ContainsFunc(about, func(word string) bool { return slices.Contains(of, word) }) && !columns[1][name] {
			t.Errorf("%s: JSON member %q is not in glossary.md: use one of its names, or add it", path, name)
		}
	}
	for name := range columns[1] {
		require.Contains(t, code.members, name, "a member of glossary.md that no JSON has")
	}

	metrics, err := os.ReadFile("../../daemon/metrics/metrics.go")
	require.NoError(t, err)
	for label := range columns[3] {
		require.Contains(t, string(metrics), `"`+label+`"`, "a label of glossary.md that no metric has")
	}
	for _, m := range regexp.MustCompile(`"((?:host|lock|disk|device|lockspace)(?:_(?:id|name|number|position))?)", `).FindAllStringSubmatch(string(metrics), -1) {
		require.Contains(t, columns[3], m[1], "a label that is not in glossary.md")
	}
}
