package measuring

import (
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
	Slots  int          `json:"slots"` // number of slots that are read at once
	Rounds []FloorRound `json:"rounds"`
}

// FloorRound is the duration of the three IOs of one round.
type FloorRound struct {
	Claim   time.Duration `json:"claim_ns"` // the first write of the own slot
	Look    time.Duration `json:"look_ns"`  // the read of all slots
	Release time.Duration `json:"release_ns"`
}

// Whole returns the duration of the round.
func (r FloorRound) Whole() time.Duration { return r.Claim + r.Look + r.Release }

// Floor has the driver of an existing lock issue these IOs with nothing in between. They write the
// own slot as it is, so other hosts see no more than a rewritten slot. Floor returns ErrInvalid,
// ErrNoLock, ErrUnavailable, ErrDamaged, errors of IO, or the cause of ctx's end.
func (m *Meter) Floor(ctx context.Context, name string, rounds int) (*Floor, error) {
	if rounds < 1 || rounds > MaxFloorRounds {
		return nil, fmt.Errorf("%w: rounds %d, want 1 to %d", api.ErrInvalid, rounds, MaxFloorRounds)
	}
	return detached(ctx, m, func() (*Floor, error) {
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

// floor measures the rounds of Floor.
func (m *Meter) floor(ctx context.Context, lk *locks.Lock, slot locks.SlotTx, rounds int, f *Floor) error {
	// The first write shows the slot as the protocol has it, and warms up the device.
	if err := slot.Publish(func(*layout.Slot) {}); err != nil {
		return err
	}
	g := m.disk.SB.Geometry
	f.Slots = m.locks.SlotCount()
	r := floorRequests{Meter: m, slot: slot, number: lk.Entry.Lock,
		claim: lockspace.Pool.Get(g.Stride), release: lockspace.Pool.Get(g.Stride), slots: lockspace.Pool.Get(f.Slots * g.Stride)}
	defer func() { lockspace.Pool.Put(r.claim); lockspace.Pool.Put(r.release); lockspace.Pool.Put(r.slots) }()
	for len(f.Rounds) < rounds {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		round, whole, err := r.round()
		if err != nil {
			return err
		}
		if whole {
			f.Rounds = append(f.Rounds, round)
		}
	}
	return nil
}

// floorRequests are the encoded IOs of one round.
type floorRequests struct {
	*Meter
	slot                  locks.SlotTx
	number                int // of the lock
	claim, release, slots []byte
}

// round issues the IOs. whole is false if the lease had no time for all of them.
func (r *floorRequests) round() (t FloorRound, whole bool, err error) {
	own, dev := r.slot.Own(), r.slot.Dev()
	claimed, released := own, own
	claimed.Sequence, released.Sequence = own.Sequence+1, own.Sequence+2
	space := r.disk.SB.Space()
	if err := space.EncodeSlot(r.claim, claimed); err != nil {
		return t, false, fmt.Errorf("encode slot: %w", err)
	}
	if err := space.EncodeSlot(r.release, released); err != nil {
		return t, false, fmt.Errorf("encode slot: %w", err)
	}
	if err := r.awaitLease(); err != nil {
		return t, false, err
	}
	mine, all := space.Geometry.Slot(r.number, r.mem.ID()), space.Geometry.Slot(r.number, 1)
	if t.Claim, err = r.time(func() error { return dev.Write(r.claim, mine) }); err != nil {
		return t, false, r.rewrite(err)
	}
	r.slot.Wrote(claimed)
	if t.Look, err = r.time(func() error { return dev.Read(r.slots, all) }); err != nil {
		return t, false, err
	}
	if ok, _ := r.mem.MayWrite(); !ok {
		return t, false, nil
	}
	if t.Release, err = r.time(func() error { return dev.Write(r.release, mine) }); err != nil {
		return t, false, r.rewrite(err)
	}
	r.slot.Wrote(released)
	return t, true, nil
}

func (r *floorRequests) time(request func() error) (time.Duration, error) {
	begun := time.Now()
	err := request()
	return time.Since(begun), err
}

// rewrite writes the slot after a write that failed: that may have torn it, and other hosts wait for
// an unreadable slot.
func (r *floorRequests) rewrite(failed error) error {
	if err := r.slot.Publish(func(*layout.Slot) {}); err != nil {
		return err
	}
	return failed
}

// awaitLease blocks until a slot may be written. It returns ErrLeaseLost if the lease is lost
// first.
func (m *Meter) awaitLease() error {
	for {
		ok, changed := m.mem.MayWrite()
		select {
		case <-m.mem.Lost():
			return api.ErrLeaseLost
		default:
		}
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-m.mem.Lost():
			return api.ErrLeaseLost
		}
	}
}
