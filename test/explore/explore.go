// Command explore runs the exhaustive explorations of the repository and keeps a ledger of their
// results, so that unchanged code is not explored twice.
//
//	go run ./test/explore SUBJECT          quick scenarios if the ledger matches, else everything
//	go run ./test/explore --full SUBJECT   everything; writes the ledger
//
// The result of an exploration is a pure function of its sources. The ledger of a subject, a file
// EXPLORED next to its code, names every source with its hash, and every scenario with its number
// of states. If a source, a scenario or the ledger itself changed, the ledger does not match and
// the whole exploration runs. The quick scenarios must reach exactly the states that the ledger
// names; otherwise something that is not in the ledger matters, and the whole exploration runs too.
//
// subject.go lists the subjects, ledger.go holds the format, source.go what a result depends on,
// result.go what the explorers print.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	full := flag.Bool("full", false, "explore everything and write the ledger")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: explore [--full] SUBJECT; subjects: %v\n", names())
		fmt.Fprintln(flag.CommandLine.Output(), "Without --full it explores everything only if the ledger does not match.")
	}
	flag.Parse()
	i := slices.IndexFunc(subjects, func(s subject) bool { return s.name == flag.Arg(0) })
	if flag.NArg() != 1 || i < 0 {
		fmt.Fprintf(os.Stderr, "explore: got %q, want one subject, after the flags\n", flag.Args())
		flag.Usage()
		os.Exit(64)
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err == nil {
		err = explorer{root: string(bytes.TrimSpace(root)), out: os.Stdout}.explore(subjects[i], *full)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "explore: %v\n", err)
		os.Exit(1)
	}
}

// explorer explores subjects of the module in root.
type explorer struct {
	root string
	out  io.Writer
}

// explore runs the quick scenarios of a subject if its ledger matches, and else, or if full is set,
// all of them. It returns an error if a scenario failed.
func (x explorer) explore(s subject, full bool) error {
	if !full {
		err := x.quick(s)
		var stale staleError
		if !errors.As(err, &stale) {
			return err
		}
		fmt.Fprintf(x.out, "%s does not match: %v\nexploring everything\n", s.ledger(), stale)
	}
	return x.full(s)
}

// staleError is returned when a ledger does not describe the code.
type staleError struct{ error }

// quick returns a staleError if the ledger does not match the sources or the states found.
func (x explorer) quick(s subject) error {
	data, err := os.ReadFile(filepath.Join(x.root, s.ledger()))
	if err != nil {
		return staleError{err}
	}
	l, err := parse(data)
	if err != nil {
		return staleError{err}
	}
	now, err := x.sources(s)
	if err != nil {
		return err
	}
	if d := difference(l.sources, now); d != "" {
		return staleError{fmt.Errorf("changed since %s, when everything took %s: %s", l.date, l.took, d)}
	}
	fmt.Fprintf(x.out, "%s matches: %d states in %s on %s\n", s.ledger(), total(l.states), l.took, l.date)
	begin := time.Now()
	found, err := x.run(s, s.quick)
	if err != nil {
		return err
	}
	if d := difference(l.ofQuick(), found); d != "" {
		return staleError{fmt.Errorf("quick scenarios reached other states: %s", d)}
	}
	fmt.Fprintf(x.out, "quick scenarios: %d of %d, %d states in %s, equal to the ledger's\n",
		len(found), len(l.states), total(found), since(begin))
	return nil
}

// full explores everything and writes the ledger.
func (x explorer) full(s subject) error {
	before, err := x.sources(s)
	if err != nil {
		return err
	}
	begin := time.Now()
	found, err := x.run(s, s.full)
	if err != nil {
		return err
	}
	l := ledger{date: begin.Format(time.DateOnly), took: since(begin), states: found, quick: map[string]bool{}}
	quick, err := x.run(s, s.quick)
	if err != nil {
		return err
	}
	for name := range quick {
		l.quick[name] = true
	}
	if d := difference(l.ofQuick(), quick); d != "" {
		return fmt.Errorf("quick scenarios reach other states when they run alone, %s is not written: %s", s.ledger(), d)
	}
	if l.sources, err = x.sources(s); err != nil {
		return err
	}
	if d := difference(before, l.sources); d != "" {
		return fmt.Errorf("sources changed during the exploration, %s is not written: %s", s.ledger(), d)
	}
	if err := os.WriteFile(filepath.Join(x.root, s.ledger()), l.encode(), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(x.out, "explored: %d scenarios, %d states in %s; commit %s\n", len(found), total(found), l.took, s.ledger())
	return nil
}

// command returns a command that runs in the root. The caller's settings for go must not change
// what is explored.
func (x explorer) command(argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr = x.root, x.out
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off", "GOEXPERIMENT=", "GOENV=off")
	return cmd
}

// run runs an exploration and returns the states of each scenario. It prints what failed.
func (x explorer) run(s subject, argv []string) (map[string]string, error) {
	cmd := x.command(argv...)
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	found, err := s.results(output, x.out)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("%v: %w", argv, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%v: no scenario was explored", argv)
	}
	return found, nil
}

func since(t time.Time) string { return time.Since(t).Round(time.Second).String() }
