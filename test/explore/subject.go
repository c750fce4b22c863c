package main

import (
	"io"
	"path"
	"slices"
	"strings"
)

// subject is code that is explored exhaustively.
type subject struct {
	name    string
	dir     string   // its package or folder, relative to the root
	quick   []string // command that runs the quick scenarios
	full    []string // command that runs all scenarios
	target  []string // what go compiles: a package or files; nil: the subject is not in Go
	files   []string // patterns of the sources in dir, if the subject is not in Go
	results func(output io.Reader, log io.Writer) (map[string]string, error)
}

func (s subject) ledger() string { return path.Join(s.dir, "EXPLORED") }

var subjects = []subject{
	goSubject("bakery", "bakery", nil, "-quick", "-full"),
	goSubject("lease", "daemon/lease", nil, "-lease.quick -lease.runs=400", "-lease.deep -lease.runs=1500"),
	// The rest of the package imports daemon, whose changes do not matter to the explorer.
	goSubject("stress", "daemon/stress",
		[]string{"visitor.go", "gate.go", "word.go", "explore_test.go", "automaton_test.go"}, "", "-full"),
	goSubject("standing", "daemon/standing", nil, "-quick", "-full"),
	{
		name:    "model",
		dir:     "test/model",
		quick:   []string{"test/model/run", "--quick"},
		full:    []string{"test/model/run"},
		files:   []string{"*.pml", "mutations", "sizes", "run"},
		results: modelResults,
	},
}

// goSubject returns a package, or some files of it, whose tests explore: quick scenarios with the
// flags quick, all of them with the flags full.
func goSubject(name, dir string, files []string, quick, full string) subject {
	target := []string{"./" + dir}
	if len(files) > 0 {
		target = nil
	}
	for _, file := range files {
		target = append(target, dir+"/"+file)
	}
	test := slices.Concat([]string{"go", "test", "-json", "-count=1", "-timeout=60m"}, target)
	return subject{
		name:    name,
		dir:     dir,
		quick:   slices.Concat(test, strings.Fields(quick)),
		full:    slices.Concat(test, strings.Fields(full)),
		target:  target,
		results: goResults,
	}
}

func names() (all []string) {
	for _, s := range subjects {
		all = append(all, s.name)
	}
	return all
}
