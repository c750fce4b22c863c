package bench

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bakeryd/bakeryd/daemon/load"
	"github.com/bakeryd/bakeryd/daemon/retry"
)

const (
	// relayHold is how long a host holds the lock, while the other one waits for it.
	relayHold = 2 * time.Millisecond

	// relayLaps is how many hand-overs a batch has.
	relayLaps = 20
)

// relay is the time from the start of a release until the waiting other host has the lock. Its
// floor is one write and two reads.
type relay struct {
	compared
	Between string `json:"between"`
	HoldUS  int64  `json:"hold_us"`
}

// pair returns the two hosts between which the lock is handed over, or nil. It prefers two in this
// process, which have no socket between them.
func (r *run) pair() []*host {
	switch {
	case len(r.inside) >= 2:
		return r.inside[:2]
	case len(r.inside) == 1 && r.bakeryd != nil:
		return []*host{r.bakeryd, r.inside[0]}
	}
	return nil
}

func (r *run) handOver() error {
	a, b := r.pair()[0], r.pair()[1]
	relayed := &relay{compared: compared{times: newTimes()}, HoldUS: micros(relayHold), Between: a.name + " and " + b.name}
	if a.name == b.name {
		relayed.Between = "two hosts in " + a.name
	}
	f, err := r.repeatWithFloor(b, relayed.times, func() error { return relayed.batch(r.ctx, a.lock, b.lock) })
	relayed.compare(f.write.At(50) + 2*f.read.At(50))
	r.res.HandOver = relayed
	return err
}

// batch hands the lock over from one host to the other and back.
func (r *relay) batch(ctx context.Context, from, to load.Lock) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	_, unlock, err := from(ctx)
	for range relayLaps {
		if err != nil {
			return err
		}
		var next func() error
		var has time.Time
		var waiting errgroup.Group
		waiting.Go(func() (err error) {
			_, next, err = to(ctx)
			has = time.Now()
			return err
		})
		_ = retry.Pause(ctx, relayHold) // after the end of ctx, the next wait returns the cause
		begun := time.Now()
		if err := unlock(); err != nil {
			cancel(err)
		}
		if err = waiting.Wait(); err == nil {
			r.times.Add(has.Sub(begun))
		}
		unlock, from, to = next, to, from
	}
	if err != nil {
		return err
	}
	err = unlock()
	return cmp.Or(context.Cause(ctx), err)
}
