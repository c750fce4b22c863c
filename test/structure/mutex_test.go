package structure

import (
	"fmt"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/callgraph"
	"golang.org/x/tools/go/callgraph/vta"
	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
	"golang.org/x/tools/go/types/typeutil"
)

// TestMutexes: a goroutine that holds a mutex calls no package further down in the table than
// that of the mutex, not even by an interface, and does no IO on a file or the disk. So the
// table is the order of the mutexes of different packages. It misses what another module calls
// by an interface, waits for channels, and a second mutex of the same type.
func TestMutexes(t *testing.T) {
	var order []string
	for _, row := range imports {
		path := row.path
		if name, ok := strings.CutPrefix(path, "ctl/"); ok {
			path = "cmd/bakeryctl/internal/" + name
		}
		order = append(order, path)
	}
	for _, found := range mutexFaults(t, order) {
		t.Error(found)
	}
}

func TestMutexes_Faults_AreFound(t *testing.T) {
	const dir = "test/structure/testdata/"
	require.Equal(t, []string{
		"lower.List.mu is held: (*lower.List).Change calls upper.Use$1",
		"lower.List.mu is held: (*lower.List).Save calls os.Remove",
		"lower.List.mu is held: (*lower.List).tell calls (upper.client).Hear",
		"lower.Others.Mutex is held: (*lower.Others).Embedded calls os.Remove",
		"lower.Others.Mutex is held: (*lower.Others).Log calls (*log/slog.Logger).Info",
		"lower.Others.Mutex is held: (*lower.Others).Order$1 calls os.Remove",
		"lower.Others.Mutex is held: (*lower.Others).Sort calls upper.Use$2",
		"lower.Others.Mutex is held: (*lower.Others).Sync calls golang.org/x/sys/unix.Fsync",
		"lower.Others.Mutex is held: (*lower.Others).Value calls os.Remove",
		"lower.Others.Mutex is held: (*lower.Others).Write calls (*os.File).Write",
		"lower.Others.Mutex is held: lower.generic calls os.Remove",
		"lower.Others.Mutex is held: lower.generic[int] calls os.Remove",
		"lower.Others.locker is held: (*lower.Others).Locker calls os.Remove",
		"lower.Others.many is held: (*lower.Others).Element calls os.Remove",
		"lower.Others.rw is held: (*lower.Others).Read calls os.Remove",
		"lower.Others.rw is held: (*lower.Others).Try calls os.Remove",
		"lower.mu is held: lower.Local$1 calls os.Remove",
		"lower.mu is held: lower.locked calls os.Remove",
	}, mutexFaults(t, []string{dir + "lower", dir + "upper"}))
}

// mutexes is the analysis of packages, by the bodies of their functions alone.
type mutexes struct {
	calls  map[ssa.CallInstruction][]*ssa.Function
	values typeutil.Map  // functions that are used as values, by signature
	write  *ssa.Function // writes a file
	order  []string      // of the packages, from the foundations up
	ends   map[state]string
	found  map[string]bool
}

// state is a function that is entered with mutexes held: their names, each with a space after it.
type state struct {
	f    *ssa.Function
	held string
}

// source is what is loaded of the packages; of others, only types.
const source = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedTypes |
	packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo

// mutexFaults returns the calls that TestMutexes forbids. It takes every mutex of a type for the
// same one.
func mutexFaults(t *testing.T, order []string) (faults []string) {
	t.Helper()
	var patterns []string
	for _, path := range order {
		patterns = append(patterns, module+path)
	}
	loaded, err := packages.Load(&packages.Config{Mode: source, Dir: filepath.Join("..", "..")}, patterns...)
	require.NoError(t, err)
	require.Zero(t, packages.PrintErrors(loaded))
	prog, _ := ssautil.Packages(loaded, ssa.InstantiateGenerics)
	prog.Build()
	m := &mutexes{calls: map[ssa.CallInstruction][]*ssa.Function{}, order: order, ends: map[state]string{}, found: map[string]bool{}}
	all := ssautil.AllFunctions(prog)
	m.values, m.write = valuesOf(all), writeOf(prog)
	graph := vta.CallGraph(all, nil)
	_ = callgraph.GraphVisitEdges(graph, func(e *callgraph.Edge) error {
		m.calls[e.Site] = append(m.calls[e.Site], e.Callee.Func)
		return nil
	})
	for f := range graph.Nodes {
		if f != nil && f.Blocks != nil {
			m.walk(state{f: f})
		}
	}
	for found := range m.found {
		faults = append(faults, found)
	}
	slices.Sort(faults)
	return faults
}

