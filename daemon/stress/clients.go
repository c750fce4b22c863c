package stress

import (
	"cmp"
	"context"
	"os"

	"github.com/bakeryd/bakeryd/daemon/client"
)

// Clients is a lock of one or several bakeryds that share a lockspace. The workers are
// distributed over their sockets.
type Clients struct {
	Sockets []string // at least one
	Name    string   // of the lock
}

func (b Clients) open(ctx context.Context, r *run) ([]access, error) {
	all := make([]access, r.cfg.Workers)
	for i := range all {
		all[i] = &guest{
			daemonAccess: daemonAccess{run: r, ctx: ctx, worker: i + 1, name: b.Name},
			c:            client.New(b.Sockets[i%len(b.Sockets)]),
		}
	}
	return all, nil
}

// guest takes the lock from bakeryd.
type guest struct {
	daemonAccess
	c *client.Client
	h *client.Hold
}

func (a *guest) lock() (grant, error) {
	h, err := a.c.Lock(a.ctx, a.name, client.Options{
		PID: os.Getpid(), Command: a.command(), OnWaiting: a.onWaiting(),
	})
	if err != nil {
		return grant{}, err
	}
	a.h = h
	return a.granted(grant{ticket: h.Token()}), nil
}

func (a *guest) unlock() error {
	lost := a.h.Err()
	return cmp.Or(lost, a.h.Unlock())
}

func (a *guest) close() error { return nil }
