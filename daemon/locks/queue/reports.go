package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/observe"
	"github.com/bakeryd/bakeryd/layout"
)

// Observed reports whether clients use the lock: the directory's lock is bakeryd's own.
func (q *Queue) Observed() bool { return q.Entry.Lock != lockspace.DirectoryLock }

// Traced reports whether to find out which hosts and clients are ahead.
func (q *Queue) Traced() bool { return q.host.Traced && q.Observed() }

// Observe reports a happening of the lock.
func (q *Queue) Observe(h observe.Happening) {
	if q.Observed() {
		h.Lock = q.Entry.Name
		q.host.Observer.Observe(h)
	}
}

// Happening returns one of the request.
func (r *Request) Happening(kind events.Kind) observe.Happening {
	return observe.Happening{Event: events.Event{Kind: kind, Lock: r.Name, Request: r.asked, PID: r.PID, Command: r.Command, Mode: r.Mode.String()}}
}

// waitedFor is the holder that clients of this host last waited for, and a time until which they
// did.
type waitedFor struct {
	peer events.Peer
	mode layout.Mode
	at   time.Time
}

// of returns the holder that a client waiting since then waited for last, nil if none.
func (a *waitedFor) of(since time.Time, mode layout.Mode) []events.Peer {
	if !a.at.After(since) || mode == layout.Shared && a.mode == layout.Shared {
		return nil
	}
	return []events.Peer{a.peer}
}

// WaitedFor records which holder of another host the clients wait for.
func (q *Queue) WaitedFor(p events.Peer, mode layout.Mode, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.after = waitedFor{peer: p, mode: mode, at: at}
}

// local describes a client of this host.
func (q *Queue) local(w *Item, p layout.Phase) events.Peer {
	return events.Peer{Host: q.host.ID, HostName: q.host.Name, Phase: p.String(), Mode: w.Request.Mode.String(),
		PID: w.Request.PID, Command: w.Request.Command, Request: w.Request.asked}
}

// inTheWay returns a local hold that conflicts with mode, as a list. Called with mu held.
func (q *Queue) inTheWay(mode layout.Mode) []events.Peer {
	if i := slices.IndexFunc(q.holds, func(h *Item) bool { return h.conflicts(mode) }); i >= 0 {
		return []events.Peer{q.local(q.holds[i], layout.Held)}
	}
	return nil
}

// reportQueued reports a new client and the local clients before it. Called with mu held, when the
// client is the last in the queue.
func (q *Queue) reportQueued(w *Item) {
	if q.Observed() {
		q.host.Observer.Waits(q.Entry.Name, w.queued)
	}
	if !q.Traced() {
		return
	}
	h := w.Request.Happening(events.Waiting)
	if n := len(q.waiting) - 1; n > 0 {
		h.Ahead = []events.Peer{q.local(q.waiting[n-1], layout.Waiting)}
	} else {
		h.Ahead = q.inTheWay(w.Request.Mode)
	}
	if n := len(q.waiting) - 1 + len(q.holds); n > 1 {
		h.AheadCount = n
	}
	q.Observe(h)
}

// reportGrant is called with mu held, by the driver.
func (q *Queue) reportGrant(w *Item, handoff bool) {
	waited := w.since.Sub(w.queued)
	if q.Observed() {
		q.host.Observer.Granted(q.Entry.Name, w.since, waited, handoff)
	}
	if !q.Traced() {
		return
	}
	h := w.Request.Happening(events.Enter)
	h.Token, h.Waited = w.token, waited
	h.Ahead = q.after.of(w.queued, w.Request.Mode)
	if q.Entry.Permits > 1 {
		h.Permits = q.Entry.Permits
	}
	q.Observe(h)
}

// reportRelease is called with mu held. lost is why the lease is lost, nil if it is not.
func (q *Queue) reportRelease(h *Item, why string, lost error) {
	q.reportLost(h, lost)
	now := time.Now()
	if q.Observed() && !h.joined {
		q.host.Observer.Released(q.Entry.Name, now, now.Sub(h.since))
	}
	q.reportHold(events.Exit, h, now, why)
	if q.Traced() && !h.joined {
		q.after = waitedFor{peer: q.local(h, layout.Held), mode: h.Request.Mode, at: now}
	}
}

// HoldsLost reports all holds as lost, each once.
func (q *Queue) HoldsLost() {
	lost := q.host.lost()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, h := range q.holds {
		q.reportLost(h, lost)
	}
}

// reportLost is called with mu held.
func (q *Queue) reportLost(h *Item, lost error) {
	if lost != nil && !h.reportedLost {
		h.reportedLost = true
		q.reportHold(events.Lost, h, time.Now(), lost.Error())
	}
}

// reportHold is called with mu held.
func (q *Queue) reportHold(kind events.Kind, w *Item, now time.Time, reason string) {
	if w.joined || !q.Traced() {
		return
	}
	h := w.Request.Happening(kind)
	h.Token, h.Held, h.Reason = w.token, now.Sub(w.since), reason
	q.Observe(h)
}

// ReportRemoved reports that the lock was removed, which ends the wait of a client that removes it.
// front is the first client in the queue, nil if none.
func (q *Queue) ReportRemoved(front *Item) {
	h := observe.Happening{Event: events.Event{Kind: events.Removed}}
	if front != nil && front.Removes {
		h = front.Request.Happening(events.Removed)
		h.Waited = time.Since(front.queued)
	}
	q.Observe(h)
}

// ReportResumed reports that a restart kept a request. Later happenings of the request name this
// one.
func (r *Request) ReportResumed(o observe.Observer, h observe.Happening) { r.asked = o.Observe(h) }

// ReportRequest reports a new request, if that was not done.
func (h *Host) ReportRequest(req *Request) {
	if req.asked == 0 {
		req.asked = h.Observer.Observe(req.Happening(events.Request))
	}
}

// ReportRefused reports the end of a request that was not granted. q is nil if the lock was not
// found.
func (h *Host) ReportRefused(req *Request, q *Queue, since time.Time, err error) {
	if err == nil {
		return
	}
	e := req.Happening(events.Refused)
	e.Waited = time.Since(since)
	switch {
	case errors.Is(err, api.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		e.Kind = events.Timeout
	case errors.Is(err, api.ErrBusy):
		e.Kind = events.Busy
	case errors.Is(err, ErrAbsent):
		e.Kind, e.Reason = events.Cancel, "its client did not come back after a restart"
	case errors.Is(err, context.Canceled):
		e.Kind = events.Cancel
	default:
		e.Reason = err.Error()
	}
	if q != nil && h.Traced && e.Kind != events.Refused {
		e.Ahead = q.lastAhead(req, since)
	}
	h.Observer.Observe(e)
}

// lastAhead returns the client or host that a request which has ended waited for.
func (q *Queue) lastAhead(req *Request, since time.Time) []events.Peer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if holder := q.inTheWay(req.Mode); holder != nil {
		return holder
	}
	if holder := q.after.of(since, req.Mode); holder != nil {
		return holder
	}
	if n := len(q.waiting); n > 0 {
		return []events.Peer{q.local(q.waiting[n-1], layout.Waiting)}
	}
	return nil
}
