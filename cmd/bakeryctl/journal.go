package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/daemon/timeline"
	"github.com/bakeryd/bakeryd/layout"
)

// followLimit is the default number of past events with --follow.
const followLimit = 10

// eventsOptions select the events and their source.
type eventsOptions struct {
	follow bool
	period
	limit int
	files []string

	query events.Query
}

func defineEvents(a *app, cmd *cobra.Command) {
	var o eventsOptions
	cmd.Long = `Show what happened on this host: clients that requested, waited for, acquired and
released locks; and hosts that joined, became silent and died. With NAME only the
events of that lock are shown, and those of hosts, which concern all locks.

    request   a client requested the lock          waiting   it waits, with those ahead
    choosing  the host announced it on the disk    ticket    it drew a number, and who is ahead
    enter     it acquired the lock, with its token exit      it released the lock
    timeout   it was not granted in time           cancel    the client gave up or ended
    mode      its mode is now shared or exclusive  busy      it did not want to wait
    refused   the request was refused              removed   the lock was removed
    orphan    the client has ended, its command    kill      the command was sent a signal
              keeps the lock                       remains   processes survived SIGKILL
    wanted    "by" requested it from the holder    lost      the lock or the lease was lost
    resumed   kept through a restart of bakeryd    gap       events are missing here

joined, at risk (it does not renew its lease), seen (it renews again), asked (to leave),
fenced, dead and left are events of hosts; "by" is the host that reports it.

bakeryd keeps the events of its own host, in memory and in a file of its state
directory that survives restarts and reboots: /var/lib/bakery/LOCKSPACE-ID.events,
up to 32 MiB including its predecessor. For the events of several hosts, ask each
host, or give their files with --file.`
	cmd.Example = `  bakeryctl events nightly-backup
  bakeryctl events --since 03:00 --until 03:30 nightly-backup
  bakeryctl events --follow
  bakeryctl events --since 24h --json | jq -c 'select(.kind == "timeout")'
  bakeryctl events --file db1.events --file db2.events nightly-backup`
	cmd.ValidArgsFunction = a.completeLock

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(args, cmd.Flags().Changed("limit"), time.Now()); err != nil {
			return cli.Usage("events", "%w", err)
		}
		if len(o.files) > 0 {
			return a.eventsOfFiles(&o)
		}
		return a.eventsOfDaemon(cmd.Context(), &o)
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "also show new events as they happen")
	f.BoolVar(&a.json, "json", false, "print one JSON object per line")
	f.StringVar(&o.since, "since", "", "only events from `TIME` on: 03:12 (the latest), 2h (ago), a date, or RFC 3339")
	f.StringVar(&o.until, "until", "", "only events before `TIME`")
	f.IntVar(&o.limit, "limit", 0, "only the last `N` events (default: all, or 10 with --follow alone)")
	f.StringArrayVar(&o.files, "file", nil, "read the events in the file `PATH`, without bakeryd; may be repeated")
	a.colourFlag(cmd)
}

// check validates and completes the options.
func (o *eventsOptions) check(args []string, limited bool, now time.Time) (err error) {
	if len(args) > 0 {
		o.query.Lock = args[0]
		if err := layout.ValidateLockName(args[0]); err != nil {
			return err
		}
	}
	if o.query.From, o.query.Until, err = o.parse(now); err != nil {
		return err
	}
	switch {
	case limited && o.limit < 1:
		return fmt.Errorf("--limit %d, want 1 or more", o.limit)
	case o.follow && o.until != "":
		return errors.New("--follow and --until exclude each other")
	case o.follow && len(o.files) > 0:
		return errors.New("--follow and --file exclude each other")
	case o.follow && o.since == "" && !limited:
		o.limit = followLimit
	}
	return nil
}

// call returns the path and query of the request for the events.
func (o *eventsOptions) call() string {
	q := url.Values{}
	if o.query.Lock != "" {
		q.Set("name", o.query.Lock)
	}
	for key, t := range map[string]time.Time{"from": o.query.From, "until": o.query.Until} {
		if !t.IsZero() {
			q.Set(key, t.Format(time.RFC3339Nano))
		}
	}
	if o.limit > 0 {
		q.Set("limit", strconv.Itoa(o.limit))
	}
	if o.follow {
		q.Set("follow", "1")
	}
	return "/v1/events?" + q.Encode()
}