// walk follows every way through a function, and returns the mutexes that may be held at its end.
func (m *mutexes) walk(s state) (end string) {
	if end, ok := m.ends[s]; ok {
		return end
	}
	m.ends[s] = s.held // of a recursive call
	var deferred []ssa.CallInstruction
	for _, b := range s.f.Blocks {
		for _, i := range b.Instrs {
			if d, ok := i.(*ssa.Defer); ok {
				deferred = slices.Insert(deferred, 0, ssa.CallInstruction(d))
			}
		}
	}
	entered := map[*ssa.BasicBlock]string{}
	todo := []*ssa.BasicBlock{s.f.Blocks[0]}
	for entered[todo[0]] = s.held; len(todo) > 0; {
		b := todo[0]
		todo = todo[1:]
		held := entered[b]
		for _, i := range b.Instrs {
			switch i := i.(type) {
			case *ssa.Call: // not ssa.Go: another goroutine holds nothing
				held = m.call(i, held)
			case *ssa.RunDefers:
				for _, d := range deferred {
					held = m.call(d, held)
				}
			case *ssa.Return:
				end = union(end, held)
			}
		}
		for _, next := range b.Succs {
			before, seen := entered[next]
			if after := union(before, held); !seen || after != before {
				entered[next] = after
				todo = append(todo, next)
			}
		}
	}
	m.ends[s] = end
	return end
}

// call follows a call, and returns the mutexes that may be held after it.
func (m *mutexes) call(site ssa.CallInstruction, held string) (after string) {
	c := site.Common()
	if c.IsInvoke() && c.Method.Name() == "Error" { // of an error from above
		return held
	}
	switch mutex, change := changed(c); change {
	case "Lock", "RLock", "TryLock", "TryRLock":
		return union(held, nameOf(mutex))
	case "Unlock", "RUnlock":
		return without(held, nameOf(mutex))
	}
	static := c.StaticCallee()
	targets := m.calls[site]
	if static != nil && static.Blocks == nil && !slices.Contains(later, static.String()) {
		targets = slices.Clone(targets)
		for _, a := range c.Args { // a function of another module may call what it is given
			targets = append(targets, m.given(a)...)
			if file, ok := a.(*ssa.MakeInterface); ok && file.X.Type().String() == "*os.File" {
				targets = append(targets, m.write)
			}
		}
		targets = append(targets, static)
	}
	follows := false
	for _, f := range targets {
		if f.Blocks != nil && packageOf(f) != "" {
			follows = true
		}
		kept := held
		for _, name := range strings.Fields(held) {
			if m.forbidden(name, f) {
				m.found[strings.NewReplacer(module, "", "test/structure/testdata/", "").Replace(
					fmt.Sprintf("%s is held: %v calls %v", name, site.Parent(), f))] = true
				kept = without(kept, name+" ") // report it once
			}
		}
		if f.Blocks != nil {
			after = union(after, m.walk(state{f, kept}))
			if kept != held {
				after = union(after, held)
			}
		}
	}
	if !follows {
		return held
	}
	return after
}

// changed returns the mutex that a call locks or unlocks, and the name of the method that does;
// nil and empty if it is another call.
func changed(c *ssa.CallCommon) (mutex ssa.Value, method string) {
	if c.IsInvoke() {
		if c.Value.Type().String() == "sync.Locker" {
			return c.Value, c.Method.Name()
		}
		return nil, ""
	}
	static := c.StaticCallee()
	if static == nil {
		return nil, ""
	}
	name, isValue := strings.CutSuffix(static.String(), "$bound")
	for _, of := range []string{"(*sync.Mutex).", "(*sync.RWMutex)."} {
		if method, ok := strings.CutPrefix(name, of); ok && isValue {
			return c.Value.(*ssa.MakeClosure).Bindings[0], method
		} else if ok {
			return c.Args[0], method
		}
	}
	return nil, ""
}

// given returns the functions that a value may be: those of its signature if it is not known
// better.
func (m *mutexes) given(v ssa.Value) []*ssa.Function {
	switch v := v.(type) {
	case *ssa.MakeClosure:
		return []*ssa.Function{v.Fn.(*ssa.Function)}
	case *ssa.Function:
		return []*ssa.Function{v}
	case *ssa.ChangeType:
		return m.given(v.X)
	case *ssa.Call:
		if f := v.Call.StaticCallee(); f != nil && f.Signature.Results().Len() == 1 {
			var results []*ssa.Function
			for _, b := range f.Blocks {
				r, ok := b.Instrs[len(b.Instrs)-1].(*ssa.Return)
				if !ok {
					continue
				}
				if _, calls := r.Results[0].(*ssa.Call); !calls {
					results = append(results, m.given(r.Results[0])...)
				}
			}
			if results != nil {
				return results
			}
		}
	}
	if _, ok := v.Type().Underlying().(*types.Signature); ok {
		same, _ := m.values.At(v.Type().Underlying()).([]*ssa.Function)
		return same
	}
	return nil
}

// valuesOf returns the functions that are used as values, by signature.
func valuesOf(all map[*ssa.Function]bool) (values typeutil.Map) {
	seen := map[*ssa.Function]bool{}
	add := func(f *ssa.Function) {
		if seen[f] {
			return
		}
		seen[f] = true
		s := f.Signature
		if s.Recv() != nil {
			s = types.NewSignatureType(nil, nil, nil, s.Params(), s.Results(), s.Variadic())
		}
		same, _ := values.At(s).([]*ssa.Function)
		values.Set(s, append(same, f))
	}
	for f := range all {
		for _, b := range f.Blocks {
			for _, i := range b.Instrs {
				called := ssa.Value(nil)
				if c, ok := i.(ssa.CallInstruction); ok {
					called = c.Common().Value
				}
				for _, v := range i.Operands(nil) {
					if f, ok := (*v).(*ssa.Function); ok && *v != called {
						add(f)
					}
				}
			}
		}
	}
	return values
}

