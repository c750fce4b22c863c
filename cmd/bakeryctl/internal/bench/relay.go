package bench

import (
	"cmp"
	"context"
	"time"

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
	Between string `json:"between"` // the two hosts
	HoldUS  int64  `json:"hold_us"` // how long each one holds the lock, in microseconds
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
	f, err := r.repeatWithFloor(b, relayed.times, func([]time.Duration) error { return relayed.batch(r.ctx, a.lock, b.lock) })
	relayed.compare(f.write.At(50) + 2*f.read.At(50))
	r.res.HandOver = relayed
	return err
}

// grant is the end of a host's wait for the lock.
type grant struct {
	unlock     func() error
	asked, has time.Time
	err        error
}

// batch lets two hosts contend for the lock: one that has released it asks again at once.
func (r *relay) batch(ctx context.Context, from, to load.Lock) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ask := func(lock load.Lock) <-chan grant {
		got := make(chan grant, 1)
		go func() {
			g := grant{asked: time.Now()}
			_, g.unlock, g.err = lock(ctx)
			g.has = time.Now()
			got <- g
		}()
		return got
	}
	held := <-ask(from)
	next, err := ask(to), held.err
	for lap := 0; lap < relayLaps && err == nil; lap++ {
		_ = retry.Pause(ctx, relayHold) // after the end of ctx, the next wait returns the cause
		begun := time.Now()
		if err = held.unlock(); err != nil {
			break
		}
		again := ask(from)
		select {
		case held = <-next:
			if held.err == nil && begun.Sub(held.asked) >= relayHold/2 {
				r.times.Add(held.has.Sub(begun))
			}
			next, from, to = again, to, from
		case held = <-again: // the other one asked too late
		}
		err = held.err
	}
	if err == nil {
		err = held.unlock()
	} else {
		cancel()
	}
	last := <-next
	if last.err != nil {
		return cmp.Or(err, last.err)
	}
	return cmp.Or(err, last.unlock())
}
