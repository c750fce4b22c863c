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
func (h *Host) Evict(ctx context.Context, id int, incarnation uint64, forget bool) (dead bool, err error) {
	err = h.mem.Evict(id, incarnation, forget)
	if err != nil {
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
