package bench

import (
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// handOffClients is how many clients of a host contend for the lock.
const handOffClients = 8

// HandOffs is how often the lock passes between clients of one host without other hosts.
type HandOffs struct {
	PerSecond          int64 `json:"per_second,omitzero"` // through the socket; 0: not measured
	InProcessPerSecond int64 `json:"in_process_per_second,omitzero"`
	Clients            int   `json:"clients"`
}

func (r *run) handOff() (err error) {
	h := &HandOffs{Clients: handOffClients}
	if r.Bakeryd != nil {
		h.PerSecond, err = r.handOffs(r.Bakeryd)
	}
	if err == nil && len(r.Inside) > 0 {
		h.InProcessPerSecond, err = r.handOffs(r.Inside[0])
	}
	r.res.HandOff = h
	return err
}

func (r *run) handOffs(h Host) (perSecond int64, err error) {
	var grants atomic.Int64
	begun := time.Now()
	end := begun.Add(r.Duration)
	clients, ctx := errgroup.WithContext(r.ctx)
	for range handOffClients {
		clients.Go(func() error {
			c, n := h.Client(), int64(0)
			defer func() { grants.Add(n) }()
			for n == 0 || time.Now().Before(end) {
				if _, err := c.Lock(ctx); err != nil {
					return err
				}
				n++
				if err := c.Unlock(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = clients.Wait()
	return int64(math.Round(float64(grants.Load()) / time.Since(begun).Seconds())), err
}
