package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/layout"
)

// Create creates a lock with the given number of permits (0: one). created is false if the lock
// exists with as many permits; it is left as it is. Create returns ErrInvalid, ErrPermits, ErrFull,
// ErrUnavailable, ErrDamaged, or the cause of ctx's end. In the last case the lock may still be
// created.
func (m *Manager) Create(ctx context.Context, name string, permits int) (e layout.Entry, created bool, err error) {
	permits = cmp.Or(permits, 1)
	if err := m.validate(&Request{Name: name, Permits: permits}); err != nil {
		return e, false, err
	}
	type made struct {
		e       layout.Entry
		created bool
	}
	out, err := runDetached(ctx, m, func() (out made, err error) {
		s, err := m.dir.Scan() // the entry in memory may have been removed
		if err != nil {
			return out, err
		}
		var found bool
		if out.e, found = s.Find(name); !found {
			out.e, out.created, err = m.create(ctx, name, permits)
		}
		if err == nil {
			err = agree(out.e, permits)
		}
		return out, err
	})
	return out.e, out.created, err
}

// agree returns ErrPermits if a lock does not have the requested permits; 0 requests any.
func agree(e layout.Entry, permits int) error {
	if permits == 0 || permits == e.Permits {
		return nil
	}
	return fmt.Errorf("%w: lock %q has %d, asked for %d", api.ErrPermits, e.Name, e.Permits, permits)
}

// guarded calls f while this host holds the directory's lock, after it has written the entry that it
// intended and did not write. f must not wait for any other lock, because a host that removes a lock
// waits for this one.
func (m *Manager) guarded(ctx context.Context, what string, f func(guard *Lock) error) error {
	return m.guardedHold(ctx, what, func(h *Hold) error { return f(h.Lock()) })
}

// guardedHold is guarded for a function that needs the hold.
func (m *Manager) guardedHold(ctx context.Context, what string, f func(h *Hold) error) error {
	if err := m.awaitReturned(ctx); err != nil {
		return err
	}
	guard, err := m.attach(lockspace.DirectoryEntry)
	if err != nil {
		return err
	}
	h := guard.NewHold(Request{Mode: layout.Exclusive, Command: what}, false)
	if err = h.Acquire(ctx); err != nil {
		return err
	}
	if err = m.carryOut(guard); err == nil {
		err = f(h)
	}
	err = cmp.Or(err, h.Release())
	if err != nil || m.kept.Load() != 0 {
		m.checkIntent()
	}
	return err
}

// create creates a lock unless another host has just done so. Permits 0 means one.
func (m *Manager) create(ctx context.Context, name string, permits int) (e layout.Entry, created bool, err error) {
	err = m.guarded(ctx, "create a lock", func(guard *Lock) error {
		e, created, err = m.createGuarded(guard, name, permits)
		return err
	})
	return e, created && err == nil, err
}

func (m *Manager) createGuarded(guard *Lock, name string, permits int) (e layout.Entry, created bool, err error) {
	// Before the entries: an intent that is gone was carried out by then, or will never be.
	intents, failed := m.intents(guard.Dev())
	s, err := m.scanGuarded(guard, name)
	if err != nil {
		return e, false, err
	}
	// Another host may have been faster. If a name that may be in an unreadable entry were created
	// elsewhere, two hosts could hold it at the same time. No host is writing the entry now, so it is
	// damaged.
	if e, err := m.findIn(s, name, true); !errors.Is(err, api.ErrNoLock) {
		return e, false, err
	}
	if failed != nil {
		return e, false, failed
	}
	e, err = m.place(guard.Dev(), s, intents, layout.Entry{
		Name: name, Permits: max(permits, 1), Creation: m.host.ClockNumber(),
	})
	if err == nil {
		err = agree(e, permits) // the entry may be the one that a dead host intended
	}
	if err == nil {
		err = m.put(guard, e, false)
	}
	if err != nil {
		return e, false, err
	}
	m.dir.Add(e)
	m.host.Observer.Noted("lock created", e, "permits", e.Permits)
	return e, true, nil
}

// scanGuarded reads the directory under its lock. If the name is not in it, it makes all entries settled
// first.
func (m *Manager) scanGuarded(guard *Lock, name string) (*directory.Scan, error) {
	s, err := m.dir.On(guard.Dev()).Scan()
	if err != nil {
		return nil, err
	}
	if _, found := s.Find(name); found {
		return s, nil
	}
	return m.forward(guard, s)
}

