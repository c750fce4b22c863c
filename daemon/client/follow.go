package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
)

// silentAfter is how long a restart of bakeryd may take before Hold.Silent reports it.
const silentAfter = 2 * time.Second

// errPaused is returned when an event is too old to rely on, because this process was paused.
var errPaused = fmt.Errorf("%w for a while: this process stood still", ErrUnreachable)

// follow reads events until the hold is over, and reconnects as often as needed.
func (h *Hold) follow() {
	l := h.link // only this goroutine changes it
	for {
		err := h.read(l)
		if transient(err) && !h.isClosed() {
			l, err = h.reattach()
			if err == nil {
				continue
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		switch {
		case h.released != nil:
			h.released <- err
		case err == nil:
			err = fmt.Errorf("%w: released without a request", ErrProtocol)
		}
		h.lose(err) // no effect after Unlock
		return
	}
}

func (h *Hold) isClosed() bool { return locked(&h.mu, &h.closed) }

// read handles the events of one connection until it breaks. It returns nil if the hold is released.
func (h *Hold) read(l *link) error {
	for {
		e, err := l.next()
		switch {
		case err != nil:
			return err
		case e.Kind == api.Released:
			return nil
		case e.Kind == api.Lost:
			if e.AtMS != 0 { // another host may get the lock before the lease ends
				h.shorten(l.until(clock.Boottime.Now(), e))
			}
			return errors.New(e.Message)
		case e.Kind == api.Requested:
			h.requested(Request{Host: e.Host, HostName: e.HostName, Message: e.Message})
		case e.Kind == api.Mode:
			h.applyMode(Mode(e.Mode), e.Change)
		case e.Kind == api.Renewed && h.overdue() > maxAlarmDelay:
			return errPaused
		case e.Kind == api.Renewed:
			h.renew(l.until(clock.Boottime.Now(), e))
		}
	}
}

// reattach asks for the hold again until bakeryd answers. It keeps the old connection until then:
// if that is not broken, closing it could release the lock.
func (h *Hold) reattach() (*link, error) {
	h.mu.Lock()
	h.away = make(chan struct{})
	h.mu.Unlock()
	silence := time.AfterFunc(silentAfter, func() { poke(h.silent) })
	defer silence.Stop()
	var pause backoff
	h.session.request.Mode = layout.Mode(h.Mode()) // after the grant only this goroutine uses session
	for {
		l, granted, err := h.session.connect(h.over.context(), nil)
		if err == nil {
			h.adopt(l, granted)
			return l, nil
		}
		if h.over.context().Err() != nil || !transient(err) {
			return nil, err
		}
		if err := pause.sleep(h.over.context(), lastPause); err != nil {
			return nil, err
		}
	}
}

// adopt switches to another connection.
func (h *Hold) adopt(l *link, granted api.Event) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		_ = l.conn.Close() // as Unlock did with the old one
		return
	}
	old := h.link
	h.link, h.readsExpired = l, false
	close(h.away)
	h.away = nil
	h.grace = believable(granted.GraceMS)
	h.mode = Mode(granted.Mode)
	h.change = granted.Change // another bakeryd restarts the count
	h.mu.Unlock()
	_ = old.conn.Close() // the new connection replaces it
	// The lease is counted from before the request, so a slow answer can only make it shorter.
	h.renew(l.asked + believable(granted.LeaseMS))
}

// awaitLink waits for a connection, unless there is one.
func (h *Hold) awaitLink(limit time.Duration) {
	away := locked(&h.mu, &h.away)
	if away == nil {
		return
	}
	select {
	case <-away:
	case <-h.over.context().Done():
	case <-time.After(limit):
	}
}

// Request reports to the holder of a lock that another client wants it.
type Request struct {
	Host     int    // where the client is
	HostName string // empty if unknown
	Message  string // text without control characters; may be empty
}

// maxUnread is how many unread requests are kept.
const maxUnread = 16

// Requests returns the channel of requests for the lock, nil without Options.Requests. Each request
// is sent once; after a restart of bakeryd some may be sent again. The latest 16 are kept.
// The channel is never closed.
func (h *Hold) Requests() <-chan Request { return h.requests }

// requested stores a request, and drops the oldest if there is no room.
func (h *Hold) requested(r Request) {
	if h.requests == nil {
		return
	}
	for {
		select {
		case h.requests <- r:
			return
		default:
		}
		select {
		case <-h.requests:
		default:
		}
	}
}
