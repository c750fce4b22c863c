package bench

import (
	"context"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// turnRounds is how many rounds of each a turn has: what is compared is never far apart in time, and seldom changes
// places.
const turnRounds = 10

// Floor is what the device takes for the requests of an uncontended lock: write the own slot, read the slots of the
// hosts that exist, write the own slot.
type Floor struct {
	Dist
	WriteP50US int64 `json:"write_p50_us"`
	ReadP50US  int64 `json:"read_p50_us"`

	Times       *Times `json:"-"`
	write, read *Times
}

func newFloor() *Floor { return &Floor{Times: newTimes(), write: newTimes(), read: newTimes()} }

func (f *Floor) add(r Round) {
	f.Times.Add(r.whole())
	f.write.Add(r.Claim)
	f.write.Add(r.Release)
	f.read.Add(r.Look)
}

func (f *Floor) sum() *Floor {
	f.Dist, f.WriteP50US, f.ReadP50US = f.Times.dist(), micros(f.write.At(50)), micros(f.read.At(50))
	return f
}

// Lock is how long it takes to have the lock and let it go when nobody else wants it.
type Lock struct {
	Dist
	FloorP50US int64   `json:"floor_p50_us"` // of this very run
	Ratio      float64 `json:"ratio"`        // of the p50s
	PassedOn   int64   `json:"passed_on"`    // rounds that are not counted: the host still had the lock

	Times *Times `json:"-"`
}

func (r *run) uncontended() (err error) {
	r.res.Uncontended, err = r.paired(r.Bakeryd)
	return err
}

func (r *run) inProcess() (err error) {
	r.res.InProcess, err = r.paired(r.Inside[0])
	return err
}

// paired has a host do both in turn.
func (r *run) paired(h Host) (*Lock, error) {
	floor, l := newFloor(), &Lock{Times: newTimes()}
	c := h.Client()
	// The first turn is not counted: what is used for the first time takes longer.
	if err := h.Floor(r.ctx, turnRounds, func(Round) {}); err != nil {
		return nil, err
	}
	if err := (&Lock{Times: newTimes()}).turn(r.ctx, c); err != nil {
		return nil, err
	}
	err := r.repeat(l.Times, func() error {
		if err := h.Floor(r.ctx, turnRounds, floor.add); err != nil {
			return err
		}
		return l.turn(r.ctx, c)
	})
	if err != nil {
		return nil, err
	}
	r.measured(h, floor)
	l.Dist, l.FloorP50US, l.Ratio = l.Times.dist(), floor.sum().P50US, ratio(l.Times.At(50), floor.Times.At(50))
	return l, nil
}

// measured keeps the floor that was measured first.
func (r *run) measured(h Host, f *Floor) {
	if r.res.Floor == nil {
		r.res.Floor, r.res.Slots = f.sum(), h.Slots()
	}
}

// turn takes the lock a few times. Rounds are measured from the end of one to the end of the next, but for the first:
// so nothing of a release is left out, whenever Unlock returns.
func (l *Lock) turn(ctx context.Context, c Client) error {
	var last time.Time
	for i := range turnRounds + 1 {
		token, err := c.Lock(ctx)
		if err != nil {
			return err
		}
		if err := c.Unlock(); err != nil {
			return err
		}
		now := time.Now()
		switch {
		case passedOn(token): // the client has asked so soon that the host still had the lock: the disk had no part in it
			l.PassedOn++
		case i > 0:
			l.Times.Add(now.Sub(last))
		}
		last = now
	}
	return nil
}

// passedOn tells whether a token is of a further grant by one ticket: the disk had no part in it.
func passedOn(token layout.Ticket) bool { return token%layout.MaxGrants != 0 }
