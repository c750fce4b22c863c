// Package load has the hosts and clients of the programs that put a load on a lock: bench, which
// measures, and stress, which checks. It never knows what they do under the lock.
package load

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
)

// joiners is the number of hosts that join at a time. Fewer take longer, because each must be seen
// by all earlier ones before it is ready. More collide as they choose their ids.
const joiners = 8

// Join joins a lockspace as n hosts. With an error it also returns those that joined.
func Join(ctx context.Context, n int, cfg daemon.Config) ([]*daemon.Host, error) {
	joined := make([]*daemon.Host, n)
	var group errgroup.Group
	group.SetLimit(joiners)
	for i := range n {
		group.Go(func() (err error) {
			joined[i], err = daemon.Join(ctx, cfg)
			return err
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(joined, func(h *daemon.Host) bool { return h == nil }), err
}

// Lock acquires a lock. It blocks until it has the lock, or until ctx ends, and then returns the
// cause. It returns the token, and a function that releases the lock. That returns an error also if
// the lock was lost.
type Lock func(ctx context.Context) (token layout.Ticket, unlock func() error, err error)

// OfBakeryd returns the lock of a bakeryd.
func OfBakeryd(c *client.Client, name string, o client.Options) Lock {
	return func(ctx context.Context) (layout.Ticket, func() error, error) {
		h, err := c.Lock(ctx, name, o)
		if err != nil {
			return 0, nil, err
		}
		return layout.Ticket(h.Token()), func() error { lost := h.Err(); return cmp.Or(lost, h.Unlock()) }, nil
	}
}

// OfHost returns the lock of a host in this process.
func OfHost(d *daemon.Host, r locks.Request) Lock {
	return func(ctx context.Context) (layout.Ticket, func() error, error) {
		h, err := d.Acquire(ctx, r)
		if err != nil {
			return 0, nil, err
		}
		return h.Token(), func() error { lost := h.Err(); return cmp.Or(lost, h.Release()) }, nil
	}
}
