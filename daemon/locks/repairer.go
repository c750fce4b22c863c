package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Repairer repairs the directory as a host of the lockspace.
type Repairer struct {
	mgr      *Manager
	progress func(string)
	// this host's slots in the directory's lock, as an earlier incarnation left them
	before []layout.Slot
}

func NewRepairer(m *Manager, progress func(string)) (*Repairer, error) {
	before, err := check.ReadIntents(m.disk.Dev, m.disk.SB, m.mem.ID())
	if err != nil {
		return nil, err
	}
	return &Repairer{mgr: m, progress: progress, before: before}, nil
}

// Ask requests that live hosts restore the entries that they know, and waits up to a lease.
func (r *Repairer) Ask(ctx context.Context, entries []check.Finding) error {
	var damaged []int
	for _, f := range entries {
		damaged = append(damaged, f.Lock)
	}
	for give := time.Now().Add(r.mgr.disk.SB.Lease); time.Now().Before(give); {
		damaged = slices.DeleteFunc(damaged, func(number int) bool { _, err := r.mgr.dir.Read(number); return err == nil })
		up, err := r.mgr.others()
		if err != nil || len(up)*len(damaged) == 0 {
			return err
		}
		r.mgr.complainOfEntries(damaged, true)
		if err := retry.Pause(ctx, r.mgr.disk.Retry()); err != nil {
			return err
		}
	}
	return nil
}

// Entry repairs an unreadable directory entry. done is empty if it was readable again.
func (r *Repairer) Entry(ctx context.Context, number int) (done string, err error) {
	if ok, err := r.mgr.dir.Readable(number); ok || err != nil {
		return "", err // another host has restored it
	}
	if _, err := r.mgr.dir.Read(number); errors.Is(err, directory.ErrUnsettled) {
		return "rewriting it as its newest copy shows it", r.mgr.forwardAll(ctx)
	}
	plan, err := check.PlanEntryRepair(r.mgr.disk.Dev, r.mgr.disk.SB, number, r.mgr.mem.ID(), r.before, nil)
	if err != nil {
		return "", err
	}
	if plan.Err == nil && plan.Entry.Free() {
		// before acquiring the directory's lock: it may take a lease
		if err := r.mgr.awaitAlone(ctx, r.progress); err != nil {
			if ok, _ := r.mgr.dir.Readable(number); ok {
				return "", nil // restored meanwhile
			}
			return "", err
		}
	}
	err = r.mgr.guarded(ctx, "repair the directory", func(guard *Lock) error {
		done, err = r.guarded(guard, number)
		return err
	})
	return done, err
}

// guarded repairs the entry under the directory's lock: now only dead hosts may have a write of it
// in flight.
func (r *Repairer) guarded(guard *Lock, number int) (done string, err error) {
	m := r.mgr
	if ok, err := m.dir.On(guard.Dev()).Readable(number); ok || err != nil {
		return "", err
	}
	plan, err := check.PlanEntryRepair(guard.Dev(), m.disk.SB, number, m.mem.ID(), r.before, m.others)
	if err != nil {
		return "", err
	}
	if plan.Err != nil {
		return "", plan.Err
	}
	at := m.disk.SB.Geometry.Entry(number)
	r.progress(fmt.Sprintf("directory entry of lock %d at byte %d: %s", number, at, plan.What))
	if plan.Entry.Free() {
		if err := m.mark(plan.Entry); err != nil {
			return "", err
		}
	}
	if err := m.restoreEntry(guard, plan.Entry); err != nil {
		return "", err
	}
	return plan.What, nil
}

// restoreEntry writes an entry over an unreadable one, under the directory's lock.
func (m *Manager) restoreEntry(guard *Lock, e layout.Entry) error {
	if err := m.put(guard, e, false); err != nil {
		return err
	}
	if found, err := m.dir.On(guard.Dev()).Read(e.Lock); err != nil || found != e {
		return errors.Join(err, fmt.Errorf("%w: directory entry of lock %d", format.ErrVerify, e.Lock))
	}
	return nil
}

// mark writes a slot in the entry's place that shows the creation id of the new entry.
func (m *Manager) mark(e layout.Entry) error {
	e.Permits = 1 // the machine requires one
	lk, err := m.attach(e)
	if err != nil {
		return err
	}
	return lk.WithSlot(func(s SlotTx) error { return s.Publish(func(*layout.Slot) {}) })
}

// others returns the other hosts that may be up, by a read of the host table that begins now.
func (m *Manager) others() (up []string, err error) {
	hosts, _, err := m.mem.ReadHosts()
	if err != nil {
		return nil, err
	}
	known, _ := m.mem.Known()
	for i, h := range hosts {
		// A joiner has read no entry, and its earlier incarnations are over once it is settled.
		switch over := h.Readable && !h.Unsettled && (h.Gone || known[i].State == layout.StateJoining); {
		case over || i+1 == m.mem.ID():
		case !h.Readable:
			up = append(up, fmt.Sprintf("host %d, whose record cannot be read,", i+1))
		default:
			up = append(up, text.HostName(i+1, known[i].Name))
		}
	}
	return up, nil
}

// awaitAlone waits until every other host is known to be dead or to have left, at most as long as
// that takes. A host that renews meanwhile is up.
func (m *Manager) awaitAlone(ctx context.Context, progress func(string)) error {
	before, _ := m.mem.Known()
	longest := m.disk.Times().Dead() + m.disk.Times().Alive()
	for _, h := range before {
		longest = max(longest, m.disk.Times().Dead()+m.disk.Times().Alive()+h.Watchdog)
	}
	told := false
	for give := time.Now().Add(longest); ; {
		up, err := m.others()
		if err != nil || len(up) == 0 {
			return err
		}
		now, _ := m.mem.Known()
		for i, h := range now {
			if i+1 != m.mem.ID() && !h.Gone && h.Incarnation != 0 && (i >= len(before) || h.Incarnation != before[i].Incarnation || h.Sequence != before[i].Sequence) {
				return check.RefuseWhileUp(text.HostName(i+1, h.Name))
			}
		}
		if time.Now().After(give) {
			return check.RefuseWhileUp(up[0])
		}
		if !told {
			told = true
			progress(fmt.Sprintf("waiting up to %v to make sure that no other host is up: %s", longest.Round(time.Second), up[0]))
		}
		if err := retry.Pause(ctx, m.disk.Retry()); err != nil {
			return err
		}
	}
}
