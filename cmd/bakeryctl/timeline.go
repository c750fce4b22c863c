package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/daemon/timeline"
)

// timelineOptions select the contents of the page, and its file.
type timelineOptions struct {
	output string
	period
	force bool
	page  timeline.Options
}

func defineTimeline(a *app, cmd *cobra.Command) {
	var o timelineOptions
	cmd.Long = `Draw the journals of several hosts as one HTML page. Over time, and for each lock, it
shows the holders with their tokens, how long clients waited and for which others, and which
hosts died or were declared dead. The page needs no network and no other file.

EVENTS are the files that bakeryd keeps, /var/lib/bakery/UUID-N.events of each
host (the rotated part is read with it), or the output of "bakeryctl events --json";
- is standard input. Give the files of all hosts: if one is missing, the page shows only
what the other hosts saw of that host.

Two holders of one lock at the same time, and decreasing tokens, are violations: they are
marked, and printed on standard error. Clocks need not agree: if the order of the tokens
shows that they do not, the page corrects the times and says by how much. An overlap that
clocks alone may explain is no violation; if nothing else bounds the clocks, the page says
that the journals do not decide (doubt). Entries of a host that was stopped and declared
dead meanwhile are no violations either (late).

Hosts that have the same name are shown with their ids. A hold or wait that is not over
by the end of its host's journal counts until there.

The page is written atomically, and readable only by its owner, as journals are. An
existing file is replaced only if it is such a page.

Exit codes:
  0   the page was written, and shows no violation
  1   the page was written, and shows violations
  64  the command line is wrong
  66  a journal cannot be read, there are no events, or none of a lock that --lock names,
      or the page cannot be written`
	cmd.Example = `  bakeryctl timeline /var/lib/bakery/*.events -o night.html
  scp db1:/var/lib/bakery/*-1.events db2:/var/lib/bakery/*-2.events .
  bakeryctl timeline *.events -o night.html
  bakeryctl timeline *.events --since 03:00 --lock nightly -o night.html
  bakeryctl events --json --since 1h | bakeryctl timeline - -o hour.html`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(time.Now()); err != nil {
			return cli.Usage("timeline", "%w", err)
		}
		return a.timeline(&o, args)
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "write the page to `PATH`; - is standard output")
	f.StringArrayVar(&o.page.Locks, "lock", nil, "show only the lock `NAME`, and hosts; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("lock", a.bakeryd().AnyLock) // no error: the flag exists
	f.StringVar(&o.since, "since", "", "omit what ended before `TIME`: 03:12 (the latest), 2h (ago), a date, or RFC 3339")
	f.StringVar(&o.until, "until", "", "omit what began after `TIME`")
	f.StringVar(&o.page.Title, "title", "", "title `TEXT` of the page (default: the hosts)")
	f.BoolVar(&o.force, "force", false, "replace any existing file")
}

// check validates and completes the options.
func (o *timelineOptions) check(now time.Time) (err error) {
	if o.output == "" {
		return errors.New("no -o PATH given")
	}
	if o.page.From, o.page.Until, err = o.parse(now); err != nil {
		return err
	}
	if o.output != "-" && !o.force {
		return mayReplace(o.output)
	}
	return nil
}

// mayReplace returns an error if path exists and is no page, so that no journal is overwritten by mistake.
func mayReplace(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, len(timeline.PageMark))
	if _, err := io.ReadFull(f, head); err != nil || string(head) != timeline.PageMark {
		return fmt.Errorf("write %s: it exists and is no page of bakeryctl timeline; use --force to replace it", text.Printable(path))
	}
	return nil
}

func (a *app) timeline(o *timelineOptions, paths []string) error {
	sources, err := a.readSources(paths)
	if err != nil {
		return err
	}
	if err := haveLocks(sources, o.page.Locks); err != nil {
		return err
	}
	t, err := timeline.Build(sources, o.page)
	if errors.Is(err, timeline.ErrNoEvents) {
		return &cli.Failure{Code: cli.ExitNoDevice, Err: fmt.Errorf("no events in %s", strings.Join(paths, ", ")),
			Hint: "add the journals of other hosts, or widen --since and --until"}
	}
	if err != nil {
		return err
	}
	if err := a.writePage(t, o.output); err != nil {
		return &cli.Failure{Code: cli.ExitNoDevice, Err: err, Hint: "check the directory of -o, its permissions and its free space"}
	}
	for _, s := range sources {
		if s.Damaged > 0 {
			fmt.Fprintf(a.stderr, "bakeryctl: %s: skipped %s that could not be read\n", text.Printable(s.Name), render.Count(s.Damaged, "line"))
		}
	}
	const most = 20
	found := t.Violations()
	for _, f := range found[:min(len(found), most)] {
		fmt.Fprintf(a.stderr, "bakeryctl: violation: %s: %s, at %s\n", f.Kind, f.Text, f.At.Time().Format("2006-01-02 15:04:05.000 UTC"))
	}
	if len(found) > most {
		fmt.Fprintf(a.stderr, "bakeryctl: and %s\n", render.Count(len(found)-most, "more violation"))
	}
	if len(found) > 0 {
		return &cli.Failure{Code: cli.ExitConflict}
	}
	return nil
}

// haveLocks returns an error that names the locks of the journals if one of the given ones is not there.
func haveLocks(sources []timeline.Source, want []string) error {
	there := map[string]bool{}
	for _, s := range sources {
		for i := range s.Events {
			there[s.Events[i].Lock] = true
		}
	}
	delete(there, "") // of events about hosts
	for _, name := range want {
		if there[name] {
			continue
		}
		const most = 20
		names := slices.Sorted(maps.Keys(there))
		for i := range names {
			names[i] = text.Printable(names[i])
		}
		if n := len(names); n > most {
			names = append(names[:most], fmt.Sprintf("and %d more", n-most))
		}
		return &cli.Failure{Code: cli.ExitNoDevice, Err: fmt.Errorf("no events of lock %q in the journals", name),
			Hint: "they have events of " + cmp.Or(strings.Join(names, ", "), "no lock")}
	}
	return nil
}

// readSources reads the journals, which must belong to one lockspace.
func (a *app) readSources(paths []string) (all []timeline.Source, err error) {
	const hint = "give files of bakeryd's --state-dir, UUID-N.events, or the output of bakeryctl events --json"
	space, of := "", ""
	for _, path := range paths {
		var s timeline.Source
		if path == "-" {
			s, err = timeline.Read(a.stdin, "standard input")
		} else {
			s, err = timeline.ReadFile(path)
		}
		if err != nil {
			return nil, &cli.Failure{Code: cli.ExitNoDevice, Err: err, Hint: hint}
		}
		if u := s.Lockspace(); u != "" {
			if space != "" && u != space {
				return nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("%s and %s belong to different lockspaces", of, path), Hint: "create a page for each lockspace"}
			}
			space, of = u, path
		}
		all = append(all, s)
	}
	return all, nil
}

// writePage writes the page atomically, except to standard output.
func (a *app) writePage(t *timeline.Timeline, path string) error {
	if path == "-" {
		return t.Write(a.stdout)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".timeline-*")
	if err == nil {
		if err = cmp.Or(t.Write(f), f.Close()); err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			os.Remove(f.Name())
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, text.WithoutPath(err)) // that of the temporary file
	}
	return nil
}
