package top

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
)

const (
	patience    = 10 * time.Second // for one answer
	retryAfter  = time.Second      // between two attempts at the events
	deviceShare = 10               // a part of the time at most is a device read that nobody else reads for us
	eventsKept  = 200              // are kept
	lineAtMost  = 1 << 20          // bytes of a line; no event is as long
)

// answer is what was read once.
type answer struct {
	at      time.Time // by the clock of bakeryd
	report  *report.Report
	trouble string // why report is old, or missing; empty: it is neither
	hint    string
	read    daemon.GlanceRead
	speeds  []speed
	oldest  time.Duration // a request to the device is under way for so long
}

// speed is how long something takes that bakeryd does on the device.
type speed struct {
	what           string
	p50, p99, most time.Duration
	count, errors  uint64
}

// Source is where top reads.
type Source interface {
	// name says what is read, for people.
	name() string
	// read returns what is there now. Where it errs there is nothing.
	read(ctx context.Context) (*answer, error)
	// follow hands over events as they come, until ctx is done; gone says why there are none for now, nil that there are again.
	follow(ctx context.Context, each func(events.Event), gone func(error))
}

// socketSource asks bakeryd. It asks for what the status page asks for, which all who look share: a report of its own would
// have the whole lockspace read each time.
type socketSource struct{ socket string }

// Bakeryd returns what asks the bakeryd at socket.
func Bakeryd(socket string) Source { return socketSource{socket} }

func (s socketSource) name() string { return s.socket }

func (s socketSource) read(ctx context.Context) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var body json.RawMessage
	if err := call.Ask(ctx, s.socket, http.MethodGet, "/page/status", nil, &body); err != nil {
		return nil, err
	}
	a, err := parseAnswer(body)
	if err != nil {
		return nil, call.Unreachable(fmt.Errorf("read its answer: %w", err))
	}
	return a, nil
}

// parseAnswer reads a Glance, and what a bakeryd may tell beside it of how long its device takes.
func parseAnswer(body []byte) (*answer, error) {
	var g daemon.Glance
	if err := json.Unmarshal(body, &g); err != nil {
		return nil, err
	}
	a := &answer{at: g.At, report: g.Report, read: g.Read}
	if g.Error != nil {
		a.trouble, a.hint = g.Error.Message, g.Error.Hint
	}
	if a.report == nil && a.trouble == "" {
		return nil, errors.New("it tells nothing")
	}
	type latency struct {
		P50    *int64 `json:"p50_us"`
		P99    int64  `json:"p99_us"`
		Max    int64  `json:"max_us"`
		Count  uint64 `json:"count"`
		Errors uint64 `json:"errors"`
	}
	var beside struct {
		Report struct {
			ThisHost struct {
				IO struct {
					Read, Write latency
					OldestMS    int64 `json:"oldest_ms"`
				} `json:"io"`
				Renewals latency `json:"renewals"`
			} `json:"this_host"`
		} `json:"report"`
	}
	if json.Unmarshal(body, &beside) != nil {
		return a, nil // it tells something else
	}
	self := beside.Report.ThisHost
	a.oldest = time.Duration(self.IO.OldestMS) * time.Millisecond
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	for _, s := range []struct {
		what string
		of   latency
	}{{"read", self.IO.Read}, {"write", self.IO.Write}, {"renewal", self.Renewals}} {
		if s.of.P50 != nil && s.of.Count > 0 { // else there is nothing to tell of it yet
			a.speeds = append(a.speeds, speed{s.what, us(*s.of.P50), us(s.of.P99), us(s.of.Max), s.of.Count, s.of.Errors})
		}
	}
	return a, nil
}

func (s socketSource) follow(ctx context.Context, each func(events.Event), gone func(error)) {
	last := uint64(0)
	for ctx.Err() == nil {
		err := s.followOnce(ctx, &last, each, func() { gone(nil) })
		if ctx.Err() != nil {
			return
		}
		gone(err)
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// followOnce reads one stream of events to its end. What was had before is not asked for again.
func (s socketSource) followOnce(ctx context.Context, last *uint64, each func(events.Event), begun func()) error {
	q := url.Values{"follow": {"1"}, "limit": {strconv.Itoa(eventsKept)}}
	if *last > 0 {
		q.Set("since", strconv.FormatUint(*last, 10))
	}
	stream, err := client.New(s.socket).Open(ctx, "/v1/events?"+q.Encode())
	if err != nil {
		return call.Failure(err)
	}
	defer stream.Close()
	begun()
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, lineAtMost)
	for lines.Scan() {
		var e events.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return call.Unreachable(fmt.Errorf("read its events: %w", err))
		}
		if e.Seq > *last {
			*last = e.Seq
			each(e)
		}
	}
	if err := lines.Err(); err != nil {
		return call.Unreachable(fmt.Errorf("read its events: %w", err))
	}
	return call.Unreachable(io.EOF)
}

// deviceSource reads the disk, and watches by itself who renews: nobody else tells it. One goroutine uses it.
type deviceSource struct {
	path  string
	scan  func(path string) (*report.Report, error)
	seen  map[int]sighting // by host
	first time.Time        // the first read
}

// Device returns what reads the disk at path, by scan.
func Device(path string, scan func(path string) (*report.Report, error)) Source {
	return &deviceSource{path: path, scan: scan}
}

// sighting is a host record as it was when it was another than before.
type sighting struct {
	incarnation, sequence uint64
	at                    time.Time
}

func (s *deviceSource) name() string { return s.path }

func (s *deviceSource) read(ctx context.Context) (*answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	begun := time.Now()
	report, err := s.scan(s.path)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s.watch(report, now)
	return &answer{at: now, report: report, read: daemon.GlanceRead{TookMS: now.Sub(begun).Milliseconds()}}, nil
}

// watch adds to a report for how long hosts have not been seen to renew.
func (s *deviceSource) watch(r *report.Report, now time.Time) {
	if s.seen == nil {
		s.seen, s.first = map[int]sighting{}, now
	}
	for i := range r.Hosts {
		h := &r.Hosts[i]
		was, known := s.seen[h.ID]
		if !known || was.incarnation != h.Incarnation || was.sequence != h.Sequence {
			was = sighting{h.Incarnation, h.Sequence, now}
			s.seen[h.ID] = was
		}
		if state := show.Health(*h); state != report.HealthLive && state != report.HealthJoining {
			continue
		}
		silent := now.Sub(was.at)
		if !known && now.Equal(s.first) { // when it renewed last is not known yet
			continue
		}
		h.SilentMS = new(silent.Milliseconds())
		if lease := time.Duration(r.Lockspace.LeaseMS) * time.Millisecond; show.Health(*h) == report.HealthLive && silent > lease/2 {
			h.Health = report.HealthSilent
		}
	}
}

// follow implements Source: the disk keeps no events.
func (s *deviceSource) follow(context.Context, func(events.Event), func(error)) {}
