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

// Client acquires and releases a lock repeatedly. One goroutine uses it.
type Client struct {
	acquire func(context.Context) (hold, error)
	held    hold
}

// hold is a hold of a bakeryd or of a host in this process.
type hold interface {
	Token() layout.Ticket
	Err() error
	Unlock() error
}

// OfBakeryd returns a client that acquires a lock from a bakeryd.
func OfBakeryd(c *client.Client, name string, o client.Options) *Client {
	return &Client{acquire: func(ctx context.Context) (hold, error) { return c.Lock(ctx, name, o) }}
}

// OfHost returns a client that acquires a lock from a host in this process.
func OfHost(d *daemon.Host, r locks.Request) *Client {
	return &Client{acquire: func(ctx context.Context) (hold, error) {
		h, err := d.Acquire(ctx, r)
		return inProcess{h}, err
	}}
}

type inProcess struct{ *locks.Hold }

func (h inProcess) Unlock() error { return h.Release() }

// Lock blocks until it has acquired the lock, or until ctx ends, and then returns the cause.
func (c *Client) Lock(ctx context.Context) (layout.Ticket, error) {
	h, err := c.acquire(ctx)
	if err != nil {
		return 0, err
	}
	c.held = h
	return h.Token(), nil
}

// Unlock releases the lock. It returns an error also if the lock was lost.
func (c *Client) Unlock() error {
	lost := c.held.Err()
	return cmp.Or(lost, c.held.Unlock())
}
