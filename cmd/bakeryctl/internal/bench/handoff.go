package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/load"
)

const (
	// handOffClients is how many clients of a host contend for the lock in the figures that name no
	// number.
	handOffClients = 8

	// handOffSlices is how often those that are compared alternate.
	handOffSlices = 20
)

// crowds are the numbers of clients that are measured.
var crowds = []int{1, handOffClients, 64}

// handOffs is how often the lock passes between clients of one host without other hosts.
type handOffs struct {
	PerSecond          int64   `json:"per_second"`                     // of handOffClients, through the socket
	InProcessPerSecond int64   `json:"in_process_per_second,omitzero"` // 0: not measured
	Clients            int     `json:"clients"`
	Ratio              float64 `json:"ratio"`      // of the times per second to those of the toy
	ByClients          []crowd `json:"by_clients"` // for each number of clients
}

// crowd is the same for a number of clients, next to the toy.
type crowd struct {
	Clients      int     `json:"clients"`
	PerSecond    int64   `json:"per_second"`
	ToyPerSecond int64   `json:"toy_per_second"`
	Ratio        float64 `json:"ratio"`
	Wait         dist    `json:"wait"` // of a client, from the request to the grant
	ToyWait      dist    `json:"toy_wait"`
}

func (r *run) handOff() error {
	h := &handOffs{Clients: handOffClients}
	for _, clients := range crowds {
		r.progress.Begin(fmt.Sprintf("measuring %s by %s", handOff, render.Count(clients, "client")), r.Duration)
		bakeryd, toy := newPasses(r.bakeryd.lock), newPasses(r.toy)
		turns := []*passes{bakeryd, toy}
		if clients == handOffClients && len(r.inside) > 0 {
			turns = append(turns, newPasses(r.inside[0].lock))
		}
		for _, p := range turns { // first uses take longer
			if err := newPasses(p.lock).slice(r.ctx, clients, 0); err != nil {
				return err
			}
		}
		err := r.repeat(bakeryd.waits, func() error {
			for _, p := range turns {
				if err := p.slice(r.ctx, clients, r.Duration/handOffSlices); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		c := crowd{clients, bakeryd.perSecond(), toy.perSecond(), 0, distOf(bakeryd.waits), distOf(toy.waits)}
		c.Ratio = ratio(c.PerSecond, c.ToyPerSecond)
		h.ByClients = append(h.ByClients, c)
		if clients == handOffClients {
			h.PerSecond, h.Ratio = c.PerSecond, c.Ratio
			r.toyTimes().HandOffPerSecond = c.ToyPerSecond
		}
		if len(turns) > 2 {
			h.InProcessPerSecond = turns[2].perSecond()
		}
	}
	r.res.HandOff = h
	return nil
}

// passes are the grants to clients that contend for a lock.
type passes struct {
	lock  load.Lock
	waits *latency.Recorder
	spent time.Duration
}

func newPasses(lock load.Lock) *passes { return &passes{lock: lock, waits: newTimes()} }

func (p *passes) perSecond() int64 {
	return int64(math.Round(float64(p.waits.Count()) / p.spent.Seconds()))
}

// slice lets clients contend for a time. Each of them acquires the lock at least once.
func (p *passes) slice(ctx context.Context, clients int, lasts time.Duration) error {
	var mu sync.Mutex // guards p.waits
	begun := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range clients {
		group.Go(func() error {
			var waits []time.Duration
			for asked := begun; len(waits) == 0 || asked.Sub(begun) < lasts; asked = time.Now() {
				_, unlock, err := p.lock(ctx)
				if err != nil {
					return err
				}
				waits = append(waits, time.Since(asked))
				if err := unlock(); err != nil {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for _, w := range waits {
				p.waits.Add(w)
			}
			return nil
		})
	}
	err := group.Wait()
	p.spent += time.Since(begun)
	return err
}
