package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/bakeryd/bakeryd/daemon/boottime"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	// maxLine bounds a line of the stream, and maxAnswer all of an answer that is not a stream, headers
	// included: whoever serves the socket does not decide how much memory is used here.
	maxLine   = 64 << 10
	maxAnswer = 256 << 10
)

// The kinds of event. Unknown ones are skipped: a newer bakeryd may send them.
const (
	eventWaiting = "waiting"
	eventGranted = "granted"
	eventRenewed = "renewed"
	eventMode    = "mode"
	eventRefused = "refused"
	eventLost    = "lost"

	eventRequested = "requested"
)

// event is one line of the stream; which fields it has depends on the kind.
type event struct {
	Kind    string        `json:"event"`
	Ahead   int           `json:"ahead"`    // waiting
	Queued  int           `json:"queued"`   // waiting
	Name    string        `json:"name"`     // granted
	Mode    layout.Mode   `json:"mode"`     // granted, mode
	Change  uint64        `json:"change"`   // granted, mode: how often the mode has changed
	Token   layout.Ticket `json:"token"`    // granted
	HostID  int           `json:"host_id"`  // granted
	LeaseMS int64         `json:"lease_ms"` // granted, renewed, lost: time left until the deadline; waiting: a whole lease
	AtMS    int64         `json:"at_ms"`    // granted, renewed, lost: when that was so, on boottime; 0: not told
	GraceMS int64         `json:"grace_ms"` // granted: how long before the deadline the holder is to stop
	Witness string        `json:"witness"`  // granted: path of the FIFO that was asked for
	Code    string        `json:"code"`     // refused
	Message string        `json:"message"`  // refused, lost, requested
	Hint    string        `json:"hint"`     // refused

	Host     int    `json:"host"` // requested: where the lock is wanted
	HostName string `json:"host_name"`
}

// lease returns the time left. Nothing longer than the longest lease is believed.
func (e event) lease() time.Duration { return believable(e.LeaseMS) }

// grace returns how long before the deadline the holder is to stop.
func (e event) grace() time.Duration { return believable(e.GraceMS) }

func believable(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), layout.MaxLease.Milliseconds())) * time.Millisecond
}

// stream reads the events of one connection.
type stream struct {
	lines *bufio.Reader
	asked time.Duration // when the request was sent, on boottime
}

// until returns the deadline that an event tells, which has just been read. If this process stood still, that is
// long after the event was sent; what it says of that is believed only if it can be: a bakeryd in another time
// namespace has another clock.
func (s *stream) until(e event) time.Duration {
	from := boottime.Now()
	if at := time.Duration(e.AtMS) * time.Millisecond; at > s.asked-time.Millisecond && at < from {
		from = at
	}
	return from + e.lease()
}

// openStream reads the beginning of the answer, up to the first event.
func openStream(conn *net.UnixConn, req *http.Request, asked time.Duration) (*stream, error) {
	budget := &io.LimitedReader{R: conn, N: maxAnswer}
	resp, err := http.ReadResponse(bufio.NewReader(budget), req)
	if err != nil && budget.N <= 0 {
		return nil, fmt.Errorf("%w: headers of more than %d bytes", ErrProtocol, maxAnswer)
	}
	if err != nil {
		return nil, brokenOff(err)
	}
	// The body is never closed: that would read it to its end, which may be days away.
	if resp.StatusCode != http.StatusOK {
		return nil, readRefusal(conn, resp)
	}
	budget.N = math.MaxInt64 // from here on lines are bounded
	return &stream{lines: bufio.NewReaderSize(resp.Body, maxLine), asked: asked}, nil
}

// brokenOff names the error of a read before the grant.
func brokenOff(err error) error {
	var netErr net.Error
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &netErr) {
		return fmt.Errorf("%w: the connection broke: %w", ErrUnreachable, err)
	}
	return fmt.Errorf("%w: %w", ErrProtocol, err)
}

// readRefusal reads the error that an answer without a stream carries.
func readRefusal(conn *net.UnixConn, resp *http.Response) error {
	_ = conn.SetReadDeadline(time.Now().Add(patience)) // only a closed connection refuses it, and then the read fails
	var answer struct {
		Error *Error `json:"error"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%w: status %s: %w", ErrProtocol, resp.Status, err)
	}
	if answer.Error == nil || answer.Error.Code == "" {
		return fmt.Errorf("%w: status %s without an error", ErrProtocol, resp.Status)
	}
	return answer.Error
}

// awaitGrant reads until the lock is granted or refused.
func (s *stream) awaitGrant(onWaiting func(event)) (event, error) {
	for {
		e, err := s.next()
		if err != nil {
			return event{}, err
		}
		switch e.Kind {
		case eventWaiting:
			if onWaiting != nil {
				onWaiting(e)
			}
		case eventGranted:
			if e.Token == 0 {
				return event{}, fmt.Errorf("%w: granted without a token", ErrProtocol)
			}
			return e, nil
		case eventRefused:
			if e.Code == "" {
				return event{}, fmt.Errorf("%w: refused without a code", ErrProtocol)
			}
			return event{}, &Error{Code: e.Code, Message: e.Message, Hint: e.Hint}
		case eventLost: // instead of the hold that was asked for again
			return event{}, &Error{Code: CodeLost, Message: e.Message}
		}
	}
}

// next returns the next event of a known kind.
func (s *stream) next() (event, error) {
	for {
		line, err := s.lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return event{}, fmt.Errorf("%w: a line of more than %d bytes", ErrProtocol, maxLine)
		}
		if err != nil {
			return event{}, brokenOff(err) // what came without its newline is not a line
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		e, known, err := decodeEvent(line)
		if err != nil {
			return event{}, fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		if known {
			return e, nil
		}
	}
}

// decodeEvent looks at the kind first: the fields of an unknown kind may have any type.
func decodeEvent(line []byte) (e event, known bool, err error) {
	var head struct {
		Kind string `json:"event"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return event{}, false, fmt.Errorf("event %.100q: %w", line, err)
	}
	switch head.Kind {
	case eventWaiting, eventGranted, eventRenewed, eventRequested, eventMode, eventRefused, eventLost:
	default:
		return event{}, false, nil
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return event{}, false, fmt.Errorf("event %.100q: %w", line, err)
	}
	return e, true, nil
}
