package scale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon"
)

// Waiting is what the disk sees of so many hosts that wait for one lock, which another one holds.
type Waiting struct {
	Waiters int `json:"waiters"`

	// By second, all hosts together, while nothing moves: the first half second of the wait apart, and the lease.
	Reads     float64 `json:"reads"`
	ReadBytes float64 `json:"read_bytes"`

	FirstReads float64 `json:"first_reads"` // of these, by the one who is first in line
	FirstBytes float64 `json:"first_bytes"`

	HandOverUS float64 `json:"handover_us"` // release begun to grant, p50 over all of them
}

// Wait measures the waiters, on one lockspace that has room for all.
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

// settling is how long a wait lasts before it is measured: at first it is watched more closely.
const settling = 500 * time.Millisecond

// wait has the first host hold the lock and the others wait for it, one after the other.
func wait(ctx context.Context, hosts []*host, hold time.Duration) (w Waiting, err error) {
	name := lockName(1)
	for _, h := range hosts { // each has used the lock before
		if _, err := take(ctx, h.Daemon, name); err != nil {
			return w, err
		}
	}
	held, err := hosts[0].Acquire(ctx, daemon.Request{Name: name})
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

// relay is those who wait for a lock. Each lets go at once.
type relay struct {
	hosts sync.WaitGroup

	mu   sync.Mutex      // guards the rest
	last time.Time       // when a release was begun
	took []time.Duration // from there to the next grant
	err  error
}

// queue returns when the host waits, so that the next one does behind it.
func (r *relay) queue(ctx context.Context, h *host, name string) error {
	waits, over := make(chan struct{}, 1), make(chan struct{})
	r.hosts.Go(func() {
		defer close(over)
		hold, err := h.Acquire(ctx, daemon.Request{Name: name, OnWaiting: func(int, int) {
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

// let notes that a release begins.
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