// eventsOfDaemon prints the events of bakeryd as they arrive.
func (a *app) eventsOfDaemon(ctx context.Context, o *eventsOptions) error {
	stream, err := client.New(a.socket).Open(ctx, o.call())
	if err != nil {
		return call.Failure(err)
	}
	defer stream.Close()
	show := show.EventTable{Out: a.stdout, Paint: a.paint()}
	in := bufio.NewReader(stream)
	for {
		line, err := in.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0 && !o.follow:
			return nil
		case errors.Is(err, io.EOF) && len(line) == 0:
			return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("follow the events of bakeryd at %s: bakeryd has ended", a.socket),
				Hint: "after a restart, run bakeryctl events --since to see the missed events"}
		}
		var e events.Event
		if err == nil && !a.json {
			err = json.Unmarshal(line, &e)
		}
		if err != nil {
			return call.Unreachable(fmt.Errorf("read its events: %w", err))
		}
		if a.json {
			_, err = a.stdout.Write(line)
		} else {
			err = show.Row(&e)
		}
		if err != nil {
			return err
		}
	}
}

// eventsOfFiles prints the events in the files of several hosts, by time.
func (a *app) eventsOfFiles(o *eventsOptions) error {
	var all []events.Event
	for _, path := range o.files {
		err := events.ReadFile(path, o.query, func(es []events.Event) error {
			all = append(all, es...)
			return nil
		})
		if err != nil {
			return &cli.Failure{Code: cli.ExitNoDevice, Err: err, Hint: "give files of bakeryd's --state-dir: LOCKSPACE-ID.events"}
		}
	}
	slices.SortStableFunc(all, func(a, b events.Event) int { return a.At.Compare(b.At) })
	if o.limit > 0 {
		all = all[max(0, len(all)-o.limit):]
	}
	show, enc := show.EventTable{Out: a.stdout, Paint: a.paint()}, events.NewEncoder(a.stdout)
	for i := range all {
		var err error
		if a.json {
			err = enc.Encode(&all[i])
		} else {
			err = show.Row(&all[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

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

EVENTS are the files that bakeryd keeps, /var/lib/bakery/LOCKSPACE-ID.events of each
host (the rotated part is read with it), or the output of "bakeryctl events --json";
- is standard input. Give the files of all hosts: if one is missing, the page shows only
what the other hosts saw of that host.

Two holders of one lock at the same time, and decreasing tokens, are violations: they are
marked, and printed on standard error. The exit code is then 1, after the page was
written. Clocks need not agree: if the order of the tokens shows that they do not, the page
corrects the times and says by how much. An overlap that clocks alone may explain is no
violation; if nothing else bounds the clocks, the page says that the journals do not
decide (doubt). Entries of a host that was stopped and declared dead meanwhile are no
violations either (late).

The page is written atomically, and readable only by its owner, as journals are. An
existing file is replaced only if it is such a page.`
	cmd.Example = `  bakeryctl timeline /var/lib/bakery/*.events -o night.html
  scp db1:/var/lib/bakery/*-1.events db2:/var/lib/bakery/*-2.events . && bakeryctl timeline *.events -o night.html
  bakeryctl timeline db*.events --since 03:00 --until 03:30 --lock nightly-backup -o night.html
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
	t, err := timeline.Build(sources, o.page)
	if errors.Is(err, timeline.ErrNoEvents) {
		return &cli.Failure{Code: cli.ExitNoDevice, Err: fmt.Errorf("no events in %s", strings.Join(paths, ", ")),
			Hint: "add the journals of other hosts, or widen --since and --until"}
	}
	if err != nil {
		return err
	}
	if err := a.writePage(t, o.output); err != nil {
		return &cli.Failure{Code: cli.ExitNoDevice, Err: err}
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
		fmt.Fprintf(a.stderr, "bakeryctl: and %d more violations\n", len(found)-most)
	}
	if len(found) > 0 {
		return &cli.Failure{Code: cli.ExitConflict}
	}
	return nil
}

// readSources reads the journals, which must belong to one lockspace.
func (a *app) readSources(paths []string) (all []timeline.Source, err error) {
	const hint = "give files of bakeryd's --state-dir, LOCKSPACE-ID.events, or the output of bakeryctl events --json"
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
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// period is the value of the flags --since and --until.
type period struct{ since, until string }

// parse returns the two times; a zero time is no limit.
func (p period) parse(now time.Time) (from, until time.Time, err error) {
	if p.since != "" {
		if from, err = cli.ParseMoment(p.since, now); err != nil {
			return from, until, fmt.Errorf("--since: %w", err)
		}
	}
	if p.until != "" {
		if until, err = cli.ParseMoment(p.until, now); err != nil {
			return from, until, fmt.Errorf("--until: %w", err)
		}
		if !until.After(from) {
			err = fmt.Errorf("--until %s is not after --since %s", show.EventTime(until), show.EventTime(from))
		}
	}
	return from, until, err
}
