package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// evictAnswer is the outcome of an eviction.
type evictAnswer struct {
	// dead: its locks are free; asked: it still renews and was asked to leave
	Outcome string `json:"outcome"`
}

// Evict publishes that a host is dead. If the host still renews, it is asked to leave instead and
// dead is false: no host acts on that before it has left. Evict returns when that is durable, or
// the reasons of package lease.
func (d *Daemon) Evict(ctx context.Context, host int, incarnation uint64, forget bool) (dead bool, err error) {
	err = d.mem.Evict(host, incarnation, forget)
	if err != nil {
		return false, err // names the host and the reason
	}
	d.cfg.Tally.Evictions.Add(1)
	if host == d.mem.ID() {
		return false, nil // this host leaves once its holders have stopped
	}
	for {
		known, changed := d.mem.Known()
		h := known[host-1]
		switch {
		case h.Incarnation != incarnation || h.State == layout.StateLeft || h.Gone && (h.Forgotten || !forget):
			return true, nil
		case d.mem.HasAsked(host, incarnation):
			return false, nil
		}
		select {
		case <-changed:
		case <-d.mem.Over():
			return false, fmt.Errorf("evict host %d: %w: %w", host, api.ErrUnavailable, api.ErrLeaseLost)
		case <-ctx.Done():
			return false, fmt.Errorf("evict host %d: %w", host, context.Cause(ctx))
		}
	}
}

// evictPatience limits how long a verdict may take to be written.
const evictPatience = 30 * time.Second

// isEvictRefusal reports whether an eviction was refused as invalid, and did not fail.
func isEvictRefusal(err error) bool {
	for _, e := range []error{lease.ErrNoHost, lease.ErrChanged, lease.ErrHasLeft, lease.ErrSelf, lease.ErrJoining, lease.ErrDead,
		lease.ErrNotLive, lease.ErrNoRoom} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
