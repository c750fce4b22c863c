package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// toy is a module with a package that explores two scenarios, or three with -full.
var toy = map[string]string{
	"go.mod":       "module toy\n\ngo 1.26.0\n",
	"rule/rule.go": "package rule\n\nconst Step = 2 // states for each round\n",
	"lock/lock.go": "package lock\n\nimport \"toy/rule\"\n\n// States counts.\nfunc States(rounds int) int { return rule.Step * rounds }\n",
	"lock/lock_test.go": `package lock

import (
	"flag"
	"testing"
)

var full = flag.Bool("full", false, "explore more")

func TestExplore(t *testing.T) {
	scenarios := map[string]int{"one": 1, "two": 2}
	if *full {
		scenarios["three"] = 3
	}
	for name, rounds := range scenarios {
		t.Run(name, func(t *testing.T) { t.Logf("%d states in no time", States(rounds)) })
	}
}
`,
}

var toyRoot string // set by explored

// explored returns a directory with an explored toy.
var explored = sync.OnceValues(func() (root string, err error) {
	defer func() { toyRoot = root }()
	if root, err = os.MkdirTemp("", "explored"); err != nil {
		return "", err
	}
	for name, text := range toy {
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			return "", err
		}
	}
	return root, explorer{root: root, out: os.Stderr}.explore(goSubject("toy", "lock", nil, "", "-full"), true)
})

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(toyRoot)
	os.Exit(code)
}

// lab returns an explorer of a copy of the explored toy.
func lab(t *testing.T) (x explorer, s subject, said *strings.Builder) {
	root, err := explored()
	require.NoError(t, err)
	said = &strings.Builder{}
	x, s = explorer{root: t.TempDir(), out: said}, goSubject("toy", "lock", nil, "", "-full")
	require.NoError(t, os.CopyFS(x.root, os.DirFS(root)))
	return x, s, said
}

// replace changes a file of the lab.
func replace(t *testing.T, x explorer, name, from, to string) {
	t.Helper()
	file := filepath.Join(x.root, name)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), from)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), from, to, 1)), 0o644))
}

func TestExplorer_UnchangedSources_RunsQuickScenarios(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, x explorer){
		"nothing": func(*testing.T, explorer) {},
		"comment": func(t *testing.T, x explorer) {
			replace(t, x, "lock/lock.go", "// States counts.", "// States returns.")
		},
		"layout": func(t *testing.T, x explorer) { replace(t, x, "lock/lock.go", "\n\n// States", "\n// States") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, s, said := lab(t)
			change(t, x)
			require.NoError(t, x.explore(s, false), said)
			require.Contains(t, said.String(), "lock/EXPLORED matches: 12 states")
			require.Contains(t, said.String(), "quick scenarios: 2 of 3, 6 states")
		})
	}
}

func TestExplorer_Change_ExploresEverything(t *testing.T) {
	for name, c := range map[string]struct{ file, from, to, why string }{
		"source":              {"lock/lock.go", "rule.Step * rounds", "rule.Step * rounds * 2", "changed since "},
		"source it imports":   {"rule/rule.go", "Step = 2", "Step = 3", ": rule/rule.go"},
		"large scenario":      {"lock/lock_test.go", `["three"] = 3`, `["three"] = 4`, ": lock/lock_test.go"},
		"quick scenario":      {"lock/lock_test.go", `"two": 2`, `"two": 5`, ": lock/lock_test.go"},
		"assembler":           {"lock/lock.go", "", "", ": lock/lock_" + runtime.GOARCH + ".s"},
		"language":            {"go.mod", "go 1.26.0", "go 1.25.0", ": language"},
		"states in ledger":    {"lock/EXPLORED", "three\t6", "three\t7", "edited"},
		"hash in ledger":      {"lock/EXPLORED", "source\trule/rule.go\t", "source\trule/rule.go\t0", "edited"},
		"scenario in ledger":  {"lock/EXPLORED", "large\tTestExplore/three\t6\n", "", "edited"},
		"checksum in ledger":  {"lock/EXPLORED", "sum\t", "sum\t0", "edited"},
		"new source":          {"lock/lock.go", "", "", "lock/more.go is new"},
		"source that is gone": {"lock/lock.go", "", "", "lock/extra_test.go is gone"},
		"no ledger":           {"lock/lock.go", "", "", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, s, said := lab(t)
			write := func(file, text string) {
				require.NoError(t, os.WriteFile(filepath.Join(x.root, file), []byte(text), 0o644))
			}
			switch name {
			case "new source":
				write("lock/more.go", "package lock\n\nvar _ = 0\n")
			case "source that is gone":
				write("lock/extra_test.go", "package lock\n\nvar _ = 0\n")
				require.NoError(t, x.explore(s, true), said)
				require.NoError(t, os.Remove(filepath.Join(x.root, "lock/extra_test.go")))
			case "assembler":
				write("lock/lock_"+runtime.GOARCH+".s", "// one\n")
				require.NoError(t, x.explore(s, true), said)
				write("lock/lock_"+runtime.GOARCH+".s", "// two\n")
			case "no ledger":
				require.NoError(t, os.Remove(filepath.Join(x.root, s.ledger())))
			default:
				replace(t, x, c.file, c.from, c.to)
			}
			require.NoError(t, x.explore(s, false), said)
			require.Contains(t, said.String(), c.why)
			require.Contains(t, said.String(), "explored: 3 scenarios")
			require.NotContains(t, said.String(), "matches")
		})
	}
}

