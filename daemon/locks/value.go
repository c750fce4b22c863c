package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/layout"
)

// Value is what a holder of a lock left for others to read. It survives its writer:
// layout/FORMAT.md defines which of the slots' values it is.
type Value struct {
	Name  string `json:"name"`
	Value []byte `json:"value" jsonschema:"nullable"` // nil if none
	// Token under which it was written or cleared; 0 if never
	Token    layout.Ticket `json:"token"`
	Host     int           `json:"host"`      // host that did that; 0 if none
	HostName string        `json:"host_name"` // of the host that has that id now; empty if unknown
}

// Value reads the value of a lock from the disk. The read begins after the call, so it returns what
// was set before the call, or later.
//
// It returns ErrInvalid, ErrNoLock, ErrUnreadable if a slot that may have a
// later value stays unreadable, ErrDamaged, ErrUnavailable, or the cause of
// ctx's end.
func (m *Manager) Value(ctx context.Context, name string) (Value, error) {
	if err := layout.ValidateLockName(name); err != nil {
		return Value{}, fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a read that is left behind ends with its IO
	return runDetached(ctx, m, func() (Value, error) { return m.readValue(ctx, name) })
}

// readValue reads the slots between two reads of the entry, because the lock may be removed
// meanwhile.
func (m *Manager) readValue(ctx context.Context, name string) (Value, error) {
	for {
		e, err := m.lookupNow(ctx, name)
		if err != nil {
			return Value{}, err
		}
		slots, err := m.readAllSlots(ctx, m.disk.Dev, e.Lock)
		if errors.Is(err, api.ErrUnreadable) {
			err = fmt.Errorf("value of lock %q: %w", name, err)
		}
		if err != nil {
			return Value{}, err
		}
		now, err := m.lookupNow(ctx, name)
		if err != nil {
			return Value{}, err
		}
		if now == e {
			v := latestValue(e, slots)
			if err := m.keepValue(e, v); !errors.Is(err, driver.ErrSuperseded) {
				v.HostName = m.disk.HostName(v.Host)
				return v, err
			}
		}
		if err := retry.Pause(ctx, m.disk.Retry()); err != nil {
			return Value{}, context.Cause(ctx)
		}
	}
}

// keepValue shows a value in the own slot, with several disks and while a client of this host has the
// lock, before a client learns of it. The write of a value may have been left half done: later
// reads return it or not. A holder that acts by it makes it last.
//
//	A (dead; holder of 5)         B (holder of 6)               C (holder of 7)
//	writes value 5: one disk of three
//	                              reads value 5; acts by it
//	                                                            reads value 4
func (m *Manager) keepValue(e layout.Entry, v Value) error {
	if v.Token == 0 || !m.disk.SB.Members.Several() {
		return nil
	}
	if lk := m.attached(e.Lock); lk != nil && lk.Entry == e {
		return lk.KeepValue(v.Value, v.Token)
	}
	return nil
}

// latestValue returns the value with the highest token.
func latestValue(e layout.Entry, slots []layout.Slot) Value {
	v := Value{Name: e.Name}
	for _, s := range slots {
		if s.ValueOf(e.Creation) && s.ValueToken > v.Token {
			v.Value, v.Token, v.Host = s.Value, s.ValueToken, s.ValueToken.Host() // another slot may show it, too
		}
	}
	return v
}

// SnapshotValue returns the value of a lock in the snapshot. It returns ErrInvalid, ErrNoLock, or
// ErrUnreadable if a record that may have it is damaged.
func SnapshotValue(s *lockspace.Snapshot, name string) (Value, error) {
	if err := layout.ValidateLockName(name); err != nil {
		return Value{}, fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	i := slices.IndexFunc(s.Entries, func(e layout.Entry) bool { return e.Name == name })
	for _, r := range s.Damaged {
		if i < 0 && r.Kind == lockspace.KindEntry || i >= 0 && r.Kind == lockspace.KindSlot && r.Lock == s.Entries[i].Lock {
			return Value{}, fmt.Errorf("%w: value of lock %q: %s: %w", api.ErrUnreadable, name, r.Describe(), r.Err)
		}
	}
	if i < 0 {
		return Value{}, fmt.Errorf("%w: %q", api.ErrNoLock, name)
	}
	e := s.Entries[i]
	v := latestValue(e, slices.DeleteFunc(slices.Clone(s.Slots), func(r layout.Slot) bool { return r.Lock != e.Lock }))
	for _, h := range s.Hosts {
		if h.ID == v.Host {
			v.HostName = h.Name
		}
	}
	return v, nil
}

// readAllSlots reads every slot of a lock, and unreadable ones up to store.SlotTries times, because they
// may be being written. Each slot is as it was at some time since the call. It returns
// ErrUnreadable, naming the host.
func (m *Manager) readAllSlots(ctx context.Context, dev blockdev.Device, lock int) ([]layout.Slot, error) {
	var slots []layout.Slot
	var bad []error
	for try := 1; ; try++ {
		before, wrong := slots, bad
		var err error
		if slots, bad, err = m.disk.ReadSlots(dev, lock, max(len(before), m.SlotCount())); err != nil {
			return nil, err
		}
		for i, s := range before {
			if wrong[i] == nil {
				slots[i], bad[i] = s, nil
			}
		}
		first := -1
		for i, err := range slices.Backward(bad) {
			if err != nil {
				first = i
				m.mem.HeldUp(layout.Complaint{Host: i + 1, Lock: lock}, false)
			}
		}
		switch {
		case first < 0:
			return slots, nil
		case try == store.SlotTries:
			return nil, fmt.Errorf("%w (start bakeryd on host %d, which rewrites it): %w", api.ErrUnreadable, first+1, bad[first])
		}
		if err := retry.Pause(ctx, m.disk.Retry()); err != nil {
			return nil, context.Cause(ctx)
		}
	}
}
