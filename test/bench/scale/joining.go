package scale

import (
	"context"
	"errors"
	"time"
)

// Joining is how long a number of real hosts take to join, in one process.
type Joining struct {
	Hosts   int     `json:"hosts"`
	AtOnce  int     `json:"at_once"`
	Seconds float64 `json:"seconds"`
	LeaseMS int64   `json:"lease_ms"`

	// Requests of an acquire when all of them have joined, for comparison with a Point's simulated
	// hosts.
	Acquire Traffic `json:"acquire"`
}

// atOnce is how many hosts join at a time. Each waits until all live hosts cover it, which they do
// when they renew.
const atOnce = 64

// Join makes a number of hosts join.
func Join(ctx context.Context, dir string, count int, lease time.Duration) (j Joining, err error) {
	s, err := newSpace(dir, count, 4, lease)
	if err != nil {
		return j, err
	}
	defer s.close()
	if err := s.fill(); err != nil {
		return j, err
	}
	begun := time.Now()
	hosts, err := s.joinAll(ctx, count, Latency)
	j = Joining{Hosts: count, AtOnce: min(count, atOnce), Seconds: time.Since(begun).Seconds(), LeaseMS: lease.Milliseconds()}
	if err == nil {
		j.Acquire, err = hosts[0].acquires(ctx)
	}
	return j, errors.Join(err, leaveAll(hosts))
}

// joinAll returns the hosts that have joined: all, unless there is an error.
func (s *space) joinAll(ctx context.Context, count int, latency time.Duration) (joined []*host, err error) {
	type result struct {
		h   *host
		err error
	}
	results := make(chan result)
	turns := make(chan struct{}, atOnce)
	for id := 1; id <= count; id++ {
		go func() {
			turns <- struct{}{}
			h, err := s.join(ctx, id, latency)
			<-turns
			results <- result{h, err}
		}()
	}
	for range count {
		r := <-results
		if r.err != nil {
			err = errors.Join(err, r.err)
			continue
		}
		joined = append(joined, r.h)
	}
	return joined, err
}

// acquires returns the requests of an acquire and release of a free lock.
func (h *host) acquires(ctx context.Context) (Traffic, error) {
	name := lockName(1)
	if _, err := take(ctx, h.Host, name); err != nil {
		return Traffic{}, err
	}
	var asked []Traffic
	for range 21 {
		before := h.handle.traffic(slots)
		if _, err := take(ctx, h.Host, name); err != nil {
			return Traffic{}, err
		}
		asked = append(asked, h.handle.traffic(slots).minus(before))
	}
	return medianTraffic(asked), nil
}
