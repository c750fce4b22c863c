package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// noticeable is for how long bakeryd may be gone, to be restarted, before anybody is told.
const noticeable = 2 * time.Second

// errStoodStill is returned when an event says little, having waited to be read for who knows how long.
var errStoodStill = fmt.Errorf("%w for a while: this process stood still", ErrUnreachable)

// follow reads the events until the hold is over, over as many connections as it takes.
func (h *Hold) follow() {
	l := h.link // nobody else changes it
	for {
		err := h.read(l)
		if passing(err) && !h.isClosed() {
			l, err = h.reattach()
			if err == nil {
				continue
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.released != nil {
			h.released <- err
		}
		h.lose(err) // unless it was let go
		return
	}
}

func (h *Hold) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// read follows the events of one connection until it breaks.
func (h *Hold) read(l *link) error {
	for {
		e, err := l.next()
		switch {
		case err != nil:
			return err
		case e.Kind == api.Released:
			return h.heardReleased()
		case e.Kind == api.Lost:
			if e.AtMS != 0 { // it may be sooner than the end of the lease that others have the lock
				h.shorten(l.until(e))
			}
			return errors.New(e.Message)
		case e.Kind == api.Requested:
			h.requested(Request{Host: e.Host, HostName: e.HostName, Message: e.Message})
		case e.Kind == api.Mode:
			h.hear(e.Mode, e.Change)
		case e.Kind == api.Renewed && h.overdue() > stopped:
			return errStoodStill
		case e.Kind == api.Renewed:
			h.renew(l.until(e))
		}
	}
}

// heardReleased returns nil if the release was asked for.
func (h *Hold) heardReleased() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released == nil {
		return fmt.Errorf("%w: released, and nobody has asked for that", ErrProtocol)
	}
	return nil
}

// reattach asks for the hold again until bakeryd has an answer to it. The old connection, which may not be broken
// after all, is kept until then: bakeryd may take its end for the release of the lock.
func (h *Hold) reattach() (*link, error) {
	h.mu.Lock()
	h.away = make(chan struct{})
	h.mu.Unlock()
	silence := time.AfterFunc(noticeable, func() {
		select {
		case h.silent <- struct{}{}:
		default: // nobody has heard of the last time yet
		}
	})
	defer silence.Stop()
	var pause backoff
	h.session.o.Mode = h.Mode() // since the grant the session is this goroutine's alone
	for {
		l, granted, err := h.session.connect(h.over.context(), h.token, 0, nil)
		if err == nil {
			h.adopt(l, granted)
			return l, nil
		}
		if h.over.context().Err() != nil || !passing(err) {
			return nil, err
		}
		if err := pause.sleep(h.over.context(), lastPause); err != nil {
			return nil, err
		}
	}
}

// adopt goes on with another connection.
func (h *Hold) adopt(l *link, granted api.Event) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		_ = l.conn.Close() // as the other one was
		return
	}
	old := h.link
	h.link, h.hurried = l, false
	close(h.away)
	h.away = nil
	h.grace = graceOf(granted)
	h.mode = granted.Mode
	h.change = granted.Change // another bakeryd counts anew
	h.mu.Unlock()
	_ = old.conn.Close() // it is of no use any more, whatever it says
	// Nothing was asked before that, so this errs on the safe side however long the answer took.
	h.renew(l.asked + leaseOf(granted))
}

// awaitLink waits for a connection, unless there is one.
func (h *Hold) awaitLink(limit time.Duration) {
	h.mu.Lock()
	away := h.away
	h.mu.Unlock()
	if away == nil {
		return
	}
	select {
	case <-away:
	case <-h.over.context().Done():
	case <-time.After(limit):
	}
}
