package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
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
	What   string
	Offset int64
	Done   string // what was done, empty if nothing was changed
	Err    error  // why nothing was changed
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
	mended, err := repairEntries(ctx, path, entries, o)
	return append(done, mended...), err
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
	d := New(o.Config)
	o.Progress("joining the lockspace as a host of its own, to hold the directory's lock")
	if err := d.Join(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.closeSoon(ctx)) }()
	mender, err := newRepairer(d, o.Progress)
	if err != nil {
		return nil, err
	}
	if err := mender.ask(ctx, entries); err != nil {
		return nil, err
	}
	for _, f := range entries {
		r := Repaired{What: f.What, Offset: f.Offset}
		r.Done, r.Err = mender.entry(ctx, f.Lock)
		done = append(done, r)
	}
	return done, nil
}

// repairer repairs the directory as a host of the lockspace.
type repairer struct {
	d        *Daemon
	progress func(string)
	// this host's slots in the directory's lock, as an earlier incarnation left them
	before []layout.Slot
}

func newRepairer(d *Daemon, progress func(string)) (*repairer, error) {
	before, err := check.ReadIntents(d.dev, d.sb, d.mem.ID())
	if err != nil {
		return nil, err
	}
	return &repairer{d: d, progress: progress, before: before}, nil
}

// ask requests that live hosts restore the entries that they know, and waits up to a lease.
func (r *repairer) ask(ctx context.Context, entries []check.Finding) error {
	var damaged []int
	for _, f := range entries {
		damaged = append(damaged, f.Lock)
	}
	for give := time.Now().Add(r.d.sb.Lease); time.Now().Before(give); {
		damaged = slices.DeleteFunc(damaged, func(number int) bool { _, err := r.d.dir.read(number); return err == nil })
		up, err := r.d.others()
		if err != nil || len(up)*len(damaged) == 0 {
			return err
		}
		r.d.complainOfEntries(damaged, true)
		if err := retry.Pause(ctx, r.d.retry()); err != nil {
			return err
		}
	}
	return nil
}

// entry repairs an unreadable directory entry. done is empty if it was readable again.
func (r *repairer) entry(ctx context.Context, number int) (done string, err error) {
	if ok, err := r.d.dir.readable(number); ok || err != nil {
		return "", err // another host has restored it
	}
	plan, err := check.PlanEntryRepair(r.d.dev, r.d.sb, number, r.d.mem.ID(), r.before, nil)
	if err != nil {
		return "", err
	}
	if plan.Err == nil && plan.Entry.Free() {
		// before acquiring the directory's lock: it may take a lease
		if err := r.d.awaitAlone(ctx, r.progress); err != nil {
			if ok, _ := r.d.dir.readable(number); ok {
				return "", nil // restored meanwhile
			}
			return "", err
		}
	}
	err = r.d.guarded(ctx, "repair the directory", func(guard *lock) error {
		done, err = r.guarded(guard, number)
		return err
	})
	return done, err
}

// guarded repairs the entry under the directory's lock: now only dead hosts may have a write of it
// in flight.
func (r *repairer) guarded(guard *lock, number int) (done string, err error) {
	d := r.d
	if ok, err := d.dir.on(guard.dev).readable(number); ok || err != nil {
		return "", err
	}
	plan, err := check.PlanEntryRepair(guard.dev, d.sb, number, d.mem.ID(), r.before, d.others)
	if err != nil {
		return "", err
	}
	if plan.Err != nil {
		return "", plan.Err
	}
	at := d.sb.Geometry.Entry(number)
	r.progress(fmt.Sprintf("directory entry of lock %d at byte %d: %s", number, at, plan.What))
	if plan.Entry.Free() {
		if err := d.mark(plan.Entry); err != nil {
			return "", err
		}
	}
	if err := d.restoreEntry(guard, plan.Entry); err != nil {
		return "", err
	}
	return plan.What, nil
}

// readable reports whether an entry is readable within check.Rounds reads.
func (dir *directory) readable(lock int) (bool, error) {
	for range check.ConfirmRounds {
		_, err := dir.read(lock)
		if err == nil {
			return true, nil
		}
		if !lockspace.IsBadSector(err) && !undecodable(err) {
			return false, err
		}
		time.Sleep(check.ConfirmPause)
	}
	return false, nil
}

// undecodable reports whether the error is that of a damaged record, not of a device.
func undecodable(err error) bool {
	for _, of := range []error{layout.ErrMagic, layout.ErrVersion, layout.ErrChecksum, layout.ErrIdentity, layout.ErrField} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// restoreEntry writes an entry over an unreadable one, under the directory's lock.
func (d *Daemon) restoreEntry(guard *lock, e layout.Entry) error {
	if err := d.carryOut(guard); err != nil {
		return err
	}
	// this host's own intent has restored it
	if ok, err := d.dir.on(guard.dev).readable(e.Lock); ok || err != nil {
		return err
	}
	if err := d.put(guard, e); err != nil {
		return err
	}
	if found, err := d.dir.on(guard.dev).read(e.Lock); err != nil || found != e {
		return errors.Join(err, fmt.Errorf("%w: directory entry of lock %d", format.ErrVerify, e.Lock))
	}
	return nil
}

// mark writes a slot in the entry's place that shows the creation id of the new entry.
func (d *Daemon) mark(e layout.Entry) error {
	e.Permits = 1 // the machine requires one
	lk, err := d.attach(e)
	if err != nil {
		return err
	}
	return lk.do(func() error { return lk.publish(func(*layout.Slot) {}) })
}

// others returns the other hosts that may be up, by a read of the host table that begins now.
func (d *Daemon) others() (up []string, err error) {
	hosts, _, err := d.mem.ReadHosts()
	if err != nil {
		return nil, err
	}
	known, _ := d.mem.Known()
	for i, h := range hosts {
		// A joiner has read no entry, and its earlier incarnations are over once it is settled.
		switch over := h.Readable && !h.Unsettled && (h.Gone || known[i].State == layout.StateJoining); {
		case over || i+1 == d.mem.ID():
		case !h.Readable:
			up = append(up, fmt.Sprintf("host %d, whose record cannot be read,", i+1))
		default:
			up = append(up, text.HostName(i+1, known[i].Name))
		}
	}
	return up, nil
}

// awaitAlone waits until every other host is known to be dead or to have left, at most as long as
// that takes. A host that renews meanwhile is up.
func (d *Daemon) awaitAlone(ctx context.Context, progress func(string)) error {
	hosts, _ := d.mem.Known()
	before := slices.Clone(hosts)
	longest := d.times().Dead() + d.times().Alive()
	for _, h := range before {
		longest = max(longest, d.times().Dead()+d.times().Alive()+h.Watchdog)
	}
	told := false
	for give := time.Now().Add(longest); ; {
		up, err := d.others()
		if err != nil || len(up) == 0 {
			return err
		}
		now, _ := d.mem.Known()
		for i, h := range now {
			if i+1 != d.mem.ID() && !h.Gone && h.Incarnation != 0 && (i >= len(before) || h.Incarnation != before[i].Incarnation || h.Sequence != before[i].Sequence) {
				return check.RefuseWhileUp(text.HostName(i+1, h.Name))
			}
		}
		if time.Now().After(give) {
			return check.RefuseWhileUp(up[0])
		}
		if !told {
			told = true
			progress(fmt.Sprintf("waiting up to %v to make sure that no other host is up: %s", longest.Round(time.Second), up[0]))
		}
		if err := retry.Pause(ctx, d.retry()); err != nil {
			return err
		}
	}
}
