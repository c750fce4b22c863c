// Command bench compares bakeryd with flock(1), etcd and sanlock on one disk, measures how it
// scales, and writes the results as Markdown. test/bench/run installs and builds what it needs, and
// runs it. It knows these programs only by their command lines and output.
//
// Begin with the list of parts in parts.go: each part writes a JSON file, which report.go turns
// into text. A part that cannot be measured says why.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/test/bench/scale"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("want measure, report, loop, point or grant: test/bench/run calls it")
	}
	switch args[0] {
	case "measure":
		return runMeasure(ctx, args[1:])
	case "report":
		return runReport(args[1:])
	case "loop":
		return runLoop(ctx, args[1:])
	case "point":
		return runPoint(ctx, args[1:])
	case "grant":
		return runGrant(ctx, args[1:])
	}
	return fmt.Errorf("no command %q", args[0])
}

// setup is the environment of a run.
type setup struct {
	work   string // directory on the measured disk
	bin    string // commands that test/bench/run has built
	deb    string // Debian's packages, unpacked
	keep   string // directory of the parts' JSON
	commit string // of bakeryd
	quick  bool   // test run: the figures mean nothing
}

func runMeasure(ctx context.Context, args []string) error {
	var s setup
	var only string
	fs := flag.NewFlagSet("measure", flag.ContinueOnError)
	fs.StringVar(&s.work, "work", "", "`directory` on the disk to measure")
	fs.StringVar(&s.bin, "bin", "", "`directory` of bakeryd, bakeryctl and the clients")
	fs.StringVar(&s.deb, "deb", "", "`directory` below which etcd and sanlock were unpacked")
	fs.StringVar(&s.keep, "keep", "", "`directory` for the results")
	fs.StringVar(&s.commit, "commit", "unknown", "`version` of bakeryd")
	fs.StringVar(&only, "only", "", "comma-separated `parts` rather than all")
	fs.BoolVar(&s.quick, "quick", false, "only try it out")
	if err := fs.Parse(args); err != nil {
		return err
	}
	wanted := parts
	if only != "" {
		wanted = nil
		for name := range strings.SplitSeq(only, ",") {
			i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
			if i < 0 {
				return fmt.Errorf("no part %q: there are %s", name, partNames())
			}
			wanted = append(wanted, parts[i])
		}
	}
	if !s.quick {
		for _, p := range wanted {
			if err := s.part(ctx, p); err != nil {
				return err
			}
		}
		return nil
	}
	errs := make(chan error) // the figures are independent: all at once
	for _, p := range wanted {
		go func() { errs <- s.part(ctx, p) }()
	}
	var all error
	for range wanted {
		all = errors.Join(all, <-errs)
	}
	return all
}

// part measures one part and stores its result.
func (s *setup) part(ctx context.Context, p part) error {
	begun := time.Now()
	fmt.Printf("-- %s: %s\n", p.name, p.about)
	out, err := p.measure(ctx, s)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	file := kept{Part: p.name, At: begun.UTC().Truncate(time.Second), Seconds: time.Since(begun).Seconds(), Quick: s.quick}
	skip := skipped("")
	switch {
	case errors.As(err, &skip):
		file.Skipped = skip.Error()
		fmt.Printf("   SKIP %s: %s\n", p.name, skip)
	case err != nil:
		return fmt.Errorf("%s: %w", p.name, err)
	default:
		if file.Result, err = json.Marshal(out); err != nil {
			return err
		}
	}
	fmt.Printf("   %s: %.0f s\n", p.name, file.Seconds)
	return file.write(s.keep)
}

// kept is the stored result of a part.
type kept struct {
	Part    string          `json:"part"`
	At      time.Time       `json:"at"`
	Seconds float64         `json:"seconds"`
	Quick   bool            `json:"quick,omitempty"`
	Skipped string          `json:"skipped,omitempty"` // why it was not measured
	Result  json.RawMessage `json:"result,omitempty"`
}

func (k kept) write(dir string) error {
	b, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, k.Part+".json"), append(b, '\n'), 0o666)
}

// skipped is the error of a part that cannot be measured here.
type skipped string

func (s skipped) Error() string { return string(s) }

// runPoint measures bakeryd in one lockspace, in a separate process.
func runPoint(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("point", flag.ContinueOnError)
	dir := fs.String("dir", "", "`directory` for files")
	hosts := fs.Int("hosts", 2, "live hosts")
	locks := fs.Int("locks", 1, "locks, all used")
	lease := fs.Duration("lease", 6*time.Second, "of the lockspace")
	if err := fs.Parse(args); err != nil {
		return err
	}
	p, err := scale.Measure(ctx, *dir, *hosts, *locks, *lease)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(p)
}

func runGrant(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("grant", flag.ContinueOnError)
	dir := fs.String("dir", "", "`directory` for files")
	var c scale.Crowd
	fs.IntVar(&c.Hosts, "hosts", 2, "live hosts")
	fs.IntVar(&c.Locks, "locks", 1, "other locks, all held")
	fs.IntVar(&c.Waiters, "waiters", 8, "clients that wait")
	fs.IntVar(&c.Lookers, "lookers", 0, "clients that only look")
	lasting := fs.Duration("lasting", 3*time.Second, "of the measurement")
	if err := fs.Parse(args); err != nil {
		return err
	}
	g, err := scale.MeasureGrant(ctx, *dir, c, *lasting)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(g)
}

func runReport(args []string) error {
	fs := flag.NewFlagSet("report", flag.ContinueOnError)
	keep := fs.String("keep", "", "`directory` with the results")
	out := fs.String("out", "", "`file` to write")
	plots := fs.String("plots", "", "`file` to write what is to be plotted to")
	if err := fs.Parse(args); err != nil {
		return err
	}
	r, err := load(*keep)
	if err != nil {
		return err
	}
	f, err := os.Create(*out)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	r.write(w)
	if err := w.Flush(); err != nil {
		return err
	}
	if *plots == "" {
		return nil
	}
	b, err := json.MarshalIndent(r.plots(), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*plots, b, 0o666)
}
