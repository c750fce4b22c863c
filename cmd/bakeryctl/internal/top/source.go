package top

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
)

const (
	answerTimeout = 10 * time.Second // for one answer
	retryAfter    = time.Second      // between two event streams
	deviceShare   = 10               // a device is read for at most this fraction of the time
	eventsKept    = 200              // events that are kept
)

// speed is the latency of one kind of device request of bakeryd.
type speed struct {
	what string
	report.Latency
}

// speedsOf returns the latencies in a report. A kind of which there was none yet is left out.
func speedsOf(r *report.Report) (all []speed) {
	if self := r.ThisHost; self != nil {
		if self.IO != nil {
			all = append(all, speed{"read", self.IO.Read}, speed{"write", self.IO.Write})
		}
		if self.Renewals != nil {
			all = append(all, speed{"renewal", *self.Renewals})
		}
	}
	return slices.DeleteFunc(all, func(s speed) bool { return s.Count == 0 })
}

// notReady is the error of a bakeryd that answers but has no report, for example while it joins.
type notReady api.Error

func (n *notReady) Error() string { return n.Message }

// Source is the data source of top.
type Source struct {
	name string // the socket or device
	// read returns the current data, which has a report. An error means there is none.
	read func(ctx context.Context) (*report.Glance, error)
	// follow sends every event until ctx is done. It sends an eventsGone when no events arrive, and
	// when they do again.
	follow func(ctx context.Context, send func(tea.Msg))
	pause  time.Duration // between two reads, as a multiple of the time that the read took
}

// socketSource asks bakeryd for the data of the status page, which all viewers share. A report for
// each viewer would read the whole lockspace each time.
type socketSource struct{ socket string }

// Bakeryd returns the source that asks the bakeryd at socket.
func Bakeryd(socket string) Source {
	s := socketSource{socket}
	return Source{name: socket, read: s.read, follow: s.follow}
}

func (s socketSource) read(ctx context.Context) (*report.Glance, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("%w within %v", client.ErrNoAnswer, answerTimeout))
	defer cancel()
	g, err := show.Glance(ctx, s.socket)
	if err == nil && g.Report == nil {
		return nil, &cli.Failure{Code: cli.ExitUnavailable, Err: (*notReady)(g.Error), Hint: g.Error.Hint}
	}
	return g, err
}

func (s socketSource) follow(ctx context.Context, send func(tea.Msg)) {
	last := uint64(0)
	for ctx.Err() == nil {
		err := s.followOnce(ctx, &last, send)
		if ctx.Err() == nil {
			send(eventsGone{err})
		}
		_ = retry.Pause(ctx, retryAfter)
	}
}

// followOnce reads one stream of events to its end. It requests only events after last.
func (s socketSource) followOnce(ctx context.Context, last *uint64, send func(tea.Msg)) error {
	q := url.Values{"follow": {"1"}, "limit": {strconv.Itoa(eventsKept)}}
	if *last > 0 {
		q.Set("since", strconv.FormatUint(*last, 10))
	}
	stream, err := client.New(s.socket).Open(ctx, "/v1/events?"+q.Encode())
	if err != nil {
		return err
	}
	defer stream.Close()
	send(eventsGone{})
	for in := json.NewDecoder(stream); ; {
		var e events.Event
		if err := in.Decode(&e); err != nil {
			return err // io.EOF if bakeryd has ended
		}
		if e.Seq > *last {
			*last = e.Seq
			send(e)
		}
	}
}

// deviceSource reads the disk, and determines by itself which hosts renew. One goroutine uses it.
type deviceSource struct {
	paths []string
	scan  func(paths []string) (*report.Report, error)
	seen  map[int]sighting // by host; nil before the first read
}

// Device returns the source that reads the disks at paths with scan. The disk keeps no events.
func Device(paths []string, scan func(paths []string) (*report.Report, error)) Source {
	s := &deviceSource{paths: paths, scan: scan}
	return Source{name: strings.Join(paths, ", "), read: s.read, follow: func(context.Context, func(tea.Msg)) {}, pause: deviceShare}
}

// sighting is a host record when it last changed.
type sighting struct {
	incarnation text.Hex
	sequence    uint64
	at          time.Time
}

func (s *deviceSource) read(ctx context.Context) (*report.Glance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	begun := time.Now()
	r, err := s.scan(s.paths)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s.watch(r, now)
	return &report.Glance{At: now, Report: r, Read: report.GlanceRead{TookMS: now.Sub(begun).Milliseconds()}}, nil
}

// watch adds to a report how long hosts have not renewed, and what is wrong because of that.
func (s *deviceSource) watch(r *report.Report, now time.Time) {
	first := s.seen == nil // then the times of the last renewals are not known yet
	if first {
		s.seen = map[int]sighting{}
	}
	for i := range r.Hosts {
		h := &r.Hosts[i]
		was, known := s.seen[h.ID]
		if !known || was.incarnation != h.Incarnation || was.sequence != h.Sequence {
			was = sighting{h.Incarnation, h.Sequence, now}
			s.seen[h.ID] = was
		}
		if first || h.Health != report.HealthLive && h.Health != report.HealthJoining {
			continue
		}
		h.SilentMS = new(now.Sub(was.at).Milliseconds())
		if h.Health == report.HealthLive && *h.SilentMS > r.Lockspace.LeaseMS/2 {
			h.Health = report.HealthSilent
		}
	}
	r.Judge()
}
