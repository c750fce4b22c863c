package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// maxLast limits the limit of a request for events, because these are in memory at once.
const maxLast = 10_000

// eventsPatience is how long a client may leave events unread before its connection ends.
const eventsPatience = time.Minute

// eventsRequest is the query of GET /v1/events. The answer has one line of JSON per event, oldest
// first.
type eventsRequest struct {
	events.Query      // name, since, from, until
	follow       bool // 1: the stream continues with new events
	limit        int  // only the last limit events; 0: all
}

func parseEventsRequest(q url.Values) (r eventsRequest, err error) {
	for key, values := range q {
		if err == nil {
			err = r.set(key, values[len(values)-1])
		}
	}
	return r, err
}

func (r *eventsRequest) set(key, value string) (err error) {
	want := "" // instead of the text of err
	switch key {
	case "name":
		r.Lock = value
		err = layout.ValidateLockName(value)
	case "follow":
		r.follow, err = strconv.ParseBool(value)
		want = "0 or 1"
	case "since":
		r.Since, err = strconv.ParseUint(value, 10, 64)
		want = "a whole number from 0, the seq of an event"
	case "limit":
		r.limit, err = strconv.Atoi(value)
		if err == nil && (r.limit < 0 || r.limit > maxLast) {
			err = strconv.ErrRange
		}
		want = fmt.Sprintf("a whole number from 0 (all) to %d", maxLast)
	case "from":
		r.From, err = time.Parse(time.RFC3339Nano, value)
		want = wantTime
	case "until":
		r.Until, err = time.Parse(time.RFC3339Nano, value)
		want = wantTime
	default:
		err = errors.New("there is no such parameter")
	}
	switch {
	case err == nil:
		return nil
	case want != "":
		err = errors.New("want " + want)
	}
	return fmt.Errorf("%w: %s=%q: %w", api.ErrInvalid, text.Printable(key), value, err)
}

const wantTime = "a time such as 2006-01-02T03:12:00Z or 2006-01-02T03:12:00.5+01:00"

// errGone is returned when the client is gone, or does not read.
var errGone = errors.New("the client is gone")

func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	q, err := parseEventsRequest(r.URL.Query())
	if err != nil {
		refuse(w, err)
		return
	}
	if q.follow && callerOf(r).socket() == nil {
		select {
		case s.followers <- struct{}{}:
			defer func() { <-s.followers }()
		default:
			w.Header().Set("Connection", "close") // free the connection for other clients
			refuse(w, &api.Error{Code: api.CodeUnavailable,
				Message: fmt.Sprintf("%d clients follow the events by this address, which is the limit", cap(s.followers)),
				Hint:    "end some of them, or use the Unix socket"})
			return
		}
	}
	if callerOf(r).socket() == nil {
		q.Turn = func() (end func(), err error) { return s.reading.begin(r.Context()) }
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	// A client that does not read blocks only this goroutine, for at most eventsPatience.
	sent := false
	send := func(text []byte) error {
		sent = true
		if writePart(w, eventsPatience, text) != nil {
			return errGone
		}
		return nil
	}
	var lines []byte
	write := func(es []events.Event) error {
		if lines = s.lines.append(lines[:0], es); len(lines) == 0 {
			return nil
		}
		return send(lines)
	}
	if q.limit > 0 {
		err = s.lastEvents(&q, write)
	}
	switch {
	case err != nil:
	case q.follow:
		if err = send(nil); err == nil { // the header: the client knows that it is served
			err = s.cfg.Events.Follow(r.Context(), q.Query, write)
		}
	case q.limit == 0:
		err = s.cfg.Events.Read(q.Query, write)
	}
	if err == nil || errors.Is(err, events.ErrClosed) || errors.Is(err, errGone) || r.Context().Err() != nil {
		return
	}
	s.cfg.Log.Warn("reading the events failed", "err", err)
	if !sent {
		refuse(w, &api.Error{Code: api.CodeDevice, Message: err.Error(), Hint: "the log of bakeryd says more"})
		return
	}
	_ = write([]events.Event{{At: time.Now().UTC(), Kind: events.Gap, Reason: err.Error()}})
}

// lastEvents sends the last existing events, and sets q to continue after them.
func (s *Server) lastEvents(q *eventsRequest, write func([]events.Event) error) error {
	var last []events.Event
	err := s.cfg.Events.Read(q.Query, func(es []events.Event) error {
		q.Since = max(q.Since, es[len(es)-1].Seq)
		last = append(last, es...)
		if over := len(last) - q.limit; over > q.limit { // deletes in batches
			last = slices.Delete(last, 0, over)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return write(last[max(0, len(last)-q.limit):])
}

// eventLines has the lines of the last events. All clients that follow share them: encoding an event
// takes longer than all else that is done to send it.
type eventLines struct {
	mu   sync.Mutex // guards kept
	kept []eventLine
}

// eventLine is the line of one event, at its seq % maxLines. An event gets its host, or another seq,
// when bakeryd knows which host it is. A gap has the seq of an event that was lost, and may have its
// time and host.
type eventLine struct {
	seq, request uint64
	at           time.Time
	host         int
	kind         events.Kind
	text         []byte
}

const maxLines = 1024

// append appends a line for each event.
func (l *eventLines) append(to []byte, es []events.Event) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil {
		l.kept = make([]eventLine, maxLines)
	}
	for i := range es {
		e := &es[i]
		k := &l.kept[e.Seq%maxLines]
		if k.seq != e.Seq || k.request != e.Request || k.host != e.Host || k.kind != e.Kind || !k.at.Equal(e.At) {
			*k = eventLine{e.Seq, e.Request, e.At, e.Host, e.Kind, e.AppendLine(k.text[:0])}
		}
		to = append(to, k.text...)
	}
	return to
}
