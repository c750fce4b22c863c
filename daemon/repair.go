package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// ErrNotRepaired is returned when something that Repair mends cannot be mended now: the text says why, and what to do.
var ErrNotRepaired = errors.New("not repaired")

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
func Repair(ctx context.Context, path string, c *Checkup, o RepairOptions) (done []Repaired, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Config.Logger == nil {
		o.Config.Logger = slog.New(slog.DiscardHandler)
	}
	var entries []Finding
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
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w: not done within %v; run bakeryctl check again", ErrNotRepaired, patience))
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
	return errors.Join(rewriteSuperblock(dev, kind, progress), dev.Close())
}

// rewriteSuperblock writes the superblock, or its copy, from the other one.
//
// Hosts may be running. They look at both with each renewal, and go on if either of them is that of their
// lockspace: the good one is not touched, and the other one is half written at worst, which is no worse than
// damaged. Formatting is told by its mark, which is the first that it writes; should it begin between the look and
// this write, it zeroes what was written, or writes over it, or finds out when it reads back what it wrote.
func rewriteSuperblock(dev blockdev.Device, kind lockspace.RecordKind, progress func(string)) error {
	sb, copyUsed, err := lockspace.FindLockspace(dev)
	if err != nil {
		return err
	}
	bad, good := 0, 1
	if kind == lockspace.KindCopy {
		bad, good = 1, 0
	}
	g := sb.Geometry
	if copyUsed != good && bad == 0 {
		return nil // whole by now
	}
	head, err := lockspace.ReadHead(dev)
	if err != nil {
		return err
	}
	if _, formatting := lockspace.FindMark(head); formatting {
		return fmt.Errorf("%w: %w; bakeryctl format --force completes it", ErrNotRepaired, lockspace.ErrInterrupted)
	}
	at := g.Superblock(bad)
	found, err := layout.DecodeSuperblock(head[at:], bad)
	switch {
	case err == nil && found == sb:
		return nil // whole by now
	case err == nil:
		return fmt.Errorf("%w: the superblock is of lockspace %s, the copy of %s", ErrNotRepaired, lockspace.DescribeSuperblock(sb), lockspace.DescribeSuperblock(found))
	}
	buf := lockspace.Pool.Get(g.Stride)
	defer lockspace.Pool.Put(buf)
	if err := sb.Encode(buf, bad); err != nil {
		return err
	}
	from := []string{"the superblock at byte 0", fmt.Sprintf("its copy at byte %d", g.Superblock(1))}[good]
	progress(fmt.Sprintf("%s at byte %d: writing it again from %s", lockspace.Record{Kind: kind}.What(), at, from))
	return writeBack(dev, buf, at)
}

// writeBack writes a record and sees whether it is there.
func writeBack(dev blockdev.Device, buf []byte, at int64) error {
	if err := dev.Write(buf, at); err != nil {
		return err
	}
	back := lockspace.Pool.Get(len(buf))
	defer lockspace.Pool.Put(back)
	if err := dev.Read(back, at); err != nil {
		return err
	}
	if !bytes.Equal(back, buf) {
		return fmt.Errorf("%w: byte %d", format.ErrVerify, at)
	}
	return nil
}

// repairEntries joins the lockspace and mends its directory.
func repairEntries(ctx context.Context, path string, entries []Finding, o RepairOptions) (done []Repaired, err error) {
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
	ex := examiner{dev: d.dev, sb: d.sb, space: d.sb.Space()}
	p, err := ex.look([]int{lockspace.DirectoryLock})
	if err != nil {
		return nil, err
	}
	others := func(s layout.Slot) bool { return s.Host != d.mem.id() }
	return &repairer{d: d, progress: progress, before: slices.DeleteFunc(p.slots[lockspace.DirectoryLock], others)}, nil
}

// look reads all that it takes to tell what an entry was, as it is without this host.
func (r *repairer) look(dev blockdev.Device, number int) (*picture, error) {
	d := r.d
	ex := examiner{dev: dev, sb: d.sb, space: d.sb.Space()}
	p, err := ex.look([]int{lockspace.DirectoryLock, number})
	if err != nil {
		return nil, err
	}
	own := func(s layout.Slot) bool { return s.Host == d.mem.id() }
	// What an incarnation before this one was about to write can no longer land, but it tells what the entry was.
	p.slots[lockspace.DirectoryLock] = append(slices.DeleteFunc(p.slots[lockspace.DirectoryLock], own), r.before...)
	delete(p.hosts, d.mem.id())
	p.damaged = slices.DeleteFunc(p.damaged, func(r lockspace.Record) bool { return r.Kind == lockspace.KindEntry })
	w := lockspace.Walker{Dev: ex.dev, Space: ex.space, Visit: p.add}
	return p, w.Entries()
}

// ask has the hosts that are up restore what they know, and gives them the time for that.
func (r *repairer) ask(ctx context.Context, entries []Finding) error {
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
	p, err := r.look(r.d.dev, number)
	if err != nil {
		return "", err
	}
	if plan := p.remedy(number, nil); plan.err == nil && plan.entry.Free() {
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
	p, err := r.look(guard.dev, number)
	if err != nil {
		return "", err
	}
	up, err := d.others()
	if err != nil {
		return "", err
	}
	plan := p.remedy(number, up)
	if plan.err != nil {
		return "", plan.err
	}
	at := d.sb.Geometry.Entry(number)
	r.progress(fmt.Sprintf("directory entry of lock %d at byte %d: %s", number, at, plan.what))
	if plan.entry.Free() {
		if err := d.mark(plan.entry); err != nil {
			return "", err
		}
	}
	if err := d.restoreEntry(guard, plan.entry); err != nil {
		return "", err
	}
	return plan.what, nil
}

// readable tells whether an entry can be read after all.
func (dir *directory) readable(lock int) (bool, error) {
	for range checkRounds {
		_, err := dir.read(lock)
		if err == nil {
			return true, nil
		}
		if !lockspace.IsBadSector(err) && !undecodable(err) {
			return false, err
		}
		time.Sleep(checkPause)
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
				return refuseUp(text.HostName(i+1, h.Name))
			}
		}
		if time.Now().After(give) {
			return refuseUp(up[0])
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

func refuseUp(who string) error {
	return fmt.Errorf("%w: %s may be up and know the entry, and did not restore it when asked; "+
		"stop bakeryd on all hosts, evict those that are dead, then run bakeryctl check --repair again", ErrNotRepaired, who)
}
