package bench

import (
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// handOffClients is how many clients of a host contend for the lock.
const handOffClients = 8

// handOffs is how often the lock passes between clients of one host without other hosts.
type handOffs struct {
	PerSecond          int64 `json:"per_second,omitzero"` // through the socket; 0: not measured
	InProcessPerSecond int64 `json:"in_process_per_second,omitzero"`
	Clients            int   `json:"clients"`
}

func (r *run) handOff() (err error) {
	h := &handOffs{Clients: handOffClients}
	if r.bakeryd != nil {
		h.PerSecond, err = r.handOffsOf(r.bakeryd)
	}
	if err == nil && len(r.inside) > 0 {
		h.InProcessPerSecond, err = r.handOffsOf(r.inside[0])
	}
	r.res.HandOff = h
	return err
}

func (r *run) handOffsOf(h *host) (perSecond int64, err error) {
	var grants atomic.Int64
	begun := time.Now()
	end := begun.Add(r.Duration)
	clients, ctx := errgroup.WithContext(r.ctx)
	for range handOffClients {
		clients.Go(func() error {
			for first := true; first || time.Now().Before(end); first = false {
				_, unlock, err := h.lock(ctx)
				if err != nil {
					return err
				}
				grants.Add(1)
				if err := unlock(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = clients.Wait()
	return int64(math.Round(float64(grants.Load()) / time.Since(begun).Seconds())), err
}
