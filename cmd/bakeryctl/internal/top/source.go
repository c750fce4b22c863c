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
	answerTimeout = 10 * time.Second // for one answer
	retryAfter    = time.Second      // between two event streams
	deviceShare   = 10               // a device is read for at most this fraction of the time
	eventsKept    = 200              // events that are kept
	lineAtMost    = 1 << 20          // maximum bytes of an event line
)

// answer is the result of one read.
type answer struct {
	at      time.Time // by the clock of bakeryd
	report  *report.Report
	trouble string // why report is old or missing; empty if it is current
	hint    string
	read    daemon.GlanceRead
	speeds  []speed
	oldest  time.Duration // age of the oldest pending request to the device
}

// speed is the latency of one kind of device request of bakeryd.
type speed struct {
	what           string
	p50, p99, most time.Duration
	count, errors  uint64
}

// Source is the data source of top.
type Source interface {
	// name returns the socket or device, for display.
	name() string
	// read returns the current data. An error means there is none.
	read(ctx context.Context) (*answer, error)
	// follow calls each for every event until ctx is done. It calls gone with the reason when no
	// events arrive, and with nil when they do again.
	follow(ctx context.Context, each func(events.Event), gone func(error))
}

// socketSource asks bakeryd for the data of the status page, which all viewers share. A report for
// each viewer would read the whole lockspace each time.
type socketSource struct{ socket string }

// Bakeryd returns the source that asks the bakeryd at socket.
func Bakeryd(socket string) Source { return socketSource{socket} }

func (s socketSource) name() string { return s.socket }

func (s socketSource) read(ctx context.Context) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
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

// parseAnswer parses a Glance, and the latencies of the device if bakeryd reports them.
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
		return nil, errors.New("it has neither a report nor an error")
	}
	type latency struct {
		P50    *int64 `json:"p50_us"`
		P99    int64  `json:"p99_us"`
		Max    int64  `json:"max_us"`
		Count  uint64 `json:"count"`
		Errors uint64 `json:"errors"`
	}
	var extra struct {
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
	if json.Unmarshal(body, &extra) != nil {
		return a, nil // latencies of another form are ignored
	}
	self := extra.Report.ThisHost
	a.oldest = time.Duration(self.IO.OldestMS) * time.Millisecond
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	for _, s := range []struct {
		what string
		of   latency
	}{{"read", self.IO.Read}, {"write", self.IO.Write}, {"renewal", self.Renewals}} {
		if s.of.P50 != nil && s.of.Count > 0 { // otherwise there was none yet
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

// followOnce reads one stream of events to its end. It requests only events after last.
func (s socketSource) followOnce(ctx context.Context, last *uint64, each func(events.Event), started func()) error {
	q := url.Values{"follow": {"1"}, "limit": {strconv.Itoa(eventsKept)}}
	if *last > 0 {
		q.Set("since", strconv.FormatUint(*last, 10))
	}
	stream, err := client.New(s.socket).Open(ctx, "/v1/events?"+q.Encode())
	if err != nil {
		return call.Failure(err)
	}
	defer stream.Close()
	started()
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

// deviceSource reads the disk, and determines by itself which hosts renew. One goroutine uses it.
type deviceSource struct {
	path  string
	scan  func(path string) (*report.Report, error)
	seen  map[int]sighting // by host
	first time.Time        // the first read
}

// Device returns the source that reads the disk at path with scan.
func Device(path string, scan func(path string) (*report.Report, error)) Source {
	return &deviceSource{path: path, scan: scan}
}

// sighting is a host record when it last changed.
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

// watch adds to a report how long hosts have not renewed.
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
		if !known && now.Equal(s.first) { // the time of its last renewal is not known yet
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
