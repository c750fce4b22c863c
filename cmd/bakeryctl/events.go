package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// followLimit is how much of the past comes before what is followed, if nothing else is asked for.
const followLimit = 10

// eventsOptions say which events are shown, and from where.
type eventsOptions struct {
	follow, json bool
	since, until string
	limit        int
	files        []string

	query events.Query
}

func newEvents(a *app) *cobra.Command {
	var o eventsOptions
	cmd := &cobra.Command{
		Use:   "events [NAME]",
		Short: "Show who had a lock and when, who waited for whom, and why",
		Long: `Show what has happened on this host: who asked for a lock, waited for whom, had
it and let it go; and which hosts came, fell silent and died. With NAME it is that
lock's events, and those of hosts, which concern all locks.

request   a client asked for the lock          waiting   and waits, behind whom
choosing  the host announced it on the disk    ticket    and drew a number, behind whom
enter     it has the lock, by the token        exit      it let go
timeout   it was not granted in time           cancel    the client gave up, or is gone
mode      it goes on shared, or exclusive      busy      it would not wait
refused   it cannot be had                     removed   the lock is gone
orphan    the client is gone, its command      kill      the command was sent a signal
          keeps the lock                       remains   and processes did not end by SIGKILL
wanted    "by" asked the holder for it         lost      the lock, or the host's lease
resumed   kept through a restart of bakeryd    gap       events are missing here

joined, at risk (it does not renew its lease), seen (it does again), asked (to leave),
fenced, dead and left are of hosts; "by" is who says so.

bakeryd keeps the events of its own host, in memory and in a file of its state
directory that outlives restarts and reboots: /var/lib/bakery/LOCKSPACE-ID.events,
up to 32 MiB with the one before. To see a lock from all sides ask every host, or
give the files of several with --file.`,
		Example: `  bakeryctl events nightly-backup
  bakeryctl events --since 03:00 --until 03:30 nightly-backup
  bakeryctl events --follow
  bakeryctl events --since 24h --json | jq -c 'select(.kind == "timeout")'
  bakeryctl events --file db1.events --file db2.events nightly-backup`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeLock,

		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args, cmd.Flags().Changed("limit"), time.Now()); err != nil {
				return cli.Usage("events", "%w", err)
			}
			if len(o.files) > 0 {
				return a.eventsOfFiles(&o)
			}
			return a.eventsOfDaemon(cmd.Context(), &o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with what happens from now on")
	f.BoolVar(&o.json, "json", false, "show them as JSON, a line each")
	f.StringVar(&o.since, "since", "", "not before `TIME`: 03:12 (the last one), 2h (ago), a date, or RFC 3339")
	f.StringVar(&o.until, "until", "", "before `TIME`")
	f.IntVar(&o.limit, "limit", 0, "the last `N` only (default: all, or 10 with --follow alone)")
	f.StringArrayVar(&o.files, "file", nil, "read the events that were kept in `PATH`, without bakeryd; may be repeated")
	a.colourFlag(cmd)
	return cmd
}

// check completes the options.
func (o *eventsOptions) check(args []string, limited bool, now time.Time) (err error) {
	if len(args) > 0 {
		o.query.Lock = args[0]
		if err := layout.ValidateLockName(args[0]); err != nil {
			return err
		}
	}
	if o.since != "" {
		if o.query.From, err = cli.ParseMoment(o.since, now); err != nil {
			return fmt.Errorf("--since: %w", err)
		}
	}
	if o.until != "" {
		if o.query.Until, err = cli.ParseMoment(o.until, now); err != nil {
			return fmt.Errorf("--until: %w", err)
		}
		if !o.query.Until.After(o.query.From) {
			return fmt.Errorf("--until %s is not after --since %s", show.EventTime(o.query.Until), show.EventTime(o.query.From))
		}
	}
	switch {
	case limited && o.limit < 1:
		return fmt.Errorf("--limit %d, want 1 or more", o.limit)
	case o.follow && o.until != "":
		return errors.New("--follow has no end, --until gives one")
	case o.follow && len(o.files) > 0:
		return errors.New("--follow asks bakeryd, --file does not")
	case o.follow && o.since == "" && !limited:
		o.limit = followLimit
	}
	return nil
}

// call is the request for the events.
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

// eventsOfDaemon shows what bakeryd has, as it comes.
func (a *app) eventsOfDaemon(ctx context.Context, o *eventsOptions) error {
	stream, err := client.New(a.socket).Open(ctx, o.call())
	if err != nil {
		return call.Failure(err)
	}
	defer stream.Close()
	show := show.NewEventTable(a.stdout, a.paint())
	in := bufio.NewReader(stream)
	for {
		line, err := in.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0 && !o.follow:
			return nil
		case errors.Is(err, io.EOF) && len(line) == 0:
			return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("bakeryd at %s has ended", a.socket),
				Hint: "when it is started again, bakeryctl events --since shows what was missed"}
		case err != nil:
			return call.Unreachable(fmt.Errorf("read its events: %w", err))
		}
		if o.json {
			_, err = a.stdout.Write(line)
		} else {
			var e events.Event
			if err := json.Unmarshal(line, &e); err != nil {
				return call.Unreachable(fmt.Errorf("read its events: %w", err))
			}
			err = show.Row(&e)
		}
		if err != nil {
			return err
		}
	}
}

// eventsOfFiles shows what several hosts kept, by time.
func (a *app) eventsOfFiles(o *eventsOptions) error {
	var all []events.Event
	for _, path := range o.files {
		err := events.ReadFile(path, o.query, func(es []events.Event) error {
			all = append(all, es...)
			return nil
		})
		if err != nil {
			return &cli.Failure{Code: cli.ExitNoDevice, Err: err, Hint: "bakeryd keeps them in its --state-dir, as LOCKSPACE-ID.events"}
		}
	}
	slices.SortStableFunc(all, func(a, b events.Event) int { return a.At.Compare(b.At) })
	if o.limit > 0 {
		all = all[max(0, len(all)-o.limit):]
	}
	show, enc := show.NewEventTable(a.stdout, a.paint()), events.NewEncoder(a.stdout)
	for i := range all {
		var err error
		if o.json {
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
