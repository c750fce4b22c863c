package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// source is what errors.md is compared with.
type source struct {
	literals string          // all texts, one a line
	required map[string]bool // messages that errors.md must have
}

// readSource reads the programs. errors.md must have every refusal of daemon/api, and every message that is logged as
// a warning or an error.
func readSource(t *testing.T) source {
	t.Helper()
	var all strings.Builder
	s := source{required: map[string]bool{}}
	unquote := func(e ast.Expr) string {
		lit, ok := e.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return ""
		}
		text, err := strconv.Unquote(lit.Value)
		require.NoError(t, err)
		return text
	}
	for _, dir := range []string{"../../cmd", "../../daemon", "../../blockdev", "../../layout"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					all.WriteString(unquote(n) + "\n")
				case *ast.CallExpr:
					f, ok := n.Fun.(*ast.SelectorExpr)
					if !ok || len(n.Args) == 0 {
						break
					}
					isNew := path == "../../daemon/api/errors.go" && f.Sel.Name == "New"
					if text := unquote(n.Args[0]); text != "" && (isNew || f.Sel.Name == "Warn" || f.Sel.Name == "Error") {
						s.required[text] = true
					}
				}
				return true
			})
			return err
		}))
	}
	s.literals = all.String()
	return s
}

// messages returns the messages of each table in a guide: the code in the first column, where that is headed message.
func messages(text string) (tables [][]string) {
	in := false
	for line := range strings.Lines(text) {
		cells := strings.Split(line, " | ")
		switch {
		case strings.HasPrefix(line, "| message |"):
			in = true
			tables = append(tables, nil)
		case !strings.HasPrefix(line, "|"):
			in = false
		case in && !strings.HasPrefix(line, "|---"):
			row := []string{}
			for _, m := range span.FindAllStringSubmatch(cells[0], -1) {
				row = append(row, m[1])
			}
			tables[len(tables)-1] = append(tables[len(tables)-1], strings.Join(row, "\x00"))
		}
	}
	return tables
}

// lacks returns the first part of a message that no text of the source has; parts are separated by three dots.
func (s source) lacks(message string) string {
	for part := range strings.SplitSeq(message, "...") {
		if part = strings.Trim(part, " ,;:"); part != "" && !strings.Contains(s.literals, part) {
			return part
		}
	}
	return ""
}

// TestErrors: errors.md has no message that the programs do not have, and is sorted. It has every refusal and every
// warning.
func TestErrors(t *testing.T) {
	text, err := os.ReadFile("errors.md")
	require.NoError(t, err)
	s := readSource(t)
	require.Greater(t, len(s.required), 70)
	tables := messages(string(text))
	require.Len(t, tables, 5)
	listed := map[string]bool{}
	for _, rows := range tables {
		require.Greater(t, len(rows), 10)
		for _, row := range rows {
			for message := range strings.SplitSeq(row, "\x00") {
				if lacks := s.lacks(message); lacks != "" {
					t.Errorf("errors.md: %q: the programs print no %q", message, lacks)
				}
				listed[message] = true
			}
		}
		key := func(row string) string {
			return regexp.MustCompile(`^[^a-z0-9]+`).ReplaceAllString(strings.ToLower(row), "")
		}
		for i := 1; i < len(rows); i++ {
			if key(rows[i-1]) > key(rows[i]) {
				t.Errorf("errors.md: sort the rows: %q is after %q", rows[i], rows[i-1])
			}
		}
	}
	for message := range s.required {
		beginning, _, _ := strings.Cut(message, ": ")
		if !listed[message] && !listed[beginning] {
			t.Errorf("errors.md: add a row with a remedy for %q", message)
		}
	}
	require.Equal(t, "no such message", s.lacks("lock lost...no such message"))
}
