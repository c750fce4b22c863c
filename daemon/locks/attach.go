package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/layout"
)

// lookupNow finds the entry of a name as it is on the disk now. It reads again up to store.SlotTries
// times if an entry is unreadable, because that may be being written.
func (m *Manager) lookupNow(ctx context.Context, name string) (e layout.Entry, err error) {
	for try := range store.SlotTries {
		if e, err = m.lookupOnce(name, try == store.SlotTries-1); !errors.Is(err, api.ErrDamaged) {
			return e, err
		}
		if err := retry.Pause(ctx, m.disk.Retry()); err != nil {
			return e, context.Cause(ctx)
		}
	}
	return e, err
}

// lookupOnce finds the entry with one read. certain means that no host can be writing an entry that
// is unreadable now.
func (m *Manager) lookupOnce(name string, certain bool) (layout.Entry, error) {
	if e, ok := m.dir.Remembered(name); ok {
		if now, err := m.dir.Read(e.Lock); err == nil && now == e {
			return e, nil
		}
	}
	s, err := m.dir.Scan()
	if err != nil {
		return layout.Entry{}, err
	}
	return m.findIn(s, name, certain)
}

// findIn returns the entry of a name in a scan. It returns ErrNoLock, or ErrDamaged if the name may
// be in an unreadable entry.
func (m *Manager) findIn(s *directory.Scan, name string, certain bool) (layout.Entry, error) {
	e, ok := s.Find(name)
	switch {
	case ok:
		return e, nil
	case s.Damaged != nil:
		m.complainOfEntries(s.Bad, certain)
		return e, fmt.Errorf("%w: lock %q is not in its readable part: %w", api.ErrDamaged, name, s.Damaged)
	}
	return e, fmt.Errorf("%w: %q", api.ErrNoLock, name)
}

// lock returns this host's part in a lock. It creates the lock on first use.
func (m *Manager) lock(ctx context.Context, req Request) (*Lock, error) {
	if e, ok := m.dir.Remembered(req.Name); ok && agree(e, req.Permits) != nil {
		m.dir.Forget(e) // it may have been removed and created with other permits
	}
	e, err := m.dir.Lookup(req.Name)
	if errors.Is(err, api.ErrNoLock) {
		if e, _, err = m.create(ctx, req.Name, req.Permits); err != nil {
			err = fmt.Errorf("create lock %q: %w", req.Name, err)
		}
	}
	if err == nil {
		err = agree(e, req.Permits)
	}
	if err != nil {
		return nil, err
	}
	return m.attach(e)
}

// attach returns the driver of an entry's lock and starts one if needed. It returns ErrSuperseded
// if the entry is older than the one in use.
func (m *Manager) attach(e layout.Entry) (*Lock, error) { return m.attachTo(e, false) }

// attachTo also returns the driver of a lock in quarantine, if repair is set: it repairs the own
// slot.
func (m *Manager) attachTo(e layout.Entry, repair bool) (*Lock, error) {
	for {
		lk, err := m.attachOnce(e, repair)
		if err != nil || lk.Entry == e {
			return lk, err
		}
		if lk.Entry.Creation > e.Creation {
			m.dir.Forget(e)
			return nil, driver.ErrSuperseded
		}
		// Another entry used these slots until now. Two drivers must not write one slot.
		lk.Queue.Close(driver.ErrSuperseded)
		<-lk.Done()
	}
}

func (m *Manager) attachOnce(e layout.Entry, repair bool) (*Lock, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.host.IsLost() {
		return nil, fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	}
	if m.Stopping() {
		return nil, queue.ErrStopped
	}
	lk := m.locks[e.Lock]
	if lk != nil && !lk.Quarantined {
		return lk, nil
	}
	err := m.disk.Quarantined(e.Lock)
	if err != nil && !repair {
		return nil, err
	}
	if lk == nil {
		lk = driver.New(m.host, e)
		m.start(lk)
	}
	lk.Quarantined = err != nil
	return lk, nil
}

// start starts the driver of a lock. Called with mu held.
func (m *Manager) start(lk *Lock) {
	m.locks[lk.Entry.Lock] = lk
	m.drivers.Go(lk.Drive)
}

// drop removes a driver that ends.
func (m *Manager) drop(lk *Lock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[lk.Entry.Lock] == lk {
		delete(m.locks, lk.Entry.Lock)
	}
}

// Locks returns the locks of the directory. It returns ErrUnavailable, the errors of the device, or
// the cause of ctx's end.
func (m *Manager) Locks(ctx context.Context) (*directory.Listing, error) {
	return runDetached(ctx, m, func() (*directory.Listing, error) { return m.dir.List() })
}

// FindExisting returns a lock that was created. It returns ErrInvalid, ErrNoLock, ErrUnavailable,
// ErrDamaged, or an error of the device, on which it may block.
func (m *Manager) FindExisting(ctx context.Context, name string) (*Lock, error) {
	if err := m.validate(&Request{Name: name}); err != nil {
		return nil, err
	}
	e, err := m.lookupNow(ctx, name)
	if err != nil {
		return nil, err
	}
	return m.attach(e)
}
