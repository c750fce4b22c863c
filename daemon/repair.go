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

// RepairOptions say how to repair. The zero value is of use.
type RepairOptions struct {
	Progress func(message string) // is told what is about to be done; may be nil
	Config   Config               // of the host that is joined to mend the directory; Device is not used
}

// joinPatience is how many leases it may take to join, to wait for the end of dead hosts, and to repair.
const joinPatience = 8

// Repaired is what came of one finding.
type Repaired struct {
	What   string
	Offset int64
	Done   string // in words; empty: nothing was changed
	Err    error  // why nothing was changed
}

// Repair repairs the findings of Check that have Repair set: the superblock or its copy, host
// records, and directory entries that cannot be read. It joins the lockspace under the id of such a
// record, and for entries as one more host. It reads everything again before it writes. The results
// say what was not repaired; an error ends the repair.
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
		case f.Kind == lockspace.KindHost: // these come before entries, which wait for all hosts
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
	// Nobody formats the device on this machine while it is open so; hosts do not open it so.
	dev, err := blockdev.Open(path, blockdev.Options{Exclusive: true})
	if err != nil {
		return err
	}
	return errors.Join(check.RewriteSuperblock(dev, kind, progress), dev.Close())
}

// repairEntries joins the lockspace and mends its directory.
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

// repairer mends the directory as a host of the lockspace.
type repairer struct {
	d        *Daemon
	progress func(string)
	before   []layout.Slot // this host's in the internal lock, as an incarnation before left it
}

func newRepairer(d *Daemon, progress func(string)) (*repairer, error) {
	before, err := check.Intents(d.dev, d.sb, d.mem.id())
	if err != nil {
		return nil, err
	}
	return &repairer{d: d, progress: progress, before: before}, nil
}

// ask has the hosts that are up restore what they know, and gives them the time for that.
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

// entry mends a directory entry that cannot be read.
func (r *repairer) entry(ctx context.Context, number int) (done string, err error) {
	if ok, err := r.d.dir.readable(number); ok || err != nil {
		return "", err // a host that was asked has restored it
	}
	plan, err := check.FindRemedy(r.d.dev, r.d.sb, number, r.d.mem.id(), r.before, nil)
	if err != nil {
		return "", err
	}
	if plan.Err == nil && plan.Entry.Free() {
		if err := r.d.awaitAlone(ctx, r.progress); err != nil { // before the directory is locked: it may take a lease
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

// guarded does it under the lock that guards the directory: nobody writes an entry now but who is dead.
func (r *repairer) guarded(guard *lock, number int) (done string, err error) {
	d := r.d
	if ok, err := d.dir.on(guard.dev).readable(number); ok || err != nil {
		return "", err
	}
	plan, err := check.FindRemedy(guard.dev, d.sb, number, d.mem.id(), r.before, d.others)
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

// readable tells whether an entry can be read after all.
func (dir *directory) readable(lock int) (bool, error) {
	for range check.Rounds {
		_, err := dir.read(lock)
		if err == nil {
			return true, nil
		}
		if !lockspace.IsBadSector(err) && !undecodable(err) {
			return false, err
		}
		time.Sleep(check.Pause)
	}
	return false, nil
}

// undecodable tells what is wrong with a record from what is wrong with a device.
func undecodable(err error) bool {
	for _, of := range []error{layout.ErrMagic, layout.ErrVersion, layout.ErrChecksum, layout.ErrIdentity, layout.ErrField} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// restoreEntry writes an entry in place of one that cannot be read, under the directory's lock.
func (d *Daemon) restoreEntry(guard *lock, e layout.Entry) error {
	if err := d.carryOut(guard); err != nil {
		return err
	}
	if ok, err := d.dir.on(guard.dev).readable(e.Lock); ok || err != nil { // it was what this host was about to write
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

// mark leaves a slot in a lock's place that tells of the creation of the entry to come.
func (d *Daemon) mark(e layout.Entry) error {
	e.Permits = 1 // as a machine wants it
	lk, err := d.attach(e)
	if err != nil {
		return err
	}
	return lk.do(func() error { return lk.publish(func(*layout.Slot) {}) })
}

// others returns which other hosts may be up, by a read of the host table made now.
func (d *Daemon) others() (up []string, err error) {
	hosts, _, err := d.mem.readHosts()
	if err != nil {
		return nil, err
	}
	known, _ := d.mem.known()
	for i, h := range hosts {
		// A joiner has read no entry, and earlier incarnations are over once it is settled.
		switch over := h.Readable && !h.Unsettled && (h.Gone || known[i].State == layout.StateJoining); {
		case over || i+1 == d.mem.id():
		case !h.Readable:
			up = append(up, fmt.Sprintf("host %d, whose record cannot be read,", i+1))
		default:
			up = append(up, text.HostName(i+1, known[i].Name))
		}
	}
	return up, nil
}

// awaitAlone waits until every other host is known to be dead or has left, for as long as that is told by time. Who
// renews meanwhile is up.
func (d *Daemon) awaitAlone(ctx context.Context, progress func(string)) error {
	hosts, _ := d.mem.known()
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
		now, _ := d.mem.known()
		for i, h := range now {
			if i+1 != d.mem.id() && !h.Gone && h.Incarnation != 0 && (i >= len(before) || h.Incarnation != before[i].Incarnation || h.Sequence != before[i].Sequence) {
				return check.RefuseUp(text.HostName(i+1, h.Name))
			}
		}
		if time.Now().After(give) {
			return check.RefuseUp(up[0])
		}
		if !told {
			told = true
			progress(fmt.Sprintf("waiting up to %v until it is known that nobody is up: %s", longest.Round(time.Second), up[0]))
		}
		if err := retry.Pause(ctx, d.retry()); err != nil {
			return err
		}
	}
}
