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
	WriteP50US int64 `json:"write_p50_us"` // median of one write, in microseconds
	ReadP50US  int64 `json:"read_p50_us"`  // median of the read, in microseconds

	times       *latency.Recorder
	write, read *latency.Recorder
}

// lockTimes is the time of an uncontended lock and unlock.
type lockTimes struct {
	compared
	PassedOn int64 `json:"passed_on"` // rounds not counted, because the host still held the lock

	added []time.Duration // to the floor, by turn: medians of both, so that the disk was the same
}

// socketTimes is that of a lock and unlock through the socket, next to the toy.
type socketTimes struct {
	lockTimes
	AddedUS    int64   `json:"added_us"` // to the floor, median of the turns
	ToyP50US   int64   `json:"toy_p50_us"`
	AddedRatio float64 `json:"added_ratio"` // what is added, to the toy
}

// reacquired is the time of an unlock and lock by the same client, next to the toy.
type reacquired struct {
	dist
	WithoutIO int64   `json:"without_io"` // number of grants that were no request to the disk
	ToyP50US  int64   `json:"toy_p50_us"`
	Ratio     float64 `json:"ratio"` // of the medians
}

// paired measures the floor and the lock of a host alternately. Each turn ends with next.
func (r *run) paired(h *host, next func() error) (*lockTimes, error) {
	l := newLockTimes()
	// The first batch is not counted: first uses take longer.
	if _, err := h.floor(r.ctx, batchRounds); err != nil {
		return nil, err
	}
	if _, err := newLockTimes().batch(r.ctx, h.fresh); err != nil {
		return nil, err
	}
	f, err := r.repeatWithFloor(h, l.times, func(floors []time.Duration) error {
		locks, err := l.batch(r.ctx, h.fresh)
		if err != nil {
			return err
		}
		if len(locks) > 0 {
			l.added = append(l.added, middle(locks)-middle(floors))
		}
		return next()
	})
	l.compare(f.times.At(50))
	return l, err
}

func newLockTimes() *lockTimes { return &lockTimes{compared: compared{times: newTimes()}} }

// inProcess measures the uncontended lock of a host in this process.
func (r *run) inProcess() (err error) {
	r.res.InProcess, err = r.paired(r.inside[0], func() error { return nil })
	return err
}

// uncontended measures the uncontended lock of bakeryd, next to the floor and the toy.
func (r *run) uncontended() error {
	toy := newTimes()
	l, err := r.paired(r.bakeryd, func() error { return r.toyBatch(toy) })
	if err != nil {
		return err
	}
	added := middle(l.added)
	r.res.Uncontended = &socketTimes{lockTimes: *l, AddedUS: micros(added), ToyP50US: micros(toy.At(50)), AddedRatio: ratio(added, toy.At(50))}
	r.storeToy(toy)
	return nil
}

// reacquire measures how a client that has released a lock of bakeryd acquires it again, next to the
// toy.
func (r *run) reacquire() error {
	times, toy := newTimes(), newTimes()
	again := &reacquired{}
	turn := func() error {
		if err := r.toyBatch(toy); err != nil {
			return err
		}
		return rounds(r.ctx, r.bakeryd.lock, func(token layout.Ticket, took time.Duration) {
			times.Add(took)
			if passedOn(token) {
				again.WithoutIO++
			}
		})
	}
	if err := turn(); err != nil {
		return err
	}
	times, toy, again.WithoutIO = newTimes(), newTimes(), 0 // first uses take longer
	if err := r.repeat(times, turn); err != nil {
		return err
	}
	again.dist, again.ToyP50US, again.Ratio = distOf(times), micros(toy.At(50)), ratio(times.At(50), toy.At(50))
	r.res.Reacquire = again
	r.storeToy(toy)
	return nil
}

// toyBatch adds a batch of the toy.
func (r *run) toyBatch(times *latency.Recorder) error {
	return rounds(r.ctx, r.toy, func(_ layout.Ticket, took time.Duration) { times.Add(took) })
}

// storeToy stores the times of the toy, unless some were stored before.
func (r *run) storeToy(times *latency.Recorder) {
	if t := r.toyTimes(); t.dist == nil {
		t.dist = new(distOf(times))
	}
}

// toyTimes returns the report's times of the toy.
func (r *run) toyTimes() *toyTimes {
	if r.res.Toy == nil {
		r.res.Toy = &toyTimes{}
	}
	return r.res.Toy
}

// repeatWithFloor alternates batches with the floor of a host, which it returns. It passes the floor
// of its turn to each batch. It stores the floor, unless one was stored before.
func (r *run) repeatWithFloor(h *host, counted *latency.Recorder, batch func(floors []time.Duration) error) (*floor, error) {
	f, slots := &floor{times: newTimes(), write: newTimes(), read: newTimes()}, 0
	err := r.repeat(counted, func() error {
		measured, err := h.floor(r.ctx, batchRounds)
		if err != nil {
			return err
		}
		slots = measured.Slots
		var floors []time.Duration
		for _, round := range measured.Rounds {
			floors = append(floors, round.Whole())
			f.times.Add(round.Whole())
			f.write.Add(round.Claim)
			f.write.Add(round.Release)
			f.read.Add(round.Look)
		}
		return batch(floors)
	})
	f.dist, f.WriteP50US, f.ReadP50US = distOf(f.times), micros(f.write.At(50)), micros(f.read.At(50))
	if r.res.Floor == nil {
		r.res.Floor, r.res.Highest = f, slots // later on more hosts may have joined
	}
	return f, err
}

// batch adds a batch of rounds that made requests to the disk, and returns their times.
func (l *lockTimes) batch(ctx context.Context, lock load.Lock) (counted []time.Duration, err error) {
	err = rounds(ctx, lock, func(token layout.Ticket, took time.Duration) {
		if passedOn(token) {
			l.PassedOn++
			return
		}
		l.times.Add(took)
		counted = append(counted, took)
	})
	return counted, err
}

// passedOn reports whether a grant was a further one of the ticket that the host still held, without
// a request to the disk.
func passedOn(token layout.Ticket) bool { return token%layout.MaxGrants != 0 }

// rounds locks and unlocks batchRounds+1 times, and adds all but the first round. A round lasts from
// the end of the previous unlock to the end of this one, and so includes all of a release, whenever
// Unlock returns.
func rounds(ctx context.Context, lock load.Lock, add func(token layout.Ticket, took time.Duration)) error {
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
		if i > 0 {
			add(token, now.Sub(last))
		}
		last = now
	}
	return nil
}
