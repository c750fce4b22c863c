// Package structure checks which packages may import which, and how far the files of a package depend on each other.
package structure

import (
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/bakeryd/bakeryd/"

// pkg is a package as go list knows it.
type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Export     string
}

// short returns the path of a package as the table has it.
func short(path string) string { return strings.Replace(path, "cmd/bakeryctl/internal/", "ctl/", 1) }

// list returns the packages of the module without those below test/, and the file of export data of each dependency.
func list(t *testing.T) (own []pkg, exports map[string]string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Dir,GoFiles,Imports,Export", "./...")
	cmd.Dir, cmd.Stderr = filepath.Join("..", ".."), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	exports = map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if err == io.EOF {
			return own, exports
		}
		require.NoError(t, err)
		exports[p.ImportPath] = p.Export
		if path, ok := strings.CutPrefix(p.ImportPath, module); ok && path != "test" && !strings.HasPrefix(path, "test/") {
			p.ImportPath = short(path)
			own = append(own, p)
		}
	}
}

// TestImports compares the imports of every package with the table. A package imports only packages above it.
func TestImports(t *testing.T) {
	own, _ := list(t)
	above := map[string]bool{}
	for _, row := range imports {
		i := slices.IndexFunc(own, func(p pkg) bool { return p.ImportPath == row.path })
		if i < 0 {
			t.Errorf("%s: no such package: remove its row", row.path)
			continue
		}
		var found []string
		for _, path := range own[i].Imports {
			if path, ok := strings.CutPrefix(path, module); ok {
				found = append(found, short(path))
			}
		}
		slices.Sort(found)
		if want := strings.Fields(row.imports); !slices.Equal(found, want) {
			t.Errorf("%s imports\n\t%s\nthe table has\n\t%s", row.path, strings.Join(found, " "), row.imports)
		}
		for _, path := range found {
			if !above[path] {
				t.Errorf("%s imports %s, which is not above it in the table", row.path, path)
			}
		}
		above[row.path] = true
	}
	for _, p := range own {
		if !above[p.ImportPath] {
			t.Errorf("%s has no row", p.ImportPath)
		}
	}
}

// TestHTTP compares the packages that import net/http with the table: no other may serve or connect.
func TestHTTP(t *testing.T) {
	own, _ := list(t)
	found := map[string]bool{}
	for _, p := range own {
		for _, path := range p.Imports {
			if path == "net/http" || strings.HasPrefix(path, "net/http/") {
				found[p.ImportPath] = true
			}
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(http)), slices.Collect(maps.Keys(found)))
}

// TestAtOnce: bakeryctl-lock, which runs before each command under a lock, links nothing of the table. The complete
// program does, which shows that the names are right.
func TestAtOnce(t *testing.T) {
	linked := func(args ...string) (found []string) {
		cmd := exec.Command("go", append([]string{"list", "-deps"}, args...)...)
		cmd.Dir, cmd.Stderr = filepath.Join("..", ".."), os.Stderr
		out, err := cmd.Output()
		require.NoError(t, err)
		for _, path := range strings.Fields(string(out)) {
			if path = short(strings.TrimPrefix(path, module)); atOnce[path] != "" {
				found = append(found, path)
			}
		}
		return found
	}
	require.Empty(t, linked("-tags=netgo", "./cmd/bakeryctl/bakeryctl-lock")) // as cmd/build builds it
	all := append(linked("./cmd/bakeryctl"), linked("./cmd/bakeryd")...)
	require.Subset(t, all, slices.Collect(maps.Keys(atOnce)))
}

// TestFiles: of the files of a circle, each depends on each other, directly or not.
func TestFiles(t *testing.T) {
	own, exports := list(t)
	for _, p := range own {
		if n := largestCircle(dependencies(t, p, exports)); n > maxCircle {
			t.Errorf("%s: %d files depend on each other in a circle, want %d at most", p.ImportPath, n, maxCircle)
		}
	}
}

// TestSize: a package that one reader can know has maxLines at most, not counting blank lines and tests.
func TestSize(t *testing.T) {
	own, _ := list(t)
	for _, p := range own {
		lines := 0
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			require.NoError(t, err)
			for line := range strings.Lines(string(text)) {
				if strings.TrimSpace(line) != "" {
					lines++
				}
			}
		}
		if lines > maxLines {
			t.Errorf("%s: %d lines, want %d at most", p.ImportPath, lines, maxLines)
		}
	}
}

// dependencies returns which file of a package uses something that is declared in which other file.
func dependencies(t *testing.T, p pkg, exports map[string]string) map[string]map[string]bool {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	checked, err := conf.Check(p.ImportPath, fset, files, info)
	require.NoError(t, err, p.ImportPath)
	uses := map[string]map[string]bool{}
	for id, object := range info.Uses {
		from, to := fset.Position(id.Pos()).Filename, fset.Position(object.Pos()).Filename
		if object.Pkg() != checked || from == to {
			continue
		}
		if uses[from] == nil {
			uses[from] = map[string]bool{}
		}
		uses[from][to] = true
	}
	return uses
}

// largestCircle returns the size of the largest strongly connected component, by Tarjan's algorithm.
func largestCircle(uses map[string]map[string]bool) (largest int) {
	index, low, open := map[string]int{}, map[string]int{}, map[string]bool{}
	var stack []string
	var visit func(v string)
	visit = func(v string) {
		index[v] = len(index) + 1
		low[v] = index[v]
		stack, open[v] = append(stack, v), true
		for w := range uses[v] {
			if index[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if open[w] {
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] < index[v] {
			return
		}
		i := slices.Index(stack, v)
		largest = max(largest, len(stack)-i)
		for _, w := range stack[i:] {
			open[w] = false
		}
		stack = stack[:i]
	}
	for _, v := range slices.Sorted(maps.Keys(uses)) {
		if index[v] == 0 {
			visit(v)
		}
	}
	return largest
}

func TestLargestCircle(t *testing.T) {
	to := func(names ...string) map[string]bool {
		set := map[string]bool{}
		for _, n := range names {
			set[n] = true
		}
		return set
	}
	require.Equal(t, 0, largestCircle(nil))
	require.Equal(t, 1, largestCircle(map[string]map[string]bool{"a": to("b", "c"), "b": to("c")}))
	require.Equal(t, 3, largestCircle(map[string]map[string]bool{"a": to("b"), "b": to("c"), "c": to("a", "d"), "d": to("e"), "e": to("d")}))
}
