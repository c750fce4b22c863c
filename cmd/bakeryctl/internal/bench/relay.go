package bench

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bakeryd/bakeryd/blockdev/latency"
)

const (
	// relayHold is how long a host holds the lock. The other one is waiting by then.
	relayHold = 2 * time.Millisecond

	// relayLaps is how many hand-overs a batch has; the last lap may add one.
	relayLaps = 20

	// relayWaits is how long the other host must have waited for a hand-over to count.
	relayWaits = relayHold / 2
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
	clients := [2]locker{a.client(), b.client()}
	f, err := r.repeatWithFloor(b, relayed.times, func() error {
		batch := &race{clients: clients, times: relayed.times, last: -1}
		return batch.run(r.ctx)
	})
	relayed.compare(f.write.At(50) + 2*f.read.At(50))
	r.res.HandOver = relayed
	return err
}

// race is two hosts that contend for the lock in one batch.
type race struct {
	clients [2]locker

	mu    sync.Mutex // guards the fields below: the lock under test is not trusted to
	times *latency.Recorder
	laps  int          // so far
	asked [2]time.Time // when each host asked last
	last  int          // host that released last; -1 if none
	at    time.Time    // when that release began
}

func (r *race) run(ctx context.Context) error {
	hosts, ctx := errgroup.WithContext(ctx)
	for me := range r.clients {
		hosts.Go(func() error { return r.takeTurns(ctx, me) })
	}
	return hosts.Wait()
}

// takeTurns acquires and releases the lock as host me until the batch is complete.
func (r *race) takeTurns(ctx context.Context, me int) error {
	for !r.over(me) {
		if _, err := r.clients[me].Lock(ctx); err != nil {
			return err
		}
		r.entered(me, time.Now())
		select {
		case <-time.After(relayHold):
		case <-ctx.Done(): // the next Lock returns the cause
		}
		r.leaves(me)
		if err := r.clients[me].Unlock(); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether the batch is complete, and otherwise notes that host me asks again.
func (r *race) over(me int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[me] = time.Now()
	return r.laps > relayLaps
}

func (r *race) entered(me int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.laps++
	if r.last == 1-me && r.at.Sub(r.asked[me]) >= relayWaits {
		r.times.Add(now.Sub(r.at))
	}
}

func (r *race) leaves(me int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.at = me, time.Now()
}
