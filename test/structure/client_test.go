package structure

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var diskFormat = regexp.MustCompile(`\b` + regexp.QuoteMeta(module) + `(layout|bakery)\.`)

// TestClient_ItsAPI_HasNoTypeOfTheDiskFormat: users of the Go client need no other package of it, and a change of the
// format does not break them.
func TestClient_ItsAPI_HasNoTypeOfTheDiskFormat(t *testing.T) {
	_, exports := list(t)
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	leaks := func(path string) (found []string) {
		p, err := imp.Import(module + path)
		require.NoError(t, err)
		for _, text := range api(p) {
			if diskFormat.MatchString(text) {
				found = append(found, text)
			}
		}
		return found
	}
	require.Empty(t, leaks("daemon/client"))
	require.Contains(t, leaks("daemon/api"), "field Token "+module+"layout.Ticket", "it is found where it is")
	require.Contains(t, leaks("daemon/locks"), "func ("+module+"daemon/locks.DirectoryHold).Ticket() "+module+"layout.Ticket")
}

// api returns the exported names of a package with their types.
func api(p *types.Package) (all []string) {
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		named, ok := o.Type().(*types.Named)
		if _, isType := o.(*types.TypeName); !ok || !isType {
			all = append(all, o.String())
			continue
		}
		if s, ok := named.Underlying().(*types.Struct); ok {
			for f := range s.Fields() {
				if f.Exported() {
					all = append(all, f.String())
				}
			}
		} else {
			all = append(all, o.String())
		}
		for m := range types.NewMethodSet(types.NewPointer(named)).Methods() {
			if m.Obj().Exported() {
				all = append(all, m.Obj().String())
			}
		}
	}
	return all
}
