package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/cmd/internal/flags"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/events"
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

  request   a client requested the lock
  choosing  the host announced it on the disk
  ticket    it drew a number; with those ahead
  waiting   it waits; with those ahead
  enter     it acquired the lock, with its token
  exit      it released the lock
  timeout   it was not granted in time
  busy      it did not want to wait
  cancel    the client gave up or ended
  refused   the request was refused
  mode      its mode is now shared or exclusive
  wanted    "by" requested it from the holder
  orphan    the client has ended, its command keeps the lock
  kill      the command was sent a signal
  remains   processes survived SIGKILL
  lost      the lock or the lease was lost
  resumed   kept through a restart of bakeryd
  removed   the lock was removed
  gap       events are missing here

joined, at risk (it does not renew its lease), seen (it renews again), asked (to leave),
fenced, dead and left are events of hosts; "by" is the host that reports it. disk lost and
disk back are those of a member disk, as this host sees it; replaced, of its position.
Hosts that have the same name are shown with their ids: host 2 (db1).

bakeryd keeps the events of its own host, in memory and in a file of its state
directory that survives restarts and reboots: /var/lib/bakery/UUID-N.events, up to
32 MiB including its predecessor; UUID is the lockspace's, N the host id. For the
events of several hosts, ask each host, or give their files with --file.`
	cmd.Example = `  bakeryctl events nightly-backup
  bakeryctl events --since 03:00 --until 03:30 nightly-backup
  bakeryctl events --follow
  bakeryctl events --since 24h --json | jq -c 'select(.kind == "timeout")'
  bakeryctl events --file db1.events --file db2.events nightly-backup`
	cmd.ValidArgsFunction = a.bakeryd().Lock

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
	flags.Int(f, &o.limit, "limit", "", 1, math.MaxInt, "only the last `N` events (default: all, or 10 with --follow alone)")
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
	var stream io.ReadCloser
	err := call.Wait(ctx, a.socket, func(ctx context.Context) (err error) {
		stream, err = client.New(a.socket).Open(ctx, o.call())
		return err
	})
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
			return &cli.Failure{Code: cli.ExitNoDevice, Err: err, Hint: "give files of bakeryd's --state-dir: UUID-N.events"}
		}
	}
	slices.SortStableFunc(all, func(a, b events.Event) int { return a.At.Compare(b.At) })
	if o.limit > 0 {
		all = all[max(0, len(all)-o.limit):]
	}
	if !a.json {
		return (&show.EventTable{Out: a.stdout, Paint: a.paint()}).Rows(all)
	}
	for i := range all {
		if _, err := a.stdout.Write(all[i].AppendLine(nil)); err != nil {
			return err
		}
	}
	return nil
}

// period is the value of the flags --since and --until.
type period struct{ since, until string }

// parse returns the two times; a zero time is no limit.
func (p period) parse(now time.Time) (from, until time.Time, err error) {
	if p.since != "" {
		if from, err = cli.ParseMoment(p.since, now); err != nil {
			return from, until, fmt.Errorf("--since %w", err)
		}
	}
	if p.until != "" {
		if until, err = cli.ParseMoment(p.until, now); err != nil {
			return from, until, fmt.Errorf("--until %w", err)
		}
		if !until.After(from) {
			err = fmt.Errorf("--until %s is not after --since %s", show.EventTime(until), show.EventTime(from))
		}
	}
	return from, until, err
}
