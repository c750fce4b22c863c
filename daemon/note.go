package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/layout"
)

// Events of locks and their clients; those of hosts are in membership/notes.go. These functions do no IO
// and wait for none, because they are called on the way to a grant.

const (
	// noteEvery is the minimum interval of events that report another host directly ahead of a
	// wait.
	noteEvery = 100 * time.Millisecond

	// maxAhead is the number of slots ahead that a ticket's event lists.
	maxAhead = 16

	// unreadable is the phase of an unreadable slot: hosts wait for it as if it were ahead.
	unreadable = "unreadable"
)

// note adds an event, if there is a journal, and returns its number.
func (d *Daemon) note(e events.Event) uint64 { return d.cfg.Events.Add(e) }

// notes reports whether the lock's events are recorded.
func (lk *lock) notes() bool {
	return lk.d.cfg.Events != nil && lk.entry.Lock != lockspace.DirectoryLock
}

// event returns an event with the fields that all events of a request have.
func (r *Request) event(kind events.Kind) events.Event {
	return events.Event{Kind: kind, Lock: r.Name, Request: r.asked, PID: r.PID, Command: r.Command, Mode: r.Mode.String()}
}

// ahead is the slot last seen directly ahead on the disk.
type ahead struct {
	host   int
	slot   bakery.View
	peer   events.Peer
	untold bool
	toldAt time.Time
}

// after is the holder that clients of this host last waited for, and a time until which they did.
type after struct {
	peer events.Peer
	mode layout.Mode
	at   time.Time
}

// of returns the holder that a client waiting since then waited for last, nil if none.
func (a *after) of(since time.Time, mode layout.Mode) []events.Peer {
	if !a.at.After(since) || mode == layout.Shared && a.mode == layout.Shared {
		return nil
	}
	return []events.Peer{a.peer}
}

// local describes a client of this host.
func (lk *lock) local(req *Request, p layout.Phase) events.Peer {
	return events.Peer{Host: lk.slots.host, HostName: lk.d.ids.Name, Phase: p.String(), Mode: req.Mode.String(),
		PID: req.PID, Command: req.Command, Request: req.asked}
}

// noteQueued records that local clients are before a new one. Called with mu held, when the client
// is the last in the queue.
func (lk *lock) noteQueued(w *waiter) {
	if !lk.notes() {
		return
	}
	e := w.req.event(events.Waiting)
	if n := len(lk.queue) - 1; n > 0 {
		e.Ahead = []events.Peer{lk.local(&lk.queue[n-1].req, layout.Waiting)}
	} else if h := lk.inTheWay(w.req.Mode); h != nil {
		e.Ahead = []events.Peer{lk.local(&h.req, layout.Held)}
	} else {
		return
	}
	if n := len(lk.queue) - 1 + len(lk.holds); n > 1 {
		e.AheadCount = n
	}
	lk.d.note(e)
}

// inTheWay returns a local hold that conflicts with mode, or nil. Called with mu held.
func (lk *lock) inTheWay(mode layout.Mode) *Hold {
	i := slices.IndexFunc(lk.holds, func(h *Hold) bool { return mode == layout.Exclusive || h.req.Mode == layout.Exclusive })
	if i < 0 {
		return nil
	}
	return lk.holds[i]
}

// noteEnter records a grant. Called with mu held.
func (lk *lock) noteEnter(h *Hold, w *waiter) {
	if !lk.notes() {
		return
	}
	e := w.req.event(events.Enter)
	e.Token, e.WaitedMS, e.Permits = h.token, h.since.Sub(w.since).Milliseconds(), lk.severalPermits()
	e.Ahead = lk.after.of(w.since, w.req.Mode)
	lk.d.note(e)
}

// severalPermits returns the lock's permits, 0 for one.
func (lk *lock) severalPermits() int {
	if lk.entry.Permits > 1 {
		return lk.entry.Permits
	}
	return 0
}

// noteMode records that a hold has another mode: shared before the disk shows that, exclusive
// after. Called with mu held.
func (lk *lock) noteMode(h *Hold) {
	if !lk.notes() || h.joined {
		return
	}
	e := h.req.event(events.ModeSet)
	e.Token, e.HeldMS = h.token, time.Since(h.since).Milliseconds()
	lk.d.note(e)
}

// noteExit records a release. Called with mu held.
func (lk *lock) noteExit(h *Hold, why string, now time.Time) {
	if !lk.notes() || h.joined {
		return
	}
	if h.Err() != nil {
		lk.noteLostHold(h)
	}
	e := h.req.event(events.Exit)
	e.Token, e.HeldMS, e.Reason = h.token, now.Sub(h.since).Milliseconds(), why
	lk.d.note(e)
	lk.after = after{peer: lk.local(&h.req, layout.Held), mode: h.req.Mode, at: now}
}

