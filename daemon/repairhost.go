package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/layout"
)

// A host record that its own host does not rewrite is rewritten by a join under its id, after which
// the record says left. The join waits first until no incarnation of that host can be live
// (ABANDONED in package lease). Then it claims the id by the long claim: a host that is live after
// all ends the claim by its next renewal.

// repairHost rewrites the record of a host by joining under its id, unless its own host rewrites it
// first.
func repairHost(ctx context.Context, path string, f check.Finding, sb layout.Superblock, o RepairOptions) Repaired {
	r := Repaired{What: f.What, Offset: f.Offset}
	t := timing.Times{Lease: sb.Lease}
	silent := t.Blind() + t.MaxWatchdog()
	patience := silent + joinPatience*sb.Lease
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w: not done within %v; run bakeryctl check again", check.ErrNotRepaired, patience))
	defer cancel()
	if sb.Policy != layout.PolicyLease {
		o.Progress(fmt.Sprintf("%s: policy %v: host %d must be off, interrupt this if it is not", f.What, sb.Policy, f.Host))
	}
	o.Progress(fmt.Sprintf("%s: waiting up to %v for host %d to write it, then joining as host %d, which takes about %v",
		f.What, silent.Round(time.Second/10), f.Host, f.Host, (t.LongWait() + t.Lease).Round(time.Second/10)))
	o.Config.Device, o.Config.HostID, o.Config.reclaim = path, f.Host, true
	h, err := Join(ctx, o.Config)
	switch {
	case err == nil:
		err = h.settleAndLeave(ctx)
	case errors.Is(err, lease.ErrInUse), errors.Is(err, lease.ErrNotLeft):
		return r // its own host has written it
	case errors.Is(err, hostid.ErrTaken):
		err = fmt.Errorf("%w: bakeryd of host %d runs on this machine and writes the record when it renews its lease: %w", check.ErrNotRepaired, f.Host, err)
	}
	if r.Err = err; err == nil {
		r.Done = fmt.Sprintf("written as host %d, which has left", f.Host)
	}
	return r
}

// settleAndLeave leaves once no other incarnation of this host's id can be live.
func (h *Host) settleAndLeave(ctx context.Context) error {
	for {
		known, changed := h.mem.Known()
		if known[h.mem.ID()-1].Settled {
			break
		}
		select {
		case <-changed:
		case <-h.mem.Lost():
			return errors.Join(h.mem.Err(), h.closeSoon(ctx))
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), h.closeSoon(ctx))
		}
	}
	return h.closeSoon(ctx)
}

// closeSoon leaves the lockspace, even if ctx is done.
func (h *Host) closeSoon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*h.times().Grace())
	defer cancel()
	return h.Close(ctx)
}
