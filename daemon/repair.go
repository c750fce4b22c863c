package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/layout"
)

// joinPatience is the number of leases that joining, waiting for the end of dead hosts, and
// repairing may take.
const joinPatience = 8

// Repaired is the outcome of one finding.
type Repaired struct {
	What   string `json:"what"` // name of the record
	Offset int64  `json:"offset"`
	Disk   int    `json:"disk,omitempty"` // position of the member disk; absent in a lockspace on one disk
	Done   string `json:"done"`           // what was done, empty if nothing was changed
	Err    error  `json:"-"`              // why nothing was changed
}

// Repair repairs the findings of Check that have Repair set: the superblock or its copy, host
// records, and unreadable directory entries. It joins the lockspace of cfg under the id of such a
// record, and for entries as an additional host. It reads every record again before it writes, and
// calls progress with what is about to be done. The results show what was not repaired; an error
// ends the repair.
func Repair(ctx context.Context, c *check.Result, cfg Config, progress func(message string)) (done []Repaired, err error) {
	var entries []check.Finding
	for _, f := range c.Findings {
		r := Repaired{What: f.What, Offset: f.Offset, Disk: f.Disk}
		switch {
		case !f.Repair:
			continue
		case f.Kind == lockspace.KindEntry:
			entries = append(entries, f)
			continue
		case f.Kind == lockspace.KindHost: // before entries, which wait for all hosts
			r.Done, r.Err = repairHost(ctx, f, c.Superblock, cfg, progress)
		default:
			if r.Err = repairSuperblock(c.PathOf(f, cfg.Devices[0]), f.Kind, progress); r.Err == nil {
				r.Done = "written again"
			}
		}
		done = append(done, r)
	}
	if len(entries) == 0 {
		return done, nil
	}
	ctx, cancel := withPatience(ctx, joinPatience*c.Superblock.Lease)
	defer cancel()
	repaired, err := repairEntries(ctx, entries, cfg, progress)
	return append(done, repaired...), err
}

func withPatience(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w: not done within %v; run bakeryctl check again", check.ErrNotRepaired, patience))
}

func repairSuperblock(path string, kind lockspace.RecordKind, progress func(string)) error {
	// This open excludes formatting on this machine, but no running host.
	dev, err := blockdev.Open(path, blockdev.Options{Exclusive: true, Killable: true})
	if err != nil {
		return err
	}
	return errors.Join(check.RewriteSuperblock(dev, kind, progress), dev.Close())
}

// repairEntries joins the lockspace and repairs its directory.
func repairEntries(ctx context.Context, entries []check.Finding, cfg Config, progress func(string)) (done []Repaired, err error) {
	cfg.repair = true
	progress("joining the lockspace as a host of its own, to hold the directory's lock")
	h, err := Join(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.CloseSoon(ctx)) }()
	r, err := locks.NewRepairer(h.Manager, progress)
	if err != nil {
		return nil, err
	}
	if err := r.Ask(ctx, entries); err != nil {
		return nil, err
	}
	for _, f := range entries {
		of := Repaired{What: f.What, Offset: f.Offset}
		of.Done, of.Err = r.Entry(ctx, f.Lock)
		done = append(done, of)
	}
	return done, nil
}

// repairHost rewrites the record of a host, unless its own host rewrites it first, by a join under its
// id, after which the record says left. The join waits first until no incarnation of that host can be
// live (ABANDONED in package lease). Then it claims the id by the long claim: a host that is live
// after all ends the claim by its next renewal.
func repairHost(ctx context.Context, f check.Finding, sb layout.Superblock, cfg Config, progress func(string)) (done string, err error) {
	t := timing.Of(sb)
	silent := t.Blind() + t.MaxWatchdog()
	ctx, cancel := withPatience(ctx, silent+joinPatience*sb.Lease)
	defer cancel()
	if sb.Policy != layout.PolicyLease {
		progress(fmt.Sprintf("%s: policy %v: host %d must be off, interrupt this if it is not", f.What, sb.Policy, f.Host))
	}
	progress(fmt.Sprintf("%s: waiting up to %v for host %d to write it, then joining as host %d, which takes about %v",
		f.What, silent.Round(time.Second/10), f.Host, f.Host, (t.LongWait() + t.Lease).Round(time.Second/10)))
	cfg.HostID, cfg.reclaim = f.Host, true
	h, err := Join(ctx, cfg)
	switch {
	case err == nil:
		err = h.settleAndLeave(ctx)
	case errors.Is(err, lease.ErrInUse), errors.Is(err, lease.ErrNotLeft):
		return "", nil // its own host has written it
	case errors.Is(err, hostid.ErrTaken):
		err = fmt.Errorf("%w: bakeryd of host %d runs on this machine and writes the record when it renews its lease: %w", check.ErrNotRepaired, f.Host, err)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("written as host %d, which has left", f.Host), nil
}

// settleAndLeave leaves once no other incarnation of this host's id can be live.
func (h *Host) settleAndLeave(ctx context.Context) (err error) {
	for err == nil {
		known, changed := h.mem.Known()
		if known[h.mem.ID()-1].Settled {
			break
		}
		select {
		case <-changed:
		case <-h.mem.Lost():
			err = h.mem.Err()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return errors.Join(err, h.CloseSoon(ctx))
}

// CloseSoon leaves the lockspace, even if ctx is done. If a lock cannot be released, it ends the lease
// instead, as the end of the process would: other hosts wait for that.
func (h *Host) CloseSoon(ctx context.Context) error {
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*h.times().Grace())
	defer cancel()
	err := h.Manager.Close(soon)
	if err == nil {
		return h.Close(soon)
	}
	h.mem.LoseFor(err)
	soon, cancel = context.WithTimeout(context.WithoutCancel(ctx), h.times().Grace())
	defer cancel()
	return errors.Join(err, h.giveUp(soon))
}
