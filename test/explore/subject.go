package main

import (
	"io"
	"path"
)

// subject is something that is explored exhaustively.
type subject struct {
	name    string
	dir     string   // its package or folder, relative to the root
	quick   []string // command that runs the quick scenarios
	full    []string // command that runs all scenarios
	files   []string // patterns of the sources in dir; if empty, dir is a Go package
	results func(output io.Reader, log io.Writer) (map[string]string, error)
}

func (s subject) ledger() string { return path.Join(s.dir, "EXPLORED") }

var subjects = []subject{
	goSubject("bakery", "bakery", "-full"),
	goSubject("lease", "daemon/lease", "-lease.deep", "-lease.runs=1500"),
	goSubject("stress", "daemon/stress", "-full"),
	{
		name:    "model",
		dir:     "test/model",
		quick:   []string{"test/model/run", "--quick"},
		full:    []string{"test/model/run"},
		files:   []string{"*.pml", "mutations", "sizes", "run"},
		results: modelResults,
	},
}

// goSubject returns a package whose tests explore: quick scenarios as they are, all of them with
// the flags.
func goSubject(name, dir string, flags ...string) subject {
	quick := []string{"go", "test", "-json", "-timeout=60m", "./" + dir}
	return subject{
		name:    name,
		dir:     dir,
		quick:   quick,
		full:    append(append(quick[:len(quick):len(quick)], "-count=1"), flags...),
		results: goResults,
	}
}

func names() (all []string) {
	for _, s := range subjects {
		all = append(all, s.name)
	}
	return all
}