// later are functions that call others in another goroutine.
var later = []string{"time.AfterFunc", "context.AfterFunc", "(*sync.WaitGroup).Go"}

// noIO are functions of package os that do no IO on a file. Timers and sockets are files, too.
var noIO = []string{"os.Getpid", "os.Geteuid", "os.Getegid", "os.NewFile", "os.SameFile",
	"(*os.File).SyscallConn", "(*os.File).SetReadDeadline", "(*os.File).Close"}

// unixIO are functions that do IO on files without package os.
var unixIO = func() (names []string) {
	for _, name := range []string{"Fsync", "Fdatasync", "Pread", "Pwrite", "Preadv", "Pwritev", "Open", "Openat", "Rename", "Renameat", "Unlink",
		"Mkdir", "Mkfifo", "Ftruncate", "Fallocate", "Flock", "Stat", "Fstat", "Lstat", "Fstatat", "Statx"} {
		names = append(names, "golang.org/x/sys/unix."+name, "syscall."+name)
	}
	return names
}()

// stores are functions that wait for a disk if the handover file is on one. A mutex for them is named
// keeping.
var stores = []string{"daemon/handover.File).Put", "daemon/handover.File).PutTerm", "daemon/handover.File).Release",
	"daemon/handover.File).Remove", "daemon/handover.File).Reserve", "daemon/handover.Notes).Put", "daemon/handover.Notes).Remove"}

// screen is held while text is written to a terminal, so that lines do not mix.
const screen = "cmd/bakeryctl/internal/render.Progress.screen"

// forbidden reports whether a function must not be called with a mutex held.
func (m *mutexes) forbidden(mutex string, f *ssa.Function) bool {
	mutex = strings.TrimPrefix(mutex, module)
	path := packageOf(f)
	switch {
	case path == "os":
		return mutex != screen && !slices.Contains(noIO, f.String())
	case path == "log/slog":
		return strings.HasPrefix(f.String(), "(*log/slog.Logger).") && f.Name() != "With" && f.Name() != "Enabled"
	case path == "os/exec", slices.Contains(unixIO, f.String()):
		return true
	case slices.Contains(stores, strings.TrimPrefix(f.String(), "(*"+module)):
		return !strings.HasSuffix(mutex, ".keeping")
	case f.String() == "(*"+module+"blockdev.Disk).transfer":
		return true
	}
	own, _, _ := strings.Cut(mutex, ".")
	return slices.Index(m.order, strings.TrimPrefix(path, module)) > slices.Index(m.order, own)
}

func packageOf(f *ssa.Function) string {
	for f.Parent() != nil {
		f = f.Parent()
	}
	if f.Origin() != nil {
		f = f.Origin()
	}
	switch {
	case f.Pkg != nil:
		return f.Pkg.Pkg.Path()
	case f.Object() != nil && f.Object().Pkg() != nil:
		return f.Object().Pkg().Path()
	}
	return ""
}

// nameOf returns the name of a mutex, with a space after it. One that is neither a field nor a
// variable of a package has that of a variable of its function.
func nameOf(v ssa.Value) string {
	switch v := v.(type) {
	case *ssa.FieldAddr:
		if of, ok := types.Unalias(v.X.Type().Underlying().(*types.Pointer).Elem()).(*types.Named); ok {
			return fmt.Sprintf("%s.%s.%s ", of.Obj().Pkg().Path(), of.Obj().Name(), of.Underlying().(*types.Struct).Field(v.Field).Name())
		}
	case *ssa.UnOp:
		return nameOf(v.X)
	case *ssa.IndexAddr:
		return nameOf(v.X)
	case *ssa.MakeInterface:
		return nameOf(v.X)
	case *ssa.Global:
		return v.Pkg.Pkg.Path() + "." + v.Name() + " "
	case *ssa.Alloc:
		return local(v.Parent(), v.Comment)
	case *ssa.FreeVar, *ssa.Parameter:
		return local(v.Parent(), v.Name())
	}
	return ""
}

func local(f *ssa.Function, name string) string {
	if f.Synthetic != "" && f.Origin() == nil { // wraps the method of a mutex
		return ""
	}
	return packageOf(f) + "." + name + " "
}

// writeOf returns a function that does IO on a file.
func writeOf(prog *ssa.Program) *ssa.Function {
	file := prog.ImportedPackage("os").Type("File").Type()
	return prog.LookupMethod(types.NewPointer(file), nil, "Write")
}

func union(held, more string) string {
	all := strings.Fields(held + more)
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, " ") + " "
}

func without(held, name string) string {
	if name == "" {
		return held
	}
	return strings.Replace(held, name, "", 1)
}
