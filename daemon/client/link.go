package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/http1"
	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	// maxLine bounds a line from bakeryd, and maxAnswer an answer before the lines: the server at
	// the socket does not decide how much memory this process uses.
	maxLine   = 64 << 10
	maxAnswer = 256 << 10

	openLink = "GET /v1/link HTTP/1.1\r\nHost: bakeryd\r\nConnection: Upgrade\r\nUpgrade: bakery-link/1\r\n\r\n"
)

// link is a connection by which locks are taken one after another. One goroutine at a time reads
// it.
type link struct {
	conn  *socket
	in    *line.Reader // nil until bakeryd has accepted the upgrade
	out   []byte
	asked time.Duration // when the lock was last requested, on boottime
	soon  bool          // an answer to the last request is expected
	early []api.Event   // read before the confirmation of the grant, not returned yet
	heard bool          // a line came since the last request
	idle  time.Duration // since when the link is idle, on boottime
}

// Read reads the connection.
func (l *link) Read(p []byte) (int, error) {
	if l.soon {
		return l.conn.readSoon(p)
	}
	return l.conn.Read(p)
}

// ask requests the lock, and first the link if it is new, in one write.
func (l *link) ask(r *api.LockRequest) error {
	l.out = l.out[:0]
	if l.in == nil {
		l.out = append(l.out, openLink...)
	}
	l.out = append(r.Append(append(l.out, `{"lock":`...)), "}\n"...)
	l.asked, l.heard, l.soon = clock.Boottime.Now(), false, true
	return l.write()
}

// send sends a line such as {"unlock":"5"}, of which head is the part before the token.
func (l *link) send(head string, token layout.Ticket) error {
	l.out = strconv.AppendUint(append(l.out[:0], head...), uint64(token), 10)
	l.out = append(l.out, "\"}\n"...)
	return l.write()
}

func (l *link) write() error {
	if _, err := l.conn.Write(l.out); err != nil && !hungUp(err) {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return nil
}

// hungUp reports whether the other side has closed the connection. It may have sent the reason
// before; reading returns that.
func hungUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// next returns the next event of a known kind.
func (l *link) next() (api.Event, error) {
	if len(l.early) > 0 {
		e := l.early[0]
		l.early = l.early[1:]
		return e, nil
	}
	if l.in == nil {
		if err := l.accept(); err != nil {
			return api.Event{}, err
		}
	}
	for {
		text, err := l.in.Next()
		if errors.Is(err, line.ErrTooLong) {
			return api.Event{}, fmt.Errorf("%w: a line of more than %d bytes", ErrProtocol, maxLine)
		}
		if err != nil {
			return api.Event{}, brokenOff(err) // an incomplete line is dropped
		}
		l.heard = true
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			continue
		}
		e, known, err := api.DecodeEvent(text)
		if err != nil {
			return api.Event{}, fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		if known {
			return e, nil
		}
	}
}

// accept reads the HTTP answer before the lines.
func (l *link) accept() error {
	a, err := http1.Read(l, maxAnswer)
	if err != nil {
		return brokenOff(err)
	}
	switch a.Status {
	case http1.StatusSwitchingProtocols:
		lines, _ := a.In.Peek(a.In.Buffered()) // no error: they are there
		l.in = line.NewReader(l, lines, maxLine)
		return nil
	case http1.StatusNotFound:
		return fmt.Errorf("%w: it has no links, as one that is older than this client", ErrProtocol)
	}
	l.soon = false
	l.conn.Limit(answerTimeout)
	return refusal(a)
}

// brokenOff wraps the error of a read.
func brokenOff(err error) error {
	_, ofNet := errors.AsType[net.Error](err)
	_, ofCall := errors.AsType[*os.SyscallError](err)
	if ofNet || ofCall || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the connection broke: %w", ErrUnreachable, err)
	}
	return fmt.Errorf("%w: %w", ErrProtocol, err)
}

// reusable reports whether another lock can be requested: nothing of the last one is unread.
func (l *link) reusable() bool { return l.in != nil && len(l.in.Rest()) == 0 && len(l.early) == 0 }

// believable returns a time that bakeryd sent, at most layout.MaxLease.
func believable(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), layout.MaxLease.Milliseconds())) * time.Millisecond
}

// until returns the deadline in an event that was read at the time from. If this process was paused,
// bakeryd sent the event long ago. at_ms then corrects the deadline, if it is plausible: a bakeryd
// in another time namespace has another clock.
func (l *link) until(from time.Duration, e api.Event) time.Duration {
	if at := time.Duration(e.AtMS) * time.Millisecond; at > l.asked-time.Millisecond && at < from {
		from = at
	}
	return from + believable(e.LeaseMS)
}

// await reads until an event of one of the kinds, which it returns, or one that ends the request. It
// passes all others to other.
func (l *link) await(other func(api.Event), kinds ...string) (api.Event, error) {
	l.soon = true
	defer func() { l.soon = false }()
	for {
		e, err := l.next()
		switch {
		case err != nil:
			return api.Event{}, err
		case slices.Contains(kinds, e.Kind):
			return e, nil
		case e.Kind == api.Refused && e.Code == "":
			return api.Event{}, fmt.Errorf("%w: refused without a code", ErrProtocol)
		case e.Kind == api.Refused:
			return api.Event{}, e.Err()
		case e.Kind == api.Lost:
			return api.Event{}, &Error{Code: api.CodeLost, Message: e.Message}
		}
		other(e)
	}
}

// awaitGrant reads until the lock is granted or refused, or the hold to resume is over.
func (l *link) awaitGrant(onWaiting func(api.Event)) (api.Event, error) {
	granted, err := l.await(func(e api.Event) {
		if e.Kind != api.Waiting && e.Kind != api.Warning {
			return
		}
		l.soon = false
		if onWaiting != nil {
			onWaiting(e)
		}
	}, api.Granted)
	if err == nil && granted.Token == 0 {
		err = fmt.Errorf("%w: granted without a token", ErrProtocol)
	}
	return granted, err
}

// confirm confirms a grant and returns it with the current lease. bakeryd may already have given
// the lock to the next waiter.
func (l *link) confirm(granted api.Event) (api.Event, error) {
	if err := l.send(`{"confirm":"`, granted.Token); err != nil {
		return api.Event{}, err
	}
	var others []api.Event
	e, err := l.await(func(e api.Event) { others = append(others, e) }, api.Confirmed)
	l.early = others
	granted.LeaseMS, granted.AtMS, granted.Message = e.LeaseMS, e.AtMS, e.Message
	return granted, err
}

// awaitRelease reads until bakeryd reports the release of the hold.
func (l *link) awaitRelease() error {
	e, err := l.await(func(api.Event) {}, api.Released, api.Kept)
	if err == nil && e.Kind == api.Kept {
		err = errors.New("not released")
	}
	return err
}
