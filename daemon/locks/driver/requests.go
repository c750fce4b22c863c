package driver

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/observe"
	"github.com/bakeryd/bakeryd/layout"
)

// LookForRequests returns the interval at which a holder's host reads the slots for requests.
func LookForRequests(lease time.Duration) time.Duration { return min(time.Second, lease/6) }

// lastMoment is just before the last time that a request can have. No host writes a later one.
var lastMoment = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Ask writes a request to holders up to ticket into the own slot, in whatever phase that is.
func (lk *Lock) Ask(ticket layout.Ticket, message string) error {
	err := lk.do(func() error {
		err := lk.publish(func(own *layout.Slot) {
			at := time.Now().UTC().Truncate(time.Microsecond)
			// the time distinguishes a request from the one before
			if before := own.Request.At; !at.After(before) && before.Before(lastMoment) {
				at = before.Add(time.Microsecond)
			}
			own.Request = layout.Request{Ticket: ticket, At: at, Message: message}
		})
		lk.requestWatch.next = time.Now() // notify clients of this host immediately
		return err
	})
	if err == nil {
		lk.reportRequested(queue.Requested{Host: lk.host.ID, HostName: lk.host.Name, Message: message}, ticket)
	}
	return err
}

// EndLinger ends the time in which the lock is kept without a client, also that after the present hold.
func (lk *Lock) EndLinger() {
	lk.asked.Store(true)
	lk.Queue.Signal()
}

// reportRequested reports a request to holders up to ticket.
func (lk *Lock) reportRequested(r queue.Requested, ticket layout.Ticket) {
	lk.host.Observer.Noted("lock requested", lk.Entry, "token", ticket, "by_host", r.Host, "by_host_name", r.HostName, "message", r.Message)
	lk.Queue.Observe(observe.Happening{Event: events.Event{Kind: events.Wanted, Token: ticket, ByHost: r.Host, ByHostName: r.HostName, Reason: r.Message}})
}

// requestWatch is the state of reading requests during one hold of the lock on the disk.
type requestWatch struct {
	next  time.Time
	heard map[int]layout.Request // by host: the last one that clients were notified of
}

// nextLook returns a timer for the next read of requests; nil if no client listens.
func (lk *Lock) nextLook() <-chan time.Time {
	if !lk.Queue.Listening() {
		return nil
	}
	return time.After(time.Until(lk.requestWatch.next))
}

// look notifies the local holders of requests that are new to their ticket. Requests of hosts that
// have died since count, too. A holder that is granted the same ticket later does not get the
// requests that the holder before it got.
func (lk *Lock) look() {
	if lk.acquisition == nil {
		return // released meanwhile
	}
	lk.requestWatch.next = time.Now().Add(LookForRequests(lk.host.Disk.SB.Lease))
	slots, bad, err := lk.host.Disk.ReadSlots(lk.slots.Dev, lk.Entry.Lock, lk.host.SlotCount())
	if err != nil {
		if lk.warn.Allow() {
			lk.host.Observer.Trouble("reading requests failed, retrying", lk.Entry, "err", err)
		}
		return
	}
	hosts, _ := lk.host.Member.Known()
	for i, s := range slots {
		r := s.Request
		if bad[i] != nil || r.Ticket == 0 || r.Ticket < lk.m.Token() || s.Creation < lk.Entry.Creation || lk.requestWatch.heard[s.Host] == r {
			continue
		}
		told := queue.Requested{Host: s.Host, Message: r.Message}
		if h := hosts[s.Host-1]; h.Incarnation == s.Incarnation {
			told.HostName = h.Name
		}
		if lk.Queue.Requested(told) {
			if lk.requestWatch.heard == nil {
				lk.requestWatch.heard = map[int]layout.Request{}
			}
			lk.requestWatch.heard[s.Host] = r
			if s.Host != lk.host.ID { // else it was recorded when it was made
				lk.reportRequested(told, lk.m.Token())
			}
		}
	}
}
