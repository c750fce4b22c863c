package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
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
func (m *Manager) Floor(ctx context.Context, name string, rounds int) (*Floor, error) {
	if err := m.validate(&Request{Name: name}); err != nil {
		return nil, err
	}
	if rounds < 1 || rounds > MaxFloorRounds {
		return nil, fmt.Errorf("%w: rounds %d, want 1 to %d", api.ErrInvalid, rounds, MaxFloorRounds)
	}
	return runDetached(ctx, m, func() (*Floor, error) {
		e, err := m.lookupNow(ctx, name)
		if err != nil {
			return nil, err
		}
		lk, err := m.attach(e)
		if err != nil {
			return nil, err
		}
		f := &Floor{Rounds: make([]FloorRound, 0, rounds)}
		if err := lk.do(func() error { return lk.floor(ctx, rounds, f) }); err != nil {
			return nil, fmt.Errorf("floor of lock %q: %w", name, err)
		}
		return f, nil
	})
}

// floor measures the rounds of Floor. Called by the lock's driver.
func (lk *Lock) floor(ctx context.Context, rounds int, f *Floor) error {
	// The first write shows the slot as the protocol has it, and warms up the device.
	if err := lk.publish(func(*layout.Slot) {}); err != nil {
		return err
	}
	g := lk.mgr.disk.SB.Geometry
	f.Slots = lk.mgr.slotCount()
	r := floorRequests{lk: lk, claim: lockspace.Pool.Get(g.Stride), release: lockspace.Pool.Get(g.Stride), slots: lockspace.Pool.Get(f.Slots * g.Stride)}
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
	lk                    *Lock
	claim, release, slots []byte
}

// round issues the IOs. whole is false if the lease had no time for all of them.
func (r *floorRequests) round() (t FloorRound, whole bool, err error) {
	lk := r.lk
	own := lk.slots.Own()
	claimed, released := own, own
	claimed.Sequence, released.Sequence = own.Sequence+1, own.Sequence+2
	space := lk.mgr.disk.SB.Space()
	if err := space.EncodeSlot(r.claim, claimed); err != nil {
		return t, false, fmt.Errorf("encode slot: %w", err)
	}
	if err := space.EncodeSlot(r.release, released); err != nil {
		return t, false, fmt.Errorf("encode slot: %w", err)
	}
	if err := lk.awaitLease(); err != nil {
		return t, false, err
	}
	mine, all := space.Geometry.Slot(lk.Entry.Lock, lk.mgr.mem.ID()), space.Geometry.Slot(lk.Entry.Lock, 1)
	if t.Claim, err = r.time(func() error { return lk.slots.Dev.Write(r.claim, mine) }); err != nil {
		return t, false, r.mend(err)
	}
	lk.slots.Change(func(own *layout.Slot) { *own = claimed })
	if t.Look, err = r.time(func() error { return lk.slots.Dev.Read(r.slots, all) }); err != nil {
		return t, false, err
	}
	if ok, _ := lk.mgr.mem.MayWrite(); !ok {
		return t, false, nil
	}
	if t.Release, err = r.time(func() error { return lk.slots.Dev.Write(r.release, mine) }); err != nil {
		return t, false, r.mend(err)
	}
	lk.slots.Change(func(own *layout.Slot) { *own = released })
	return t, true, nil
}

func (r *floorRequests) time(request func() error) (time.Duration, error) {
	begun := time.Now()
	err := request()
	return time.Since(begun), err
}

func (r *floorRequests) mend(failed error) error {
	// The failed write may have torn the slot, and other hosts wait for an unreadable slot.
	if err := r.lk.write(r.lk.m.OwnSlot()); err != nil {
		return err
	}
	return failed
}

// awaitLease blocks until a slot may be written. It returns ErrLeaseLost if the lease is lost
// first.
func (lk *Lock) awaitLease() error {
	for {
		ok, changed := lk.mgr.mem.MayWrite()
		select {
		case <-lk.mgr.mem.Lost():
			return api.ErrLeaseLost
		default:
		}
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-lk.mgr.mem.Lost():
			return api.ErrLeaseLost
		}
	}
}
