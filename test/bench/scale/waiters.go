package scale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/locks"
)

// Waiting has the requests of a number of hosts that wait for one held lock.
type Waiting struct {
	Waiters int `json:"waiters"`

	// Per second, of all hosts together, without the first half second of the wait and without
	// leases.
	Reads     float64 `json:"reads"`
	ReadBytes float64 `json:"read_bytes"`

	FirstReads float64 `json:"first_reads"` // of these, by the first waiter
	FirstBytes float64 `json:"first_bytes"`

	HandOverUS float64 `json:"handover_us"` // start of the release to grant, median
}

// Wait measures the waiters, in one lockspace that has room for all.
func Wait(ctx context.Context, dir string, waiters []int, hold, lease time.Duration) (all []Waiting, err error) {
	s, err := newSpace(dir, slices.Max(waiters)+1, 4, lease)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.fill(); err != nil {
		return nil, err
	}
	hosts, err := s.joinAll(ctx, slices.Max(waiters)+1, Latency)
	for _, n := range waiters {
		if err != nil {
			break
		}
		var w Waiting
		w, err = wait(ctx, hosts[:n+1], hold)
		all = append(all, w)
	}
	return all, errors.Join(err, leaveAll(hosts))
}

// settling is how long a wait lasts before it is measured: at first waiters poll faster.
const settling = 500 * time.Millisecond

// wait makes the first host hold the lock and the others wait for it, one after another.
func wait(ctx context.Context, hosts []*host, hold time.Duration) (w Waiting, err error) {
	name := lockName(1)
	for _, h := range hosts { // each has used the lock before
		if _, err := take(ctx, h.Host, name); err != nil {
			return w, err
		}
	}
	held, err := hosts[0].Acquire(ctx, locks.Request{Name: name})
	if err != nil {
		return w, err
	}
	waiters, line := hosts[1:], &relay{}
	for _, h := range waiters {
		if err := line.queue(ctx, h, name); err != nil {
			return w, err
		}
	}
	traffic := func() (all, first Traffic) {
		for _, h := range waiters {
			all = all.plus(h.handle.traffic(slots))
		}
		return all, waiters[0].handle.traffic(slots)
	}
	if err := sleep(ctx, settling); err != nil {
		return w, err
	}
	all, first := traffic()
	begun := time.Now()
	if err := sleep(ctx, hold); err != nil {
		return w, err
	}
	allNow, firstNow := traffic()
	seconds := time.Since(begun).Seconds()
	all, first = allNow.minus(all), firstNow.minus(first)
	line.let()
	if err := held.Release(); err != nil {
		return w, err
	}
	took, err := line.through()
	if err != nil {
		return w, err
	}
	return Waiting{
		Waiters: len(waiters), Reads: float64(all.Reads) / seconds, ReadBytes: float64(all.ReadBytes) / seconds,
		FirstReads: float64(first.Reads) / seconds, FirstBytes: float64(first.ReadBytes) / seconds,
		HandOverUS: float64(median(took).Nanoseconds()) / 1e3,
	}, nil
}

// relay is the waiters for a lock. Each releases it immediately.
type relay struct {
	hosts sync.WaitGroup

	mu   sync.Mutex      // guards the fields below
	last time.Time       // start of the last release
	took []time.Duration // from there to the next grant
	err  error
}

// queue returns when the host waits, so that the next one waits behind it.
func (r *relay) queue(ctx context.Context, h *host, name string) error {
	waits, over := make(chan struct{}, 1), make(chan struct{})
	r.hosts.Go(func() {
		defer close(over)
		hold, err := h.Acquire(ctx, locks.Request{Name: name, OnWaiting: func(int, int) {
			select {
			case waits <- struct{}{}:
			default:
			}
		}})
		if err == nil {
			r.granted()
			err = hold.Release()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = errors.Join(r.err, err)
	})
	select {
	case <-waits:
		return nil
	case <-over:
		return fmt.Errorf("host %d did not have to wait: %w", h.HostID(), errors.Join(r.err, errOrder))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errOrder = errors.New("the lock is held")

func (r *relay) granted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.took = append(r.took, now.Sub(r.last))
	r.last = now
}

// let records the start of a release.
func (r *relay) let() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
}

// through waits until all have had the lock.
func (r *relay) through() ([]time.Duration, error) {
	r.hosts.Wait()
	return r.took, r.err
}
