package driver

import (
	"cmp"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// The reports of a lock, for display only. They name the hosts and clients that are ahead of a client.

const (
	// reportEvery is the minimum interval of reports that another host is directly ahead of a wait.
	reportEvery = 100 * time.Millisecond

	// maxAhead is the number of slots ahead that a ticket's report lists.
	maxAhead = 16

	// unreadable is the phase of an unreadable slot: hosts wait for it as if it were ahead.
	unreadable = "unreadable"
)

// ahead is the slot last seen directly ahead on the disk.
type ahead struct {
	peer   events.Peer
	slot   bakery.View
	untold bool
	toldAt time.Time
}

// reportSlot reports what the own slot shows from now on.
func (lk *Lock) reportSlot(s bakery.Slot) {
	if s.Phase != layout.Choosing && s.Phase != layout.Waiting || !lk.Queue.Traced() || lk.m.Holding() {
		return
	}
	w := lk.Queue.Front()
	if w == nil {
		return // the client has gone meanwhile
	}
	if s.Phase == layout.Choosing {
		lk.before = ahead{}
		e := w.Request.Happening(events.Choosing)
		e.Ticket = s.Ticket
		lk.Queue.Observe(e)
		return
	}
	e := w.Request.Happening(events.Ticket)
	e.Ticket, e.Ahead = s.Ticket, lk.aheadOnDisk()
	if n := len(e.Ahead); n > 0 {
		next := e.Ahead[n-1]
		lk.before = ahead{peer: next, slot: lk.slots.Views[next.Host-1], toldAt: time.Now()}
		if n > maxAhead {
			// the holder, and the nearest
			e.AheadCount, e.Ahead = n, slices.Delete(e.Ahead, 1, n-maxAhead+1)
		}
	}
	lk.Queue.Observe(e)
}

// reportAhead reports for which slot the host waits, if it has changed.
func (lk *Lock) reportAhead(a bakery.Action) {
	if !lk.Queue.Traced() || lk.m.Holding() {
		return
	}
	b, now, host := &lk.before, time.Now(), a.Host
	if host == 0 { // waits for all
		host = b.peer.Host
		if now.Sub(b.toldAt) >= reportEvery {
			if all := lk.aheadOnDisk(); len(all) > 0 {
				host = all[len(all)-1].Host
			}
		}
	}
	if host == 0 || host > len(lk.slots.Views) {
		return
	}
	if v := lk.slots.Views[host-1]; host != b.peer.Host || v != b.slot {
		b.slot, b.untold = v, true
		hosts, _ := lk.host.Member.Known()
		b.peer = lk.onDisk(host, hosts[host-1].Name)
	}
	if b.untold && now.Sub(b.toldAt) >= reportEvery {
		if w := lk.Queue.Front(); w != nil {
			e := w.Request.Happening(events.Waiting)
			e.Ticket, e.Ahead = lk.m.OwnSlot().Ticket, []events.Peer{b.peer}
			if a.Rank > 1 {
				e.AheadCount = a.Rank
			}
			lk.host.Observer.Waits(lk.Entry.Name, now)
			lk.Queue.Observe(e)
			b.untold, b.toldAt = false, now
		}
	}
	lk.Queue.WaitedFor(b.peer, b.slot.Slot.Mode, now) // an unreadable slot counts as exclusive
}

// rememberBusy records which slot blocks the clients that do not wait.
func (lk *Lock) rememberBusy() {
	if !lk.Queue.Traced() {
		return
	}
	if all := lk.aheadOnDisk(); len(all) > 0 {
		lk.Queue.WaitedFor(all[0], lk.slots.Views[all[0].Host-1].Slot.Mode, time.Now())
	}
}

// aheadOnDisk returns the hosts ahead of this one, by the last read of the slots and in order.
// Choosing hosts come first, because they may be inside already. Called by the driver.
func (lk *Lock) aheadOnDisk() (all []events.Peer) {
	hosts, _ := lk.host.Member.Known()
	own := lk.m.OwnSlot()
	for i, v := range lk.slots.Views {
		s, current := v.Slot, lk.m.Current(i+1)
		switch {
		case i+1 == lk.host.ID:
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
