package locks

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// The reports of a lock to the observer, for display only. They name the hosts and clients that are
// ahead of a client.

const (
	// reportEvery is the minimum interval of reports that another host is directly ahead of a wait.
	reportEvery = 100 * time.Millisecond

	// maxAhead is the number of slots ahead that a ticket's report lists.
	maxAhead = 16

	// unreadable is the phase of an unreadable slot: hosts wait for it as if it were ahead.
	unreadable = "unreadable"
)

// observed reports whether clients use the lock: the directory's lock is bakeryd's own.
func (lk *Lock) observed() bool { return lk.Entry.Lock != lockspace.DirectoryLock }

// traced reports whether to find out which hosts and clients are ahead.
func (lk *Lock) traced() bool { return lk.mgr.peers && lk.observed() }

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
func (lk *Lock) local(req *Request, p layout.Phase) events.Peer {
	return events.Peer{Host: lk.mgr.mem.ID(), HostName: lk.mgr.hostName, Phase: p.String(), Mode: req.Mode.String(),
		PID: req.PID, Command: req.Command, Request: req.asked}
}

// reportQueued reports a new client and the local clients before it. Called with mu held, when the
// client is the last in the queue.
func (lk *Lock) reportQueued(w *Waiter) {
	h := Happening{Kind: events.Waiting, Request: &w.req, At: w.since}
	if !lk.traced() {
		lk.observe(h)
		return
	}
	if n := len(lk.queue) - 1; n > 0 {
		h.Ahead = []events.Peer{lk.local(&lk.queue[n-1].req, layout.Waiting)}
	} else if other := lk.inTheWay(w.req.Mode); other != nil {
		h.Ahead = []events.Peer{lk.local(&other.req, layout.Held)}
	}
	if n := len(lk.queue) - 1 + len(lk.holds); n > 1 {
		h.AheadCount = n
	}
	lk.observe(h)
}

// inTheWay returns a local hold that conflicts with mode, or nil. Called with mu held.
func (lk *Lock) inTheWay(mode layout.Mode) *Hold {
	i := slices.IndexFunc(lk.holds, func(h *Hold) bool { return mode == layout.Exclusive || h.req.Mode == layout.Exclusive })
	if i < 0 {
		return nil
	}
	return lk.holds[i]
}

// reportGrant is called with mu held, by the driver.
func (lk *Lock) reportGrant(h *Hold, w *Waiter) {
	lk.observe(Happening{Kind: events.Enter, Request: &w.req, At: h.since, Token: h.token, Waited: h.since.Sub(w.since),
		Ahead: lk.after.of(w.since, w.req.Mode), Handoff: lk.acquisition != nil && lk.acquisition.grants > 0})
}

// reportMode reports that a hold has another mode: shared before the disk shows that, exclusive
// after. Called with mu held.
func (lk *Lock) reportMode(h *Hold) { lk.reportHold(events.ModeSet, h, time.Now(), "") }

// reportRelease is called with mu held.
func (lk *Lock) reportRelease(h *Hold, why string) {
	if h.Err() != nil {
		lk.reportLost(h)
	}
	now := time.Now()
	lk.reportHold(events.Exit, h, now, why)
	if lk.traced() && !h.joined {
		lk.after = after{peer: lk.local(&h.req, layout.Held), mode: h.req.Mode, at: now}
	}
}

// reportLost reports the loss of a hold, once. Called with mu held.
func (lk *Lock) reportLost(h *Hold) {
	if !h.reportedLost {
		h.reportedLost = true
		lk.reportHold(events.Lost, h, time.Now(), reasonOf(lk.mgr.mem.Err()))
	}
}

