package daemon

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Create makes a lock for so many exclusive holders at once (0: one). One that
// is there already, with as many, is left as it is: created is false then. It
// returns ErrInvalid, ErrPermits, ErrFull, ErrUnavailable, ErrDamaged, or the
// cause of ctx's end; by then nothing has changed, or the lock is being made.
func (d *Daemon) Create(ctx context.Context, name string, permits int) (e layout.Entry, created bool, err error) {
	permits = cmp.Or(permits, 1)
	if err := d.validate(&Request{Name: name, Permits: permits}); err != nil {
		return e, false, err
	}
	type made struct {
		e       layout.Entry
		created bool
	}
	m, err := patiently(ctx, d, func() (m made, err error) {
		s, err := d.dir.scan() // what is remembered may have been removed
		if err != nil {
			return m, err
		}
		var found bool
		if m.e, found = s.find(name); !found {
			m.e, m.created, err = d.create(ctx, name, permits)
		}
		if err == nil {
			err = agree(m.e, permits)
		}
		return m, err
	})
	return m.e, m.created, err
}

// agree tells whether a lock has the permits that are asked for; 0: any.
func agree(e layout.Entry, permits int) error {
	if permits == 0 || permits == e.Permits {
		return nil
	}
	return fmt.Errorf("%w: lock %q has %d, asked for %d", api.ErrPermits, e.Name, e.Permits, permits)
}

// guarded does something under the lock that guards the directory. It must
// not wait for any other lock: those who remove one wait for this one.
func (d *Daemon) guarded(ctx context.Context, what string, f func(guard *lock) error) error {
	guard, err := d.attach(lockspace.DirectoryEntry)
	if err != nil {
		return err
	}
	w, err := guard.enqueue(Request{Mode: layout.Exclusive, Command: what})
	if err != nil {
		return err
	}
	h, err := guard.await(ctx, w)
	if err != nil {
		return err
	}
	err = f(guard)
	if released := h.Release(); err == nil && released != nil {
		err = released
	}
	if err != nil {
		select {
		case d.stayed <- struct{}{}: // an intent, perhaps
		default:
		}
	}
	return err
}

// create makes a lock, unless somebody else is faster. Permits that are not
// given are one.
func (d *Daemon) create(ctx context.Context, name string, permits int) (e layout.Entry, created bool, err error) {
	err = d.guarded(ctx, "create a lock", func(guard *lock) error {
		e, created, err = d.createGuarded(guard, name, permits)
		return err
	})
	if err != nil {
		return e, false, fmt.Errorf("create lock %q: %w", name, err)
	}
	return e, created, nil
}

func (d *Daemon) createGuarded(guard *lock, name string, permits int) (e layout.Entry, created bool, err error) {
	if err := d.carryOut(guard); err != nil {
		return e, false, err
	}
	// Before the entries: an intent that is gone was carried out by then, or never is.
	intents, failed := d.intents(guard.dev)
	s, err := d.dir.on(guard.dev).scan()
	if err != nil {
		return e, false, err
	}
	if e, ok := s.find(name); ok {
		return e, false, nil // somebody was faster
	}
	// The name may be in what cannot be read; made anew elsewhere, two hosts
	// could hold it at once. Nobody is writing the entry now: it is damaged.
	if s.damaged != nil {
		d.complainOfEntries(s.bad, true)
		return e, false, fmt.Errorf("%w: lock %q is not in its readable part: %w", api.ErrDamaged, name, s.damaged)
	}
	if failed != nil {
		return e, false, failed
	}
	e, err = d.place(guard.dev, s, intents, layout.Entry{
		Name: name, Permits: max(permits, 1), Creation: d.clockNumber(),
	})
	if err == nil {
		err = agree(e, permits) // it may be what a dead host was about to make
	}
	if err != nil {
		return e, false, err
	}
	if err := d.put(guard, e); err != nil {
		return e, false, err
	}
	d.dir.add(e)
	d.log.Info("lock created", "lock", name, "number", e.Lock, "permits", e.Permits)
	return e, true, nil
}