// A cause that is not among the sources, such as the toolchain, shows in the states.
func TestExplorer_OtherStates_ExploresEverything(t *testing.T) {
	x, s, said := lab(t)
	file := filepath.Join(x.root, s.ledger())
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	l, err := parse(data)
	require.NoError(t, err)
	l.states["TestExplore/two"] = "5"
	require.NoError(t, os.WriteFile(file, l.encode(), 0o644))
	require.NoError(t, x.explore(s, false), said)
	require.Contains(t, said.String(), "quick scenarios reached other states: TestExplore/two")
	require.Contains(t, said.String(), "explored: 3 scenarios")
}

func TestExplorer_FailedScenario_KeepsLedger(t *testing.T) {
	x, s, said := lab(t)
	before, err := os.ReadFile(filepath.Join(x.root, s.ledger()))
	require.NoError(t, err)
	replace(t, x, "lock/lock_test.go", `t.Logf("%d states`, `t.Errorf("broken after %d states`)
	require.Error(t, x.explore(s, false))
	require.Contains(t, said.String(), "broken after 6 states")
	after, err := os.ReadFile(filepath.Join(x.root, s.ledger()))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
}

// The caller's flags for go must not narrow what is explored.
func TestExplorer_FlagsOfCaller_ChangeNothing(t *testing.T) {
	t.Setenv("GOFLAGS", "-run=TestExplore/one")
	x, s, said := lab(t)
	require.NoError(t, x.explore(s, false), said)
	require.Contains(t, said.String(), "quick scenarios: 2 of 3")
}

func TestExplorer_SkippedScenario_KeepsLedger(t *testing.T) {
	x, s, said := lab(t)
	replace(t, x, "lock/lock_test.go", `t.Logf("%d states in no time", States(rounds))`, `t.Skip("not today", rounds)`)
	require.ErrorContains(t, x.explore(s, true), "tests were skipped: [TestExplore/")
	require.Contains(t, said.String(), "not today")
}

// The explorer of bounded tickets must not depend on the daemon, with which it shares a package.
func TestSubjects_Stress_DependsOnNoDaemon(t *testing.T) {
	x := explorer{root: root(t), out: t.Output()}
	all, err := x.sources(subjects[2])
	require.NoError(t, err)
	require.Contains(t, all, "bakery/acquire.go")
	require.Contains(t, all, "daemon/stress/explore_test.go")
	require.NotContains(t, all, "daemon/daemon.go")
	require.NotContains(t, all, "daemon/stress/device.go")
}

// root returns the root of the repository.
func root(t *testing.T) string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	return dir
}

// Each model, size and mutation is a source of the models.
func TestSubjects_Model_ListsItsFiles(t *testing.T) {
	x := explorer{root: root(t), out: t.Output()}
	all, err := x.sources(subjects[len(subjects)-1])
	require.NoError(t, err)
	for _, file := range []string{"claim.pml", "cover.pml", "death.pml", "lock.pml", "mutations", "sizes", "run"} {
		require.Contains(t, all, "test/model/"+file)
	}
}

func TestModelResults_Output_NamesScenarios(t *testing.T) {
	found, err := modelResults(strings.NewReader(""+
		"lock   -                -DHOSTS=3 -DSETTLES                   1234 states, depth    210,    1.5 s  ok\n"+
		"death  NO_MARGIN        as it stands                             5 states, depth      3,    0.1 s  caught: dead\n"+
		"ok: 2 checks in 2 s\n"), t.Output())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"lock - -DHOSTS=3 -DSETTLES": "1234", "death NO_MARGIN as it stands": "5"}, found)
}
