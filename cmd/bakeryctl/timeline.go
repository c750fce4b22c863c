package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/daemon/timeline"
)

// timelineOptions say what the page shows, and where it goes.
type timelineOptions struct {
	output       string
	since, until string
	force        bool
	page         timeline.Options
}

func newTimeline(a *app) *cobra.Command {
	var o timelineOptions
	cmd := &cobra.Command{
		Use:   "timeline EVENTS... -o PAGE.html",
		Short: "Draw the journals of several hosts as one page: who had which lock when",
		Long: `Draw what several hosts' journals say as one HTML page: over time, and for each
lock, who had it and by which token, who waited for how long and behind whom, who
died and who broke in. The page needs no network and no other file.

EVENTS are the files that bakeryd keeps, /var/lib/bakery/LOCKSPACE-ID.events of each
host (the part that was put aside is read with it), or what "bakeryctl events --json"
printed; - is standard input. Give all hosts' that there are: where one is missing,
the page shows of that host what the others saw.

Two that had one lock at once and tokens that go back are marked, and told on
standard error: then the exit code is 1, after the page was written. Clocks need not
agree: where the order of the tokens shows that they do not, times are put right by
it, and the page says by how much. What clocks alone may explain is no violation, but
where nothing else bounds them the page says that the journals do not tell (doubt). Nor
is what a host notes that stood still and was declared dead meanwhile (late).

The page is written at once or not at all, and readable by its owner alone, as journals
are. A file that is there is written over only if it is such a page.`,
		Example: `  bakeryctl timeline /var/lib/bakery/*.events -o night.html
  scp db1:/var/lib/bakery/*-1.events db2:/var/lib/bakery/*-2.events . && bakeryctl timeline *.events -o night.html
  bakeryctl timeline db*.events --since 03:00 --until 03:30 --lock nightly-backup -o night.html
  bakeryctl events --json --since 1h | bakeryctl timeline - -o hour.html`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args, time.Now()); err != nil {
				return cli.Usage("timeline", "%w", err)
			}
			return a.timeline(&o, args)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.output, "output", "o", "", "write the page to `PATH`; - is standard output")
	f.StringArrayVar(&o.page.Locks, "lock", nil, "only the lock `NAME`, and hosts; may be repeated")
	f.StringVar(&o.since, "since", "", "what lasted until `TIME`, or was later: 03:12 (the last one), 2h (ago), a date, or RFC 3339")
	f.StringVar(&o.until, "until", "", "what had begun by `TIME`")
	f.StringVar(&o.page.Title, "title", "", "`TEXT` at the head of the page (default: the hosts)")
	f.BoolVar(&o.force, "force", false, "write over any file that is there")
	return cmd
}

// check completes the options.
func (o *timelineOptions) check(args []string, now time.Time) (err error) {
	if o.output == "" {
		return errors.New("no -o PATH given: where is the page to go?")
	}
	if o.since != "" {
		if o.page.From, err = cli.ParseMoment(o.since, now); err != nil {
			return fmt.Errorf("--since: %w", err)
		}
	}
	if o.until != "" {
		if o.page.Until, err = cli.ParseMoment(o.until, now); err != nil {
			return fmt.Errorf("--until: %w", err)
		}
		if !o.page.Until.After(o.page.From) {
			return fmt.Errorf("--until %s is not after --since %s", show.EventTime(o.page.Until), show.EventTime(o.page.From))
		}
	}
	if o.output != "-" && !o.force {
		return mayReplace(o.output)
	}
	return nil
}

// mayReplace accepts a path where nothing is, or a page: no journal is lost by a slip.
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
		return fmt.Errorf("%s is there and no page of bakeryctl timeline; --force writes over it", text.Printable(path))
	}
	return nil
}

func (a *app) timeline(o *timelineOptions, paths []string) error {
	sources, err := a.readSources(paths)
	if err != nil {
		return err
	}
	t, err := timeline.Build(sources, o.page)
	if errors.Is(err, timeline.ErrNoEvents) {
		return &cli.Failure{Code: cli.ExitNoDevice, Err: fmt.Errorf("no events in %s", strings.Join(paths, ", ")),
			Hint: "give the journals of other hosts too, or more time by --since and --until"}
	}
	if err != nil {
		return err
	}
	if err := a.writePage(t, o.output); err != nil {
		return &cli.Failure{Code: cli.ExitNoDevice, Err: err}
	}
	for _, s := range sources {
		if s.Damaged > 0 {
			fmt.Fprintf(a.stderr, "bakeryctl: %s: %s could not be read, and left out\n", text.Printable(s.Name), render.Count(s.Damaged, "line"))
		}
	}
	found := t.Violations()
	for i, f := range found {
		if i == 20 {
			fmt.Fprintf(a.stderr, "bakeryctl: and %d violations more\n", len(found)-i)
			break
		}
		fmt.Fprintf(a.stderr, "bakeryctl: violation: %s: %s, at %s\n", f.Kind, f.Text, f.At.Time().Format("2006-01-02 15:04:05.000 UTC"))
	}
	if len(found) > 0 {
		return &cli.Failure{Code: cli.ExitConflict}
	}
	return nil
}

// readSources reads the journals. All are of one lockspace.
func (a *app) readSources(paths []string) (all []timeline.Source, err error) {
	const hint = "bakeryd keeps events in its --state-dir, as LOCKSPACE-ID.events; bakeryctl events --json prints them"
	space, of := "", ""
	for _, path := range paths {
		var s timeline.Source
		if path == "-" {
			s, err = timeline.Read(a.stdin, "standard input")
		} else {
			s, err = timeline.ReadFile(path)
		}
		if err != nil {
			var pe *os.PathError
			if errors.As(err, &pe) {
				err = fmt.Errorf("read %s: %w", path, pe.Err)
			}
			return nil, &cli.Failure{Code: cli.ExitNoDevice, Err: err, Hint: hint}
		}
		if u := s.Lockspace(); u != "" {
			if space != "" && u != space {
				return nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("%s and %s are of two lockspaces", of, path), Hint: "make a page of each"}
			}
			space, of = u, path
		}
		all = append(all, s)
	}
	return all, nil
}

// writePage writes at once or not at all, where it is not to standard output.
func (a *app) writePage(t *timeline.Timeline, path string) (err error) {
	if path == "-" {
		return t.Write(a.stdout)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".timeline-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if err := t.Write(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
