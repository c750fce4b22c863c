package bench

import (
	"context"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/daemon/load"
	"github.com/bakeryd/bakeryd/layout"
)

// batchRounds is how many rounds a batch has of each: compared rounds are close in time, and
// switches between them are rare.
const batchRounds = 10

// floor is the device's time for the requests of an uncontended lock: write the own slot, read the
// slots of the hosts that exist, write the own slot.
type floor struct {
	dist
	WriteP50US int64 `json:"write_p50_us"`
	ReadP50US  int64 `json:"read_p50_us"`

	times       *latency.Recorder
	write, read *latency.Recorder
}

// lockTimes is the time of an uncontended lock and unlock.
type lockTimes struct {
	compared
	PassedOn int64 `json:"passed_on"` // rounds not counted, because the host still held the lock
}

// paired measures the floor and the lock of a host alternately.
func (r *run) paired(h *host) (*lockTimes, error) {
	l := newLockTimes()
	// The first batch is not counted: first uses take longer.
	if _, err := h.floor(r.ctx, batchRounds); err != nil {
		return nil, err
	}
	if err := newLockTimes().batch(r.ctx, h.lock); err != nil {
		return nil, err
	}
	f, err := r.repeatWithFloor(h, l.times, func() error { return l.batch(r.ctx, h.lock) })
	l.compare(f.times.At(50))
	return l, err
}

func newLockTimes() *lockTimes { return &lockTimes{compared: compared{times: newTimes()}} }

// repeatWithFloor alternates batches with the floor of a host, which it returns. It stores the
// floor, unless one was stored before.
func (r *run) repeatWithFloor(h *host, counted *latency.Recorder, batch func() error) (*floor, error) {
	f, slots := &floor{times: newTimes(), write: newTimes(), read: newTimes()}, 0
	err := r.repeat(counted, func() error {
		measured, err := h.floor(r.ctx, batchRounds)
		if err != nil {
			return err
		}
		slots = measured.Slots
		for _, round := range measured.Rounds {
			f.times.Add(round.Whole())
			f.write.Add(round.Claim)
			f.write.Add(round.Release)
			f.read.Add(round.Look)
		}
		return batch()
	})
	f.dist, f.WriteP50US, f.ReadP50US = distOf(f.times), micros(f.write.At(50)), micros(f.read.At(50))
	if r.res.Floor == nil {
		r.res.Floor, r.res.Highest = f, slots // later on more hosts may have joined
	}
	return f, err
}

// batch locks and unlocks batchRounds+1 times. A round is counted from the end of the previous
// unlock to the end of this one, and so includes all of a release, whenever Unlock returns.
func (l *lockTimes) batch(ctx context.Context, lock load.Lock) error {
	var last time.Time
	for i := range batchRounds + 1 {
		token, unlock, err := lock(ctx)
		if err != nil {
			return err
		}
		if err := unlock(); err != nil {
			return err
		}
		now := time.Now()
		switch {
		case token%layout.MaxGrants != 0: // a further grant of the ticket that the host still held: no request
			l.PassedOn++
		case i > 0:
			l.times.Add(now.Sub(last))
		}
		last = now
	}
	return nil
}
