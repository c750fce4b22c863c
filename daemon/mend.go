package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/layout"
)

// A directory entry that cannot be read is restored by a host that knows for certain what it was: one that holds the
// lock. Nobody enters by an entry older than one that any slot tells of (NEWEST), so as the lock was granted its
// entry was the newest; and nobody removes a lock that another host holds.
//
// The lock is held while the directory's lock is asked for, as in a removal; to make a lock takes the latter alone. So
// nobody waits for one who waits for him.

// mendEntries begins to restore those of the damaged entries that this host has used the locks of, unless that is under
// way, or was begun a moment ago. It is not waited for: the own slots of those locks may have to be looked at meanwhile.
func (d *Daemon) mendEntries(damaged []int) {
	damaged = slices.DeleteFunc(slices.Clone(damaged), func(number int) bool { return d.knownEntry(number) == nil })
	if len(damaged) == 0 || !d.mending.CompareAndSwap(false, true) {
		return
	}
	d.drivers.Go(func() {
		defer d.mending.Store(false)
		again := time.After(d.times().Renew()) // as often as others are heeded
		// Whoever is held up asks again. To find out what a removal was about to write takes a fifth of the lease.
		ctx, cancel := context.WithTimeout(context.Background(), d.sb.Lease/2)
		defer cancel()
		for _, i := range rand.Perm(len(damaged)) { // one that takes all the time is not always the first
			number := damaged[i]
			lk := d.knownEntry(number)
			if lk == nil {
				continue
			}
			// Superseded: it was written anew, as a removal was completed.
			if err := d.mendEntry(ctx, lk); err != nil && !errors.Is(err, errSuperseded) && !d.stopping() {
				d.log.Warn("restoring a damaged directory entry failed, retrying when somebody needs it", "lock", lk.entry.Name, "err", err)
			}
		}
		select {
		case <-again:
		case <-d.stop:
		case <-d.mem.lost:
		}
	})
}

func (d *Daemon) mendEntry(ctx context.Context, lk *lock) error {
	h, err := lk.join(ctx)
	if err != nil {
		return err
	}
	err = d.guarded(ctx, "restore a directory entry", func(guard *lock) error {
		if ok, err := d.dir.on(guard.dev).readable(lk.entry.Lock); ok || err != nil {
			return err
		}
		intents, err := d.intents(guard.dev)
		if err != nil {
			return err
		}
		// A removal that was begun may yet come about.
		if i := slices.IndexFunc(intents, func(i layout.Intent) bool { return i.Lock == lk.entry.Lock && layout.Entry(i) != lk.entry }); i >= 0 {
			return fmt.Errorf("%w: another host was about to write creation %d there", check.ErrNotRepaired, intents[i].Creation)
		}
		d.log.Warn("directory entry is damaged, restoring it", "lock", lk.entry.Name, "number", lk.entry.Lock)
		if err := d.restoreEntry(guard, lk.entry); err != nil {
			return err
		}
		d.dir.add(lk.entry)
		return nil
	})
	return errors.Join(err, h.Release())
}

// join takes part in a hold of this host, whoever has it, or takes the lock.
func (lk *lock) join(ctx context.Context) (*Hold, error) {
	req := Request{Name: lk.entry.Name, Mode: layout.Exclusive, PID: os.Getpid(), Command: "restore the lock's directory entry"}
	lk.mu.Lock()
	if len(lk.holds) > 0 && lk.closed == nil {
		of := lk.holds[0]
		req.Mode = of.req.Mode
		h := &Hold{lk: lk, req: req, token: of.token, since: time.Now(), released: make(chan struct{}), joined: true}
		lk.holds = append(lk.holds, h)
		lk.mu.Unlock()
		return h, nil
	}
	lk.mu.Unlock()
	w, err := lk.enqueue(req)
	if err != nil {
		return nil, err
	}
	return lk.await(ctx, w)
}
