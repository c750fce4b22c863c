package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// The reports of what happens to the locks of a host: events in the journal, counts, and lines of the
// log. They are made with mutexes held, on the way to a grant, and wait for no IO. The directory's
// lock is not observed, because it is bakeryd's own.

// Observed reports whether clients use the lock: the directory's lock is bakeryd's own.
func (q *Queue) Observed() bool { return q.Entry.Lock != lockspace.DirectoryLock }

// Traced reports whether to find out which hosts and clients are ahead.
func (q *Queue) Traced() bool { return q.host.Events != nil && q.Observed() }

// Add adds an event of the lock to the journal.
func (q *Queue) Add(e events.Event) {
	if q.Observed() {
		e.Lock = q.Entry.Name
		q.host.Events.Add(e)
	}
}

// Event returns an event of the request.
func (r *Request) Event(kind events.Kind) events.Event {
	return events.Event{Kind: kind, Lock: r.Name, Request: r.asked, PID: r.PID, Command: r.Command, Mode: r.Mode.String()}
}

// Trouble logs IO that failed and is retried, or a record that is damaged. The directory is no lock
// to name.
func (h *Host) Trouble(message string, e layout.Entry, attrs ...any) {
	if e != lockspace.DirectoryEntry {
		attrs = append([]any{"lock", e.Name, "number", e.Lock}, attrs...)
	}
	h.Log.Warn(message, attrs...)
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
	if !q.Observed() {
		return
	}
	q.host.Tally.Locks.Of(q.Entry.Name, w.queued)
	if !q.Traced() {
		return
	}
	e := w.Request.Event(events.Waiting)
	if n := len(q.waiting) - 1; n > 0 {
		e.Ahead = []events.Peer{q.local(q.waiting[n-1], layout.Waiting)}
	} else {
		e.Ahead = q.inTheWay(w.Request.Mode)
	}
	if n := len(q.waiting) - 1 + len(q.holds); n > 1 {
		e.AheadCount = n
	}
	if len(e.Ahead) > 0 {
		q.Add(e)
	}
}

// reportGrant is called with mu held, by the driver.
func (q *Queue) reportGrant(h *Item, handoff bool) {
	if !q.Observed() {
		return
	}
	waited, all := h.since.Sub(h.queued), q.host.Tally
	all.Waits.Add(waited)
	c := all.Locks.Of(q.Entry.Name, h.since)
	c.Grants.Add(1)
	c.Waited.Add(int64(waited))
	if handoff {
		all.Handoffs.Add(1)
		c.Handoffs.Add(1)
	}
	e := h.Request.Event(events.Enter)
	e.Token, e.WaitedMS, e.Ahead = h.token, waited.Milliseconds(), q.after.of(h.queued, h.Request.Mode)
	if q.Entry.Permits > 1 {
		e.Permits = q.Entry.Permits
	}
	q.Add(e)
}

// reportRelease is called with mu held.
func (q *Queue) reportRelease(h *Item, why string) {
	if q.host.IsLost() {
		q.reportLost(h)
	}
	now := time.Now()
	q.reportHold(events.Exit, h, now, why)
	if q.Traced() && !h.joined {
		q.after = waitedFor{peer: q.local(h, layout.Held), mode: h.Request.Mode, at: now}
	}
}

// HoldsLost reports all holds as lost, each once.
func (q *Queue) HoldsLost() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, h := range q.holds {
		q.reportLost(h)
	}
}

func (q *Queue) reportLost(h *Item) {
	if h.reportedLost {
		return
	}
	h.reportedLost = true
	reason := ""
	if err := q.host.Cause(); err != nil {
		reason = err.Error()
	}
	q.reportHold(events.Lost, h, time.Now(), reason)
}

// reportHold is called with mu held.
func (q *Queue) reportHold(kind events.Kind, h *Item, now time.Time, reason string) {
	if h.joined || !q.Observed() {
		return
	}
	held := now.Sub(h.since)
	if kind == events.Exit {
		q.host.Tally.Holds.Add(held)
		q.host.Tally.Locks.Of(q.Entry.Name, now).Held.Add(int64(held))
	}
	e := h.Request.Event(kind)
	e.Token, e.HeldMS, e.Reason = h.token, held.Milliseconds(), reason
	q.Add(e)
}

// ReportRequest reports a new request, if that was not done.
func (h *Host) ReportRequest(req *Request) {
	if req.asked == 0 {
		req.asked = h.Events.Add(req.Event(events.Request))
	}
}

// ReportRefused reports the end of a request that was not granted. q is nil if the lock was not
// found.
func (h *Host) ReportRefused(req *Request, q *Queue, since time.Time, err error) {
	if err == nil || h.Events == nil {
		return
	}
	e := req.Event(events.Refused)
	e.WaitedMS = time.Since(since).Milliseconds()
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
	if q != nil && e.Kind != events.Refused {
		e.Ahead = q.lastAhead(req, since)
	}
	h.Events.Add(e)
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
