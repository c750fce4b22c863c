package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/layout"
)

// Requests: a client wants a lock that others hold and notifies the holders through the disk. Its
// host writes a request into its own slot of the lock. The hosts that hold the lock read the slots
// every lookForRequests, while one of their clients listens. No holder has to react.
//
// A request names the highest ticket of the holders and addresses every hold of that ticket or a
// lower one. Therefore it means nothing to later holds, and stays in the slot until the next
// request replaces it.

// Asked is a holder that was sent a request.
type Asked struct {
	Host     int    `json:"host"`
	HostName string `json:"host_name"`
	// of a client of this host; for another host, the ticket that its clients' tokens belong to
	Token layout.Ticket `json:"token"`
}

// unsettledFor is how long a slot that may be about to show a hold is read again. A hold is shown
// after SettleAfter.
const unsettledFor = 10 * SettleAfter

// lookForRequests returns the interval at which a holder's host reads the slots for requests.
func lookForRequests(lease time.Duration) time.Duration { return min(time.Second, lease/6) }

// Request asks the holders of a lock for it. The message is shown to them: at most
// layout.MaxRequest bytes of UTF-8 without control characters. It returns the holders once the
// request is durable. A holder of another host that listens is notified within a second or a sixth
// of the lease.
//
// It returns ErrInvalid, ErrNoLock, ErrFree, ErrUnavailable, ErrDamaged, an
// error of the device, or the cause of ctx's end.
func (m *Manager) Request(ctx context.Context, name, message string) ([]Asked, error) {
	if err := errors.Join(layout.ValidateLockName(name), layout.ValidateRequest(message)); err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	return runDetached(ctx, m, func() ([]Asked, error) { return m.request(ctx, name, message) })
}

func (m *Manager) request(ctx context.Context, name, message string) ([]Asked, error) {
	for {
		e, err := m.lookupNow(ctx, name)
		if err != nil {
			return nil, err
		}
		asked, err := m.holding(ctx, e)
		if err != nil {
			return nil, err
		}
		if len(asked) == 0 {
			return nil, fmt.Errorf("%w: %q", api.ErrFree, name)
		}
		lk, err := m.attach(e)
		if err == nil {
			err = lk.ask(asked, message)
		}
		if err == nil {
			return asked, nil
		}
		if !errors.Is(err, errSuperseded) {
			return nil, err
		}
		m.dir.Forget(e)
		if err := retry.Pause(ctx, m.disk.Retry()); err != nil {
			return nil, err
		}
	}
}

// lastMoment is just before the last time that a request can have. No host writes a later one.
var lastMoment = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// ask writes a request into the own slot, in whatever phase that is.
func (lk *Lock) ask(asked []Asked, message string) error {
	var ticket layout.Ticket
	for _, a := range asked {
		ticket = max(ticket, layout.MakeTicket(a.Token.Number(), a.Token.Host()))
	}
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
		lk.q.Observe(Happening{Kind: events.Wanted, Token: ticket, By: events.Peer{Host: lk.mgr.mem.ID(), HostName: lk.mgr.hostName}, Reason: message})
	}
	return err
}

// holding returns the holders of a lock: other hosts as their slots show it, and the clients of
// this host.
func (m *Manager) holding(ctx context.Context, e layout.Entry) ([]Asked, error) {
	for give := time.Now().Add(unsettledFor); ; {
		asked, unsettled, err := m.holdingNow(e)
		if err != nil || !unsettled || time.Now().After(give) {
			return asked, err
		}
		if err := retry.Pause(ctx, SettleAfter/2); err != nil {
			return nil, err
		}
	}
}

// holdingNow evaluates one read of the slots. It is unsettled while a host may be inside that does
// not show it yet: as choosing after the fast path, or as waiting when it has just been admitted. A
// slot may also be unreadable because it is being written.
func (m *Manager) holdingNow(e layout.Entry) (asked []Asked, unsettled bool, err error) {
	slots, bad, err := m.disk.ReadSlots(m.disk.Dev, e.Lock, m.SlotCount())
	if err != nil {
		return nil, false, err
	}
	current, _, err := m.mem.ReadHosts() // after the slots, to determine which are void
	if err != nil {
		return nil, false, err
	}
	hosts, _ := m.mem.Known()
	choosing, waiting, unreadable := false, false, false
	for i, s := range slots {
		unreadable = unreadable || bad[i] != nil
		h := current[i]
		void := h.Readable && (h.Gone || h.Incarnation != s.Incarnation)
		if bad[i] != nil {
			m.mem.HeldUp(layout.Complaint{Host: i + 1, Lock: e.Lock}, false)
		}
		switch {
		case bad[i] != nil || s.Blank() || s.Host == m.mem.ID() || s.Creation != e.Creation || void:
		case s.Phase == layout.Held:
			asked = append(asked, Asked{Host: s.Host, HostName: hosts[s.Host-1].Name, Token: s.Ticket})
		case s.Phase == layout.Choosing:
			choosing = true
		case s.Phase == layout.Waiting:
			waiting = true
		}
	}
	lk := m.attached(e.Lock)
	if lk != nil && lk.Entry == e {
		for _, h := range lk.q.Inside() {
			asked = append(asked, Asked{Host: m.mem.ID(), HostName: m.hostName, Token: h.Token()})
		}
	}
	return asked, unreadable || choosing || waiting && len(asked) == 0, nil
}

// requestWatch is the state of reading requests during one hold of the lock on the disk.
type requestWatch struct {
	next  time.Time
	heard map[int]layout.Request // by host: the last one that clients were notified of
}

// nextLook returns a timer for the next read of requests; due is nil if no client listens.
func (lk *Lock) nextLook() (due <-chan time.Time, stop func()) {
	if !lk.q.Listening() {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(lk.requestWatch.next))
	return t.C, func() { t.Stop() }
}

// look notifies the local holders of requests that are new to their ticket. Requests of hosts that
// have died since count, too. A holder that is granted the same ticket later does not get the
// requests that the holder before it got.
func (lk *Lock) look() {
	lk.requestWatch.next = time.Now().Add(lookForRequests(lk.mgr.disk.SB.Lease))
	slots, bad, err := lk.mgr.disk.ReadSlots(lk.slots.Dev, lk.Entry.Lock, lk.mgr.SlotCount())
	if err != nil {
		if lk.warn.Allow() {
			lk.mgr.observer.Trouble("reading requests failed, retrying", lk.Entry, "err", err)
		}
		return
	}
	hosts, _ := lk.mgr.mem.Known()
	for i, s := range slots {
		r := s.Request
		if bad[i] != nil || r.Ticket == 0 || r.Ticket < lk.m.Token() || s.Creation < lk.Entry.Creation || lk.requestWatch.heard[s.Host] == r {
			continue
		}
		told := Requested{Host: s.Host, Message: r.Message}
		if h := hosts[s.Host-1]; h.Incarnation == s.Incarnation {
			told.HostName = h.Name
		}
		if lk.q.Requested(told) {
			if lk.requestWatch.heard == nil {
				lk.requestWatch.heard = map[int]layout.Request{}
			}
			lk.requestWatch.heard[s.Host] = r
			if s.Host != lk.mgr.mem.ID() { // else it was recorded when it was made
				lk.q.Observe(Happening{Kind: events.Wanted, Token: lk.m.Token(), By: events.Peer{Host: told.Host, HostName: told.HostName}, Reason: told.Message})
			}
		}
	}
}