// put writes an entry, with an intent before it. If the write fails the intent
// stays, for the write may yet land.
func (d *Daemon) put(guard *lock, e layout.Entry) error {
	if err := guard.intend(e); err != nil {
		return err
	}
	if err := d.writeEntry(guard.dev, e); err != nil {
		return err
	}
	return guard.intended()
}

// place returns the entry to write for a new lock: the very one that a dead
// host may still write for the same name, or one that nobody else writes.
func (d *Daemon) place(dev blockdev.Device, s *scan, intents []layout.Intent, e layout.Entry) (layout.Entry, error) {
	at := make(map[int]layout.Entry, len(s.entries))
	for _, o := range s.entries {
		at[o.Lock] = o
		e.Creation = above(e.Creation, o.Creation)
	}
	taken, name := map[int]bool{}, layout.Entry{}
	for _, i := range intents {
		taken[i.Lock] = true
		e.Creation = above(e.Creation, i.Creation)
		// One that landed late itself has no write behind it. Its place may have been given to another
		// lock by then: that one stays.
		if o := at[i.Lock]; i.Name != e.Name || !o.Free() || o.Creation >= i.Creation {
			continue
		}
		if !name.Free() && name != layout.Entry(i) {
			return e, fmt.Errorf("%w: two hosts that are dead were about to create lock %q, as numbers %d and %d; start bakeryd on one of them",
				api.ErrUnavailable, e.Name, name.Lock, i.Lock)
		}
		name = layout.Entry(i)
	}
	if !name.Free() {
		return name, nil
	}
	for _, o := range s.entries {
		if o.Free() && !taken[o.Lock] {
			e.Lock = o.Lock
			break
		}
	}
	if e.Lock == 0 {
		return e, fmt.Errorf("%w: all %d entries are taken, no room for lock %q", api.ErrFull, d.sb.Geometry.Locks, e.Name)
	}
	// A slot may tell of a creation that the entry no longer does: two removed it, and the write of the
	// earlier one, who died, landed last.
	views, err := newArea(dev, d.sb.Space(), e.Lock, d.mem.id()).read(d.mem.highest())
	if err != nil {
		return e, err
	}
	for _, v := range views {
		e.Creation = above(e.Creation, v.Slot.Creation)
	}
	if e.Creation >= layout.MaxNumber { // an intent that nobody could read would keep everybody from making locks
		return e, fmt.Errorf("%w: no numbers are left for lock %q: a record has one that no clock can have shown; only bakeryctl format helps",
			api.ErrDamaged, e.Name)
	}
	return e, nil
}

// above is the least creation, from the one given on, that is above another.
func above(creation, other uint64) uint64 { return max(creation, other+1) }

// entryTries is how often the write of an entry is tried.
const entryTries = 10

// WriteEntry writes an entry. A write that failed may have left half of it,
// beside which nobody could make a lock any more: so it is repeated.
func (d *Daemon) writeEntry(dev blockdev.Device, e layout.Entry) (err error) {
	buf := lockspace.Pool.Get(d.sb.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	if err := d.sb.Space().EncodeEntry(buf, e); err != nil {
		return err
	}
	for range entryTries {
		if ok, _ := d.mem.mayWrite(); !ok {
			return fmt.Errorf("write the directory entry of lock %d: %w: the lease is running out", e.Lock, api.ErrUnavailable)
		}
		if err = dev.Write(buf, d.sb.Geometry.Entry(e.Lock)); err == nil {
			return nil
		}
		d.log.Warn("writing a directory entry failed, retrying", "number", e.Lock, "lock", e.Name, "err", err)
		select {
		case <-time.After(d.retry()):
		case <-d.mem.lost:
		}
	}
	return fmt.Errorf("write the directory entry of lock %d: %w", e.Lock, err)
}
