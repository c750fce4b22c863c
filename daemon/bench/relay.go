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

// Relay is the time from the start of a release until the waiting other host has the lock.
type Relay struct {
	Dist
	Between    string  `json:"between"`
	HoldUS     int64   `json:"hold_us"`
	FloorP50US int64   `json:"floor_p50_us"` // one write and two reads, measured in the same run
	Ratio      float64 `json:"ratio"`

	Times *latency.Recorder `json:"-"`
}

// pair returns the two hosts between which the lock is handed over, or nil. It prefers two in this
// process, which have no socket between them.
func (r *run) pair() []Host {
	switch {
	case len(r.Inside) >= 2:
		return r.Inside[:2]
	case len(r.Inside) == 1 && r.Bakeryd != nil:
		return []Host{r.Bakeryd, r.Inside[0]}
	}
	return nil
}

func between(hosts []Host) string {
	a, b := hosts[0].String(), hosts[1].String()
	if a == b {
		return "two hosts in " + a
	}
	return a + " and " + b
}

func (r *run) handOver() error {
	hosts := r.pair()
	clients := [2]Client{hosts[0].Client(), hosts[1].Client()}
	relayed := &Relay{Times: newTimes(), HoldUS: micros(relayHold), Between: between(hosts)}
	floor, err := r.repeatWithFloor(hosts[1], relayed.Times, func() error {
		batch := &race{clients: clients, times: relayed.Times, last: -1}
		return batch.run(r.ctx)
	})
	if err != nil {
		return err
	}
	least := floor.write.At(50) + 2*floor.read.At(50)
	relayed.Dist, relayed.FloorP50US, relayed.Ratio = distOf(relayed.Times), micros(least), ratio(relayed.Times.At(50), least)
	r.res.HandOver = relayed
	return nil
}

// race is two hosts that contend for the lock in one batch.
type race struct {
	clients [2]Client

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