func (lk *Lock) reportHold(kind events.Kind, h *Hold, now time.Time, reason string) {
	if !h.joined {
		lk.observe(Happening{Kind: kind, Request: &h.req, At: now, Token: h.token, Held: now.Sub(h.since), Reason: reason})
	}
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// reportRequest reports a new request, if that was not done.
func (m *Manager) reportRequest(req *Request) {
	if req.asked == 0 {
		req.asked = m.observer.Observe(Happening{Kind: events.Request, Request: req})
	}
}

// reportRefused reports the end of a request that was not granted. lk is nil if the lock was not
// found.
func (m *Manager) reportRefused(req *Request, lk *Lock, since time.Time, err error) {
	if err == nil {
		return
	}
	h := Happening{Kind: events.Refused, Request: req, Waited: time.Since(since)}
	switch {
	case errors.Is(err, api.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		h.Kind = events.Timeout
	case errors.Is(err, api.ErrBusy):
		h.Kind = events.Busy
	case errors.Is(err, ErrAbsent):
		h.Kind, h.Reason = events.Cancel, "its client did not come back after a restart"
	case errors.Is(err, context.Canceled):
		h.Kind = events.Cancel
	default:
		h.Reason = err.Error()
	}
	if lk != nil && m.peers && h.Kind != events.Refused {
		lk.mu.Lock()
		if other, n := lk.inTheWay(req.Mode), len(lk.queue); other != nil {
			h.Ahead = []events.Peer{lk.local(&other.req, layout.Held)}
		} else if h.Ahead = lk.after.of(since, req.Mode); h.Ahead == nil && n > 0 {
			h.Ahead = []events.Peer{lk.local(&lk.queue[n-1].req, layout.Waiting)}
		}
		lk.mu.Unlock()
	}
	m.observer.Observe(h)
}

// reportSlot reports what the own slot shows from now on.
func (lk *Lock) reportSlot(s bakery.Slot) {
	if s.Phase != layout.Choosing && s.Phase != layout.Waiting || !lk.traced() || lk.m.Holding() {
		return
	}
	w := lk.front()
	if w == nil {
		return // the client has gone meanwhile
	}
	if s.Phase == layout.Choosing {
		lk.before = ahead{}
		lk.observe(Happening{Kind: events.Choosing, Request: &w.req, Ticket: s.Ticket})
		return
	}
	h := Happening{Kind: events.Ticket, Request: &w.req, Ticket: s.Ticket, Ahead: lk.aheadOnDisk()}
	if n := len(h.Ahead); n > 0 {
		next := h.Ahead[n-1]
		lk.before = ahead{host: next.Host, slot: lk.slots.Views[next.Host-1], peer: next, toldAt: time.Now()}
		if n > maxAhead {
			// the holder, and the nearest
			h.AheadCount, h.Ahead = n, slices.Delete(h.Ahead, 1, n-maxAhead+1)
		}
	}
	lk.observe(h)
}

// reportAhead reports for which slot the host waits, if it has changed.
func (lk *Lock) reportAhead(a bakery.Action) {
	if !lk.traced() || lk.m.Holding() {
		return
	}
	b, now, host := &lk.before, time.Now(), a.Host
	if host == 0 { // waits for all
		host = b.host
		if now.Sub(b.toldAt) >= reportEvery {
			if all := lk.aheadOnDisk(); len(all) > 0 {
				host = all[len(all)-1].Host
			}
		}
	}
	if host == 0 || host > len(lk.slots.Views) {
		return
	}
	if v := lk.slots.Views[host-1]; host != b.host || v != b.slot {
		b.host, b.slot, b.untold = host, v, true
		hosts, _ := lk.mgr.mem.Known()
		b.peer = lk.onDisk(host, hosts[host-1].Name)
	}
	if b.untold && now.Sub(b.toldAt) >= reportEvery {
		if w := lk.front(); w != nil {
			h := Happening{Kind: events.Waiting, Request: &w.req, At: now, Ticket: lk.m.OwnSlot().Ticket, Ahead: []events.Peer{b.peer}}
			if a.Rank > 1 {
				h.AheadCount = a.Rank
			}
			lk.observe(h)
			b.untold, b.toldAt = false, now
		}
	}
	lk.waitedFor(b.peer, b.slot, now)
}

// rememberBusy records which slot blocks the clients that do not wait.
func (lk *Lock) rememberBusy() {
	if !lk.traced() {
		return
	}
	if all := lk.aheadOnDisk(); len(all) > 0 {
		lk.waitedFor(all[0], lk.slots.Views[all[0].Host-1], time.Now())
	}
}

func (lk *Lock) waitedFor(p events.Peer, v bakery.View, now time.Time) {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	lk.after = after{peer: p, mode: v.Slot.Mode, at: now} // an unreadable slot counts as exclusive
}

// aheadOnDisk returns the hosts ahead of this one, by the last read of the slots and in order.
// Choosing hosts come first, because they may be inside already. Called by the driver.
func (lk *Lock) aheadOnDisk() (all []events.Peer) {
	hosts, _ := lk.mgr.mem.Known()
	own := lk.m.OwnSlot()
	for i, v := range lk.slots.Views {
		s, current := v.Slot, lk.m.Current(i+1)
		switch {
		case i+1 == lk.mgr.mem.ID():
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
func (lk *Lock) onDisk(host int, name string) events.Peer {
	v := lk.slots.Views[host-1]
	p := events.Peer{Host: host, HostName: name, Phase: unreadable}
	if !v.Readable {
		return p
	}
	p.Phase, p.Mode, p.Ticket = v.Slot.Phase.String(), v.Slot.Mode.String(), v.Slot.Ticket
	if v.Slot.Phase == layout.Held {
		holder := lk.slots.Holder(host)
		p.PID, p.Command = holder.PID, holder.Command
	}
	return p
}

// reportOver reports a recovery if a host that is over took part in the lock, by its slot as last
// read.
func (lk *Lock) reportOver(h lease.Host, v bakery.View, incarnation uint64) {
	if h.State != layout.StateLeft && (!v.Readable || v.Slot.Phase != layout.Idle && v.Slot.Incarnation == incarnation) {
		lk.mgr.observer.Recovered()
	}
}

// HoldsLost ends all waits and reports all holds as lost, even if the drivers and the clients hang
// then.
func (m *Manager) HoldsLost() {
	for _, lk := range m.all() {
		lk.holdsLost()
		lk.refuseLost()
	}
}

func (lk *Lock) holdsLost() {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	for _, h := range lk.holds {
		lk.reportLost(h)
	}
}
