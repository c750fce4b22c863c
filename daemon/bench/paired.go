package bench

import (
	"context"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/layout"
)

// batchRounds is how many rounds a batch has of each: compared rounds are close in time, and
// switches between them are rare.
const batchRounds = 10

// Floor is the device's time for the requests of an uncontended lock: write the own slot, read the
// slots of the hosts that exist, write the own slot.
type Floor struct {
	Dist
	WriteP50US int64 `json:"write_p50_us"`
	ReadP50US  int64 `json:"read_p50_us"`

	Times       *latency.Recorder `json:"-"`
	write, read *latency.Recorder
}

func (f *Floor) add(rounds []measuring.FloorRound) {
	for _, r := range rounds {
		f.Times.Add(r.Whole())
		f.write.Add(r.Claim)
		f.write.Add(r.Release)
		f.read.Add(r.Look)
	}
}

// Lock is the time of an uncontended lock and unlock.
type Lock struct {
	Dist
	FloorP50US int64   `json:"floor_p50_us"` // measured in the same run
	Ratio      float64 `json:"ratio"`        // of the medians
	PassedOn   int64   `json:"passed_on"`    // rounds not counted, because the host still held the lock

	Times *latency.Recorder `json:"-"`
}

// paired measures the floor and the lock of a host alternately.
func (r *run) paired(h Host) (*Lock, error) {
	l, c := &Lock{Times: newTimes()}, h.Client()
	// The first batch is not counted: first uses take longer.
	if _, err := h.Floor(r.ctx, batchRounds); err != nil {
		return nil, err
	}
	if err := (&Lock{Times: newTimes()}).batch(r.ctx, c); err != nil {
		return nil, err
	}
	floor, err := r.repeatWithFloor(h, l.Times, func() error { return l.batch(r.ctx, c) })
	if err != nil {
		return nil, err
	}
	l.Dist, l.FloorP50US, l.Ratio = distOf(l.Times), micros(floor.Times.At(50)), ratio(l.Times.At(50), floor.Times.At(50))
	return l, nil
}

// repeatWithFloor alternates batches with the floor of a host, which it returns. It stores the floor,
// unless one was stored before.
func (r *run) repeatWithFloor(h Host, counted *latency.Recorder, batch func() error) (*Floor, error) {
	f, slots := &Floor{Times: newTimes(), write: newTimes(), read: newTimes()}, 0
	err := r.repeat(counted, func() error {
		measured, err := h.Floor(r.ctx, batchRounds)
		if err != nil {
			return err
		}
		slots = measured.Slots
		f.add(measured.Rounds)
		return batch()
	})
	f.Dist, f.WriteP50US, f.ReadP50US = distOf(f.Times), micros(f.write.At(50)), micros(f.read.At(50))
	if err == nil && r.res.Floor == nil {
		r.res.Floor, r.res.Slots = f, slots
	}
	return f, err
}

// batch locks and unlocks batchRounds+1 times. A round is counted from the end of the previous
// unlock to the end of this one, and so includes all of a release, whenever Unlock returns.
func (l *Lock) batch(ctx context.Context, c Client) error {
	var last time.Time
	for i := range batchRounds + 1 {
		token, err := c.Lock(ctx)
		if err != nil {
			return err
		}
		if err := c.Unlock(); err != nil {
			return err
		}
		now := time.Now()
		switch {
		case isFurtherGrant(token): // the host still held the lock, so the round took no request
			l.PassedOn++
		case i > 0:
			l.Times.Add(now.Sub(last))
		}
		last = now
	}
	return nil
}

// isFurtherGrant reports whether a token is a further grant of a ticket, which took no request.
func isFurtherGrant(token layout.Ticket) bool { return token%layout.MaxGrants != 0 }
