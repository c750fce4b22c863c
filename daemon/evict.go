package daemon

import (
	"context"
	"fmt"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// Evict publishes that a host is dead. If the host still renews, it is asked to leave instead and
// dead is false: no host acts on that before it has left. Evict returns when that is durable, or
// the reasons of package lease.
func (h *Host) Evict(ctx context.Context, id int, incarnation uint64, forget bool) (dead bool, err error) {
	if hosts := h.disk.SB.Geometry.Hosts; id < 1 || id > hosts {
		return false, fmt.Errorf("%w: host %d, want 1 to %d", api.ErrInvalid, id, hosts)
	}
	if err = h.mem.Evict(id, incarnation, forget); err != nil {
		return false, err // names the host and the reason
	}
	h.cfg.Tally.Evictions.Add(1)
	if id == h.mem.ID() {
		return false, nil // this host leaves once its holders have stopped
	}
	for {
		known, changed := h.mem.Known()
		of := known[id-1]
		switch {
		case of.Incarnation != incarnation || of.State == layout.StateLeft || of.Gone && (of.Forgotten || !forget):
			return true, nil
		case h.mem.HasAsked(id, incarnation):
			return false, nil
		}
		select {
		case <-changed:
		case <-h.mem.Over():
			return false, fmt.Errorf("evict host %d: %w: %w", id, api.ErrUnavailable, api.ErrLeaseLost)
		case <-ctx.Done():
			return false, fmt.Errorf("evict host %d: %w", id, context.Cause(ctx))
		}
	}
}
