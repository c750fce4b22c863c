package bench

import (
	"context"
	"sync"
	"time"
)

const (
	// relayHold is how long a host stays inside, so that the other one is surely waiting by then.
	relayHold = 2 * time.Millisecond

	// relayLaps is how many hand-overs a turn has, or one more: the lap that is under way is run.
	relayLaps = 20

	// relayWaits is for how long the other one must have waited at least for a hand-over to count.
	relayWaits = relayHold / 2
)

// Relay is how long it takes from a host's beginning to let go until the other one, which waits, has the lock.
type Relay struct {
	Dist
	Between    string  `json:"between"`
	HoldUS     int64   `json:"hold_us"`
	FloorP50US int64   `json:"floor_p50_us"` // one write and two reads, of this very run
	Ratio      float64 `json:"ratio"`

	Times *Times `json:"-"`
}

// pair returns the hosts between which the lock is handed over, if there are two. Two in one process have the least
// between them; bakeryd's part is beyond its socket.
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
	floor, relayed := newFloor(), &Relay{Times: newTimes(), HoldUS: micros(relayHold), Between: between(hosts)}
	err := r.repeat(relayed.Times, func() error {
		if err := hosts[1].Floor(r.ctx, turnRounds, floor.add); err != nil {
			return err
		}
		return newRace(clients, relayed.Times).run(r.ctx)
	})
	if err != nil {
		return err
	}
	r.measured(hosts[1], floor)
	least := floor.write.At(50) + 2*floor.read.At(50)
	relayed.Dist, relayed.FloorP50US, relayed.Ratio = relayed.Times.dist(), micros(least), ratio(relayed.Times.At(50), least)
	r.res.HandOver = relayed
	return nil
}

// race is two hosts that contend for the lock for a while.
type race struct {
	clients [2]Client

	mu    sync.Mutex // guards the rest: what is under test is not trusted to
	times *Times
	laps  int          // so far
	asked [2]time.Time // since when each of them waits
	last  int          // who let go last; -1: nobody has
	at    time.Time    // when that began
}

func newRace(clients [2]Client, times *Times) *race {
	return &race{clients: clients, times: times, last: -1}
}

func (r *race) run(ctx context.Context) error {
	return together(ctx, len(r.clients), func(ctx context.Context, me int) error {
		for !r.over(me) {
			if _, err := r.clients[me].Lock(ctx); err != nil {
				return err
			}
			r.entered(me, time.Now())
			select {
			case <-time.After(relayHold):
			case <-ctx.Done(): // the next Lock says so
			}
			r.leaves(me)
			if err := r.clients[me].Unlock(); err != nil {
				return err
			}
		}
		return nil
	})
}

// over tells whether there were enough laps, and if not that one more is about to begin.
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

// together has so many do something at once, and returns the first error, which ends the others' waits.
func together(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := do(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
