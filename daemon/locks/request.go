package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
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

func (m *Manager) request(ctx context.Context, name, message string) (asked []Asked, err error) {
	err = m.withCurrent(ctx, func() (*Lock, error) {
		e, err := m.lookupNow(ctx, name)
		if err != nil {
			return nil, err
		}
		if lk := m.attached(e.Lock); lk != nil {
			lk.EndLinger()
		}
		if asked, err = m.holding(ctx, e); err != nil {
			return nil, err
		}
		if len(asked) == 0 {
			return nil, fmt.Errorf("%w: %q", api.ErrFree, name)
		}
		return m.attach(e)
	}, func(lk *Lock) error {
		var ticket layout.Ticket
		for _, a := range asked {
			ticket = max(ticket, layout.MakeTicket(a.Token.Number(), a.Token.Host()))
		}
		return lk.Ask(ticket, message)
	})
	return asked, err
}

// holding returns the holders of a lock: other hosts as their slots show it, and the clients of
// this host.
func (m *Manager) holding(ctx context.Context, e layout.Entry) ([]Asked, error) {
	for give := time.Now().Add(unsettledFor); ; {
		asked, unsettled, err := m.holdingNow(e)
		if err != nil || !unsettled || time.Now().After(give) {
			return asked, err
		}
		if err := retry.Pause(ctx, driver.SettleAfter/2); err != nil {
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
			asked = append(asked, Asked{s.Host, hosts[s.Host-1].Name, s.Ticket, s.Mode})
		case s.Phase == layout.Choosing:
			choosing = true
		case s.Phase == layout.Waiting:
			waiting = true
		}
	}
	lk := m.attached(e.Lock)
	if lk != nil && lk.Entry == e {
		for _, h := range lk.Queue.Inside() {
			asked = append(asked, Asked{m.mem.ID(), m.host.Name, h.Token(), h.Mode()})
		}
	}
	return asked, unreadable || choosing || waiting && len(asked) == 0, nil
}

// Asked is a holder that was sent a request.
type Asked struct {
	Host     int    `json:"host"`
	HostName string `json:"host_name"`
	// of a client of this host; for another host, the ticket that its clients' tokens belong to
	Token layout.Ticket `json:"token"`
	Mode  layout.Mode   `json:"-"`
}

// Holders returns the holders of a lock, as the disk shows it. It returns the errors of Request.
func (m *Manager) Holders(ctx context.Context, name string) ([]Asked, error) {
	return runDetached(ctx, m, func() ([]Asked, error) {
		e, err := m.lookupNow(ctx, name)
		if err != nil {
			return nil, err
		}
		return m.holding(ctx, e)
	})
}

// unsettledFor is how long a slot that may be about to show a hold is read again. A hold is shown
// after SettleAfter.
const unsettledFor = 10 * driver.SettleAfter