// noteRefused records the end of a request that was not granted. lk is nil if the lock was not
// found.
func (d *Daemon) noteRefused(req *Request, lk *lock, since time.Time, err error) {
	if err == nil || d.cfg.Events == nil {
		return
	}
	e := req.event(events.Refused)
	e.WaitedMS = time.Since(since).Milliseconds()
	switch {
	case errors.Is(err, api.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		e.Kind = events.Timeout
	case errors.Is(err, api.ErrBusy):
		e.Kind = events.Busy
	case errors.Is(err, errAbsent):
		e.Kind, e.Reason = events.Cancel, "its client did not come back after a restart"
	case errors.Is(err, context.Canceled):
		e.Kind = events.Cancel
	default:
		e.Reason = err.Error()
	}
	if lk != nil && e.Kind != events.Refused {
		lk.mu.Lock()
		if h, n := lk.inTheWay(req.Mode), len(lk.queue); h != nil {
			e.Ahead = []events.Peer{lk.local(&h.req, layout.Held)}
		} else if e.Ahead = lk.after.of(since, req.Mode); e.Ahead == nil && n > 0 {
			e.Ahead = []events.Peer{lk.local(&lk.queue[n-1].req, layout.Waiting)}
		}
		lk.mu.Unlock()
	}
	d.note(e)
}

// noteSlot records what the own slot shows from now on.
func (lk *lock) noteSlot(s bakery.Slot) {
	if s.Phase != layout.Choosing && s.Phase != layout.Waiting || !lk.notes() || lk.m.Holding() {
		return
	}
	w := lk.front()
	if w == nil {
		return // the client has gone meanwhile
	}
	if s.Phase == layout.Choosing {
		lk.before = ahead{}
		e := w.req.event(events.Choosing)
		e.Ticket = s.Ticket
		lk.d.note(e)
		return
	}
	e := w.req.event(events.Ticket)
	e.Ticket, e.Ahead = s.Ticket, lk.aheadOnDisk()
	if n := len(e.Ahead); n > 0 {
		next := e.Ahead[n-1]
		lk.before = ahead{host: next.Host, slot: lk.slots.views[next.Host-1], peer: next, toldAt: time.Now()}
		if n > maxAhead {
			// the holder, and the nearest
			e.AheadCount, e.Ahead = n, slices.Delete(e.Ahead, 1, n-maxAhead+1)
		}
	}
	lk.d.note(e)
}

// noteAhead records for which slot the host waits, if it has changed.
func (lk *lock) noteAhead(a bakery.Action) {
	if !lk.notes() || lk.m.Holding() {
		return
	}
	b, now, host := &lk.before, time.Now(), a.Host
	if host == 0 { // waits for all
		host = b.host
		if now.Sub(b.toldAt) >= noteEvery {
			if all := lk.aheadOnDisk(); len(all) > 0 {
				host = all[len(all)-1].Host
			}
		}
	}
	if host == 0 || host > len(lk.slots.views) {
		return
	}
	if v := lk.slots.views[host-1]; host != b.host || v != b.slot {
		b.host, b.slot, b.untold = host, v, true
		hosts, _ := lk.d.mem.Known()
		b.peer = lk.onDisk(host, hosts[host-1].Name)
	}
	if b.untold && now.Sub(b.toldAt) >= noteEvery {
		if w := lk.front(); w != nil {
			e := w.req.event(events.Waiting)
			e.Ticket, e.Ahead = lk.m.OwnSlot().Ticket, []events.Peer{b.peer}
			if a.Rank > 1 {
				e.AheadCount = a.Rank
			}
			lk.d.note(e)
			b.untold, b.toldAt = false, now
		}
	}
	lk.waitedFor(b.peer, b.slot, now)
}

// noteBusy records which slot blocks the clients that do not wait.
func (lk *lock) noteBusy() {
	if !lk.notes() {
		return
	}
	if all := lk.aheadOnDisk(); len(all) > 0 {
		lk.waitedFor(all[0], lk.slots.views[all[0].Host-1], time.Now())
	}
}

func (lk *lock) waitedFor(p events.Peer, v bakery.View, now time.Time) {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	lk.after = after{peer: p, mode: v.Slot.Mode, at: now} // an unreadable slot counts as exclusive
}

// aheadOnDisk returns the hosts ahead of this one, by the last read of the slots and in order.
// Choosing hosts come first, because they may be inside already. Called by the driver.
func (lk *lock) aheadOnDisk() (all []events.Peer) {
	hosts, _ := lk.d.mem.Known()
	own := lk.m.OwnSlot()
	for i, v := range lk.slots.views {
		s, current := v.Slot, lk.m.Current(i+1)
		switch {
		case i+1 == lk.slots.host:
		case !v.Readable && current == 0: // dead
		case v.Readable && (s.Phase == layout.Idle || s.Creation != own.Creation || s.Incarnation != current):
		case v.Readable && own.Phase == layout.Waiting && s.Ticket > own.Ticket:
		case v.Readable && s.Mode == layout.Shared && own.Mode == layout.Shared:
		default:
			all = append(all, lk.onDisk(i+1, hosts[i].Name))
		}
	}
	last := func(p events.Peer) layout.Ticket {
		if p.Phase == layout.Choosing.String() {
			return 0
		}
		return p.Ticket
	}
	slices.SortStableFunc(all, func(a, b events.Peer) int { return cmp.Compare(last(a), last(b)) })
	return all
}

// onDisk describes a host by its slot as last read.
func (lk *lock) onDisk(host int, name string) events.Peer {
	v := lk.slots.views[host-1]
	p := events.Peer{Host: host, HostName: name, Phase: unreadable}
	if !v.Readable {
		return p
	}
	p.Phase, p.Mode, p.Ticket = v.Slot.Phase.String(), v.Slot.Mode.String(), v.Slot.Ticket
	if v.Slot.Phase == layout.Held {
		who := lk.slots.caption(host).holder
		p.PID, p.Command = who.PID, who.Command
	}
	return p
}

// noteLost waits for the end of the lease and records every lost hold, even if the driver and the
// client hang then.
func (d *Daemon) noteLost(mem *membership.Member) {
	select {
	case <-mem.Lost():
	case <-d.ended:
		return
	}
	d.mu.Lock()
	locks := make([]*lock, 0, len(d.locks))
	for _, lk := range d.locks {
		locks = append(locks, lk)
	}
	d.mu.Unlock()
	for _, lk := range locks {
		lk.noteLost()
		lk.refuseLost()
	}
}

// noteLost records the lost holds of a lock, each once.
func (lk *lock) noteLost() {
	if !lk.notes() {
		return
	}
	lk.mu.Lock()
	defer lk.mu.Unlock()
	for _, h := range lk.holds {
		lk.noteLostHold(h)
	}
}

// noteLostHold records the loss of a hold. Called with mu held.
func (lk *lock) noteLostHold(h *Hold) {
	if h.noted || h.joined {
		return
	}
	h.noted = true
	e := h.req.event(events.Lost)
	e.Token, e.HeldMS, e.Reason = h.token, time.Since(h.since).Milliseconds(), reasonOf(lk.d.mem.Err())
	lk.d.note(e)
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// noteKill records, once per signal, that processes under a lock were sent a signal.
func (s *session) noteKill(why string, signal syscall.Signal, processes int) {
	if processes == 0 {
		return
	}
	s.mu.Lock()
	noted := s.stopped == signal
	s.stopped = signal
	s.mu.Unlock()
	if noted {
		return
	}
	e := s.event(events.Kill)
	if s.decided() && s.hold != nil {
		e.Token = s.hold.token
	}
	e.Reason = fmt.Sprintf("%s to %s: %s", unix.SignalName(signal), countOf(processes, "process", "processes"), why)
	s.all.d.note(e)
}

// event returns an event with the fields that all events of the session's request have.
func (s *session) event(kind events.Kind) events.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.req.event(kind)
}

func countOf(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func (s *session) noteOrphan() {
	e := s.event(events.Orphan)
	e.Token, e.Reason = s.hold.token, "its client is gone, its running processes keep the lock"
	s.all.d.note(e)
}

// noteResumed records that a restart kept a hold, or without a token a place in the queue.
func (s *session) noteResumed(lk *lock, token layout.Ticket) {
	e := s.req.event(events.Resumed)
	e.Token, e.Permits = token, lk.severalPermits()
	if since := time.Since(s.since).Milliseconds(); token != 0 {
		e.HeldMS = since
	} else {
		e.WaitedMS = since
	}
	s.all.d.note(e)
}

// noteAtRisk records that this host's lease is about to end, unless it is over already or the host
// is leaving.
func (d *Daemon) noteAtRisk(m membership.Moments, leaving bool) {
	if !m.Lost && !leaving {
		left := max(0, m.Deadline-d.clock.Now()).Round(time.Millisecond)
		d.note(events.Event{Kind: events.AtRisk, Reason: "its lease is not renewed and ends in " + left.String()})
	}
}
