package measuring

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// MaxFloorRounds is the limit of rounds in one call of Floor: no client gets the lock meanwhile.
const MaxFloorRounds = 1000

// Floor is the time that the device takes for the IO of acquiring a free lock and releasing it.
type Floor struct {
	Slots  int          `json:"slots"`  // number of slots that are read at once
	Rounds []FloorRound `json:"rounds"` // in the order of the measurement
}

// FloorRound is the duration of the three IOs of one round.
type FloorRound struct {
	Claim   time.Duration `json:"claim_ns"`   // the first write of the own slot
	Look    time.Duration `json:"look_ns"`    // the read of all slots
	Release time.Duration `json:"release_ns"` // the second write of the own slot
}

// Whole returns the duration of the round.
func (r FloorRound) Whole() time.Duration { return r.Claim + r.Look + r.Release }

// Floor has the driver of an existing lock issue these IOs; in between it only encodes the slot.
// They write the own slot as it is, so other hosts see no more than a rewritten slot. Floor returns
// ErrInvalid, ErrNoLock, ErrUnavailable, ErrDamaged, errors of IO, or the cause of ctx's end.
func (m *Meter) Floor(ctx context.Context, name string, rounds int) (*Floor, error) {
	if rounds < 1 || rounds > MaxFloorRounds {
		return nil, fmt.Errorf("%w: rounds %d, want 1 to %d", api.ErrInvalid, rounds, MaxFloorRounds)
	}
	return detached(ctx, m, func(ctx context.Context) (*Floor, error) {
		lk, err := m.locks.FindExisting(ctx, name)
		if err != nil {
			return nil, err
		}
		f := &Floor{Rounds: make([]FloorRound, 0, rounds)}
		if err := lk.WithSlot(func(slot locks.SlotTx) error { return m.floor(ctx, lk, slot, rounds, f) }); err != nil {
			return nil, fmt.Errorf("floor of lock %q: %w", name, err)
		}
		return f, nil
	})
}

// unchanged makes the protocol publish a slot as it is.
func unchanged(*layout.Slot) {}

// floor measures the rounds of Floor.
func (m *Meter) floor(ctx context.Context, lk *locks.Lock, slot locks.SlotTx, rounds int, f *Floor) error {
	// The first write shows the slot as the protocol has it, and warms up the device.
	if err := slot.Publish(unchanged); err != nil {
		return err
	}
	g := m.disk.SB.Geometry
	f.Slots = m.locks.SlotCount()
	slots := lockspace.Pool.Get(f.Slots * g.Stride)
	defer lockspace.Pool.Put(slots)
	write := func() (time.Duration, error) {
		took, err := slot.Rewrite()
		if err != nil { // the slot may be torn, and other hosts wait for an unreadable slot
			return 0, cmp.Or(slot.Publish(unchanged), err)
		}
		return took, nil
	}
	for len(f.Rounds) < rounds {
		var r FloorRound
		err := m.awaitLease(ctx)
		if err == nil {
			r.Claim, err = write()
		}
		if err != nil {
			return err
		}
		begun := time.Now()
		err = slot.Dev().Read(slots, g.Slot(lk.Entry.Lock, 1))
		r.Look = time.Since(begun)
		if err != nil {
			return err
		}
		if ok, _ := m.mem.MayWrite(m.disk.Clock.Now()); !ok {
			continue
		}
		if r.Release, err = write(); err != nil {
			return err
		}
		f.Rounds = append(f.Rounds, r)
	}
	return nil
}

// awaitLease blocks until a slot may be written. It returns the cause if ctx ends first, as it does
// with the lease.
func (m *Meter) awaitLease(ctx context.Context) error {
	for {
		ok, changed := m.mem.MayWrite(m.disk.Clock.Now())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
