package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/layout"
)

// An unreadable directory entry is restored by a host that knows it for certain: one that holds the
// lock. No host enters by an entry older than one that any slot shows (NEWEST), so the entry was
// the newest when the lock was granted. No other host removes a lock that this one holds.
//
// This host acquires the directory's lock while it holds the lock, as in a removal. Creating a lock
// takes the directory's lock alone. Therefore two hosts never wait for each other.

// restoreEntries begins to restore the damaged entries of locks that this host has used, and on several
// disks the unsettled entries of all locks. It does nothing if it is running already, or began less than
// a renewal interval ago. It does not wait, because the own slots of those locks may have to be checked
// meanwhile.
func (m *Manager) restoreEntries(damaged []int) {
	damaged = slices.DeleteFunc(slices.Clone(damaged), func(number int) bool {
		return m.knownEntry(number) == nil && !m.disk.Several()
	})
	if len(damaged) == 0 || !m.restoring.CompareAndSwap(false, true) {
		return
	}
	m.drivers.Go(func() {
		defer m.restoring.Store(false)
		again := time.After(m.disk.Times().Renew()) // as often as complaints of other hosts are handled
		// A blocked host complains again. Reading what a removal intended to write takes a fifth of
		// the lease.
		ctx, cancel := context.WithTimeout(context.Background(), m.disk.SB.Lease/2)
		defer cancel()
		unsettled := func(number int) bool {
			_, err := m.dir.Read(number)
			return errors.Is(err, directory.ErrUnsettled)
		}
		if m.disk.Several() && slices.ContainsFunc(damaged, unsettled) {
			if err := m.forwardAll(ctx); err != nil && !m.host.Stopping() {
				m.host.Observer.Trouble("rewriting half-written directory entries failed, retrying when a host needs them", lockspace.DirectoryEntry, "err", err)
			}
			damaged = m.damagedAmong(damaged)
		}
		// so that an entry that takes all the time is not always the first
		for _, i := range rand.Perm(len(damaged)) {
			lk := m.knownEntry(damaged[i])
			if lk == nil {
				continue
			}
			// Superseded: completing a removal has rewritten it.
			if err := m.restoreKnownEntry(ctx, lk); err != nil && !errors.Is(err, driver.ErrSuperseded) && !m.host.Stopping() {
				m.host.Observer.Trouble("restoring a damaged directory entry failed, retrying when a host needs it", lk.Entry, "err", err)
			}
		}
		select {
		case <-again:
		case <-m.stop:
		case <-m.mem.Lost():
		}
	})
}

func (m *Manager) restoreKnownEntry(ctx context.Context, lk *Lock) error {
	h, err := lk.Join(ctx)
	if err != nil {
		return err
	}
	err = m.guarded(ctx, "restore a directory entry", func(guard *Lock) error {
		if ok, err := m.dir.On(guard.Dev()).Readable(lk.Entry.Lock); ok || err != nil {
			return err
		}
		intents, err := m.intents(guard.Dev())
		if err != nil {
			return err
		}
		// A removal that was begun may still be completed.
		if i := slices.IndexFunc(intents, func(i layout.Intent) bool { return i.Lock == lk.Entry.Lock && layout.Entry(i) != lk.Entry }); i >= 0 {
			return fmt.Errorf("%w: another host intends to write creation %d there", check.ErrNotRepaired, intents[i].Creation)
		}
		m.host.Observer.Trouble("directory entry is damaged, restoring it", lk.Entry)
		if err := m.restoreEntry(guard, lk.Entry); err != nil {
			return err
		}
		m.dir.Add(lk.Entry)
		return nil
	})
	return errors.Join(err, h.Release())
}
