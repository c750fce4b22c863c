package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
)

// RepairOptions are the options of a repair. The zero value is usable.
type RepairOptions struct {
	Progress func(message string) // is called with what is about to be done; nil if none
	// of the host that joins to repair the directory; Device is not used
	Config Config
}

// joinPatience is the number of leases that joining, waiting for the end of dead hosts, and
// repairing may take.
const joinPatience = 8

// Repaired is the outcome of one finding.
type Repaired struct {
	What   string `json:"what"`
	Offset int64  `json:"offset"`
	Done   string `json:"done"` // what was done, empty if nothing was changed
	Err    error  `json:"-"`    // why nothing was changed
}

// Repair repairs the findings of Check that have Repair set: the superblock or its copy, host
// records, and unreadable directory entries. It joins the lockspace under the id of such a record,
// and for entries as an additional host. It reads every record again before it writes. The results
// show what was not repaired; an error ends the repair.
func Repair(ctx context.Context, path string, c *check.Result, o RepairOptions) (done []Repaired, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Config.Logger == nil {
		o.Config.Logger = slog.New(slog.DiscardHandler)
	}
	var entries []check.Finding
	for _, f := range c.Findings {
		switch {
		case !f.Repair:
		case f.Kind == lockspace.KindEntry:
			entries = append(entries, f)
		case f.Kind == lockspace.KindHost: // before entries, which wait for all hosts
			done = append(done, repairHost(ctx, path, f, c.Superblock, o))
		default:
			r := Repaired{What: f.What, Offset: f.Offset}
			if r.Err = repairSuperblock(path, f.Kind, o.Progress); r.Err == nil {
				r.Done = "written again"
			}
			done = append(done, r)
		}
	}
	if len(entries) == 0 {
		return done, nil
	}
	patience := joinPatience * c.Superblock.Lease
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w: not done within %v; run bakeryctl check again", check.ErrNotRepaired, patience))
	defer cancel()
	repaired, err := repairEntries(ctx, path, entries, o)
	return append(done, repaired...), err
}

func repairSuperblock(path string, kind lockspace.RecordKind, progress func(string)) error {
	// This open excludes formatting on this machine, but no running host.
	dev, err := blockdev.Open(path, blockdev.Options{Exclusive: true})
	if err != nil {
		return err
	}
	return errors.Join(check.RewriteSuperblock(dev, kind, progress), dev.Close())
}

// repairEntries joins the lockspace and repairs its directory.
func repairEntries(ctx context.Context, path string, entries []check.Finding, o RepairOptions) (done []Repaired, err error) {
	o.Config.Device, o.Config.repair = path, true
	o.Progress("joining the lockspace as a host of its own, to hold the directory's lock")
	h, err := Join(ctx, o.Config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.closeSoon(ctx)) }()
	r, err := locks.NewRepairer(h.Manager, o.Progress)
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