// put writes an entry, after an intent. If the write fails the intent stays, because the write may
// still land. It stays as well while a copy on one of several disks is in flight. The directory's lock
// is released meanwhile, and this host can write no other entry: RETURNED. binds is as in Lock.Intend.
func (m *Manager) put(guard *Lock, e layout.Entry, binds bool) error {
	if err := m.returned(0); err != nil {
		return err
	}
	m.kept.Store(0)
	e, err := guard.Intend(e, binds)
	if err != nil {
		return err
	}
	if err := m.writeEntry(guard.Dev(), e); err != nil {
		return err
	}
	if m.disk.Several() {
		m.kept.Store(int32(e.Lock))
		if m.returned(m.disk.Times().Budget()) != nil {
			return nil
		}
	}
	return m.intended(guard)
}

// place returns the entry to write for a new lock: the one that a dead host may still write for the
// same name, or one that no other host writes.
func (m *Manager) place(dev blockdev.Device, s *directory.Scan, intents []layout.Intent, e layout.Entry) (layout.Entry, error) {
	at := make(map[int]layout.Entry, len(s.Entries))
	for _, o := range s.Entries {
		at[o.Lock] = o
		e.Creation = above(e.Creation, o.Creation)
	}
	taken, name := map[int]bool{}, layout.Entry{}
	for _, i := range intents {
		taken[i.Lock] = true
		e.Creation = above(e.Creation, i.Creation)
		// No write follows an intent that itself landed late. Its place may have been given to
		// another lock by then; that lock stays.
		if o := at[i.Lock]; i.Name != e.Name || !o.Free() || o.Creation >= i.Creation {
			continue
		}
		if !name.Free() && name != layout.Entry(i) {
			return e, fmt.Errorf("%w: two dead hosts were about to create lock %q, as numbers %d and %d; start bakeryd on one of them",
				api.ErrUnavailable, e.Name, name.Lock, i.Lock)
		}
		name = layout.Entry(i)
	}
	if !name.Free() {
		return name, nil
	}
	room := slices.IndexFunc(s.Entries, func(o layout.Entry) bool { return o.Free() && !taken[o.Lock] })
	if room < 0 {
		return e, fmt.Errorf("%w: all %d entries are taken, no room for lock %q", api.ErrFull, m.disk.SB.Geometry.Locks, e.Name)
	}
	e.Lock = s.Entries[room].Lock
	// A slot may show a creation id that the entry does not show any more: two hosts removed it,
	// the first one died, and its write landed last.
	slots, _, err := m.disk.ReadSlots(dev, e.Lock, m.SlotCount())
	if err != nil {
		return e, err
	}
	for _, s := range slots {
		e.Creation = above(e.Creation, s.Creation)
	}
	// an intent that no host can decode would keep all hosts from creating locks
	if e.Creation >= layout.MaxNumber {
		return e, fmt.Errorf("%w: no numbers are left for lock %q: a record has a number that no clock can show; only bakeryctl format helps",
			api.ErrDamaged, e.Name)
	}
	return e, nil
}

// above returns the least creation id that is at least creation and above other.
func above(creation, other uint64) uint64 { return max(creation, other+1) }

// entryTries is how often the write of an entry is tried.
const entryTries = 10

// writeEntry writes an entry. It retries a failed write, because that may have torn the entry, and
// no lock can be created while an entry is unreadable.
func (m *Manager) writeEntry(dev blockdev.Device, e layout.Entry) (err error) {
	buf := lockspace.Pool.Get(m.disk.SB.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	if err := m.disk.SB.Space().EncodeEntry(buf, e); err != nil {
		return err
	}
	for range entryTries {
		if ok, _ := m.mem.MayWrite(m.disk.Clock.Now()); !ok {
			return fmt.Errorf("write the directory entry of lock %d: %w: the lease is about to end", e.Lock, api.ErrUnavailable)
		}
		if err = dev.Write(buf, m.disk.SB.Geometry.Entry(e.Lock)); err == nil {
			return nil
		}
		m.host.Observer.Trouble("writing a directory entry failed, retrying", e, "err", err)
		m.host.Pause(m.disk.Retry())
	}
	return fmt.Errorf("write the directory entry of lock %d: %w", e.Lock, err)
}
