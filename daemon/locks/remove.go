package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Removal: the remover waits for the lock like any other client. When it is next, the driver grants
// no hold, but has the machine remove the lock (bakery/remove.go), and ends. The entry is cleared
// under the directory's lock, after an intent. A host that dies during that may or may not have
// cleared the entry, or its write may land at any time. Therefore a host that meets its mark
// completes the removal before it uses the lock.

// Remove removes a lock when it is next in the queue; with try immediately or not at all. Clients
// that wait for the lock then, or request it later, create it again. It returns ErrNoLock, ErrBusy,
// ErrInvalid, ErrUnavailable, ErrDamaged, or the cause of ctx's end. In the last case the removal
// may still be completed.
func (m *Manager) Remove(ctx context.Context, name string, try bool) error {
	return m.remove(ctx, name, try, nil)
}

// RemoveIfNoValue is Remove of a lock that has no value. The value is read while this host holds the
// lock, so no client can set one between the check and the removal. It also returns ErrValue, and
// ErrUnreadable if a slot that may have a value stays unreadable.
func (m *Manager) RemoveIfNoValue(ctx context.Context, name string, try bool) error {
	return m.remove(ctx, name, try, func(lk *Lock) error {
		slots, err := m.readAllSlots(ctx, lk.Dev(), lk.Entry.Lock)
		if err == nil && len(latestValue(lk.Entry, slots).Value) > 0 {
			err = api.ErrValue
		}
		return err
	})
}

// remove removes a lock, unless removable is not nil and returns why it must stay.
func (m *Manager) remove(ctx context.Context, name string, try bool, removable func(*Lock) error) (err error) {
	req := Request{Name: name, Mode: layout.Exclusive, Try: try, Command: events.Removing}
	if err := m.validate(&req); err != nil {
		return err
	}
	since := time.Now()
	m.host.ReportRequest(&req)
	defer func() { m.host.ReportRefused(&req, nil, since, err) }()
	return m.withCurrent(ctx, func() (*Lock, error) {
		return runDetached(ctx, m, func() (*Lock, error) {
			e, err := m.removable(ctx, req.Name)
			if err != nil {
				return nil, err
			}
			return m.attach(e)
		})
	}, func(lk *Lock) error {
		if removable != nil {
			req.Removable = func() error { return removable(lk) }
		}
		err := lk.Remove(ctx, req)
		if err == nil {
			m.dir.Forget(lk.Entry)
		}
		return err
	})
}

// removable returns the entry of a lock that can be removed. While another host may still write the
// entry, a cleared entry could come back. removable reports that before any client has to wait.
// clear checks it again, because a host that restores an unreadable entry intends it, too.
func (m *Manager) removable(ctx context.Context, name string) (e layout.Entry, err error) {
	err = m.guarded(ctx, "remove a lock", func(guard *Lock) error {
		s, err := m.scanGuarded(guard, name)
		if err != nil {
			return err
		}
		if e, err = m.findIn(s, name, true); err != nil {
			return err
		}
		return m.unintended(guard, e)
	})
	return e, err
}

// unintended returns ErrIntended, with the host, if another host intends an entry.
func (m *Manager) unintended(guard *Lock, e layout.Entry) error {
	of, err := m.intentsOf(guard.Dev())
	if err != nil {
		return err
	}
	for host, intents := range of {
		if slices.Contains(intents, layout.Intent(e)) {
			return fmt.Errorf("%w: an intent of %s is open: a disk hangs there, or the host died",
				api.ErrIntended, text.HostName(host, m.disk.HostName(host)))
		}
	}
	return nil
}

// clearEntry makes the entry of a lock a free one, in a goroutine of its own: see [Host].
func (m *Manager) clearEntry(lk *Lock, creation uint64) <-chan error {
	done := make(chan error, 1)
	m.drivers.Go(func() { done <- m.clear(lk, creation) })
	return done
}

// clear makes the entry a free one, under the directory's lock.
func (m *Manager) clear(lk *Lock, creation uint64) error {
	e := lk.Entry
	failing := lk.Dev().Series(m.disk.SB.Geometry.Entry(e.Lock))
	defer failing.End()
	for {
		err := m.guarded(context.Background(), "remove a lock", func(guard *Lock) error {
			// An unreadable entry is this lock's: its remover holds the lock.
			if now, err := m.dir.On(guard.Dev()).Read(e.Lock); err == nil && now != e {
				return nil // cleared already, by the host that died during the removal
			}
			// A host that restored the entry while this host waited for the lock may still write
			// it.
			if err := m.unintended(guard, e); err != nil {
				return err
			}
			return m.put(guard, layout.Entry{Lock: e.Lock, Creation: creation}, false)
		})
		switch {
		case err == nil, errors.Is(err, api.ErrIntended), errors.Is(err, api.ErrInFlight), errors.Is(err, api.ErrStuck):
			return err
		case m.host.Stopping():
			return queue.ErrStopped
		case !errors.Is(err, api.ErrDamaged) && !errors.Is(err, api.ErrUnavailable):
			// An error of the device. The time that the try waited for other hosts does not count.
			failing.Begin(m.disk.Clock.Now())
			failing.Failed(err)
		}
		m.host.Observer.Trouble("clearing a directory entry failed, retrying", e, "err", err)
		if !m.host.Pause(m.disk.Retry()) {
			return api.ErrLeaseLost
		}
	}
}
