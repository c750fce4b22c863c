package locks

import (
	"context"
	"fmt"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// DirectoryHold is a hold of the directory's lock. Meanwhile no other host creates or removes a lock, and
// no other process replaces a member disk.
type DirectoryHold struct {
	mgr  *Manager
	hold *Hold
}

// HoldDirectory calls f while this host holds the directory's lock. The context of f ends with ctx, or when
// the lease is lost.
func (m *Manager) HoldDirectory(ctx context.Context, what string, f func(context.Context, DirectoryHold) error) error {
	return m.guardedHold(ctx, what, func(h *Hold) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-h.Lost():
				cancel(h.Err())
			case <-over:
			}
		}()
		return f(ctx, DirectoryHold{m, h})
	})
}

// Ticket returns the ticket of the hold. It is greater than that of every earlier hold.
func (d DirectoryHold) Ticket() layout.Ticket { return d.hold.Token() }

// Check returns an error if the lease is about to end: no write may begin.
func (d DirectoryHold) Check() error {
	if ok, _ := d.mgr.mem.MayWrite(d.mgr.disk.Clock.Now()); !ok {
		return fmt.Errorf("%w: the lease is about to end", api.ErrUnavailable)
	}
	return nil
}

// Settle rewrites each entry that fewer than a majority of the member disks in use show: FORWARD.
func (d DirectoryHold) Settle() error { return d.mgr.settle(d.hold.Lock()) }
