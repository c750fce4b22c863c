// Package replacement replaces a member disk of a lockspace on several while hosts use it, as a host of its
// own. Package daemon/lockspace/replace knows the new disk. Start reading at [Replace].
package replacement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/lockspace/replace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/daemon/waiting"
	"github.com/bakeryd/bakeryd/layout"
)

var (
	// ErrRefused is returned when a member disk cannot be replaced, and nothing was changed.
	ErrRefused = errors.New("the disk was not replaced")

	// ErrIncomplete is returned when a replacement was interrupted. Hosts use the lockspace without a disk at
	// the position. The next replacement of it continues.
	ErrIncomplete = errors.New("the replacement is not complete")
)

// joinPatience is the number of leases that a host may take to notice the new list.
const joinPatience = 8

// Order is a member disk and the disk that takes its position.
type Order struct {
	Old   string // position, uuid or path of the member
	New   string // path of the new disk
	Force bool   // whether to destroy what the new disk has

	Progress func(message string)
	Counter  lockspace.Counter // progress of long steps; nil if not needed
}

// Replaced is the outcome of the replacement of a disk.
type Replaced struct {
	Lockspace layout.Superblock `json:"-"` // with the new list of members
	Position  int               `json:"disk"`
	Old       layout.UUID       `json:"old,omitzero"`         // zero if the position was vacant
	OldDevice string            `json:"old_device,omitempty"` // its path; "" if unknown
	New       layout.UUID       `json:"new"`                  // UUID of the new disk
	Device    string            `json:"device"`
	// Unreadable is the number of records on the new disk that no reader accepts, because they could
	// not be read. Their hosts write them again.
	Unreadable int    `json:"unreadable"`
	Warning    string `json:"warning,omitempty"` // what failed after the disk was replaced; "" if nothing
}

// Replace makes another disk the member at the position of a lost or an old one, while hosts use the
// lockspace. It joins as an additional host R, and holds the directory's lock (lock 0) from the first
// change to the last. A list of members has an epoch. It is the ticket of that hold for the first list that
// R writes, and one more for the second one.
//
//	step                                             | members that count
//	-------------------------------------------------|-----------------------------------------
//	VACATE: the newest list, with the position       | f+1 of the 2f others; the old disk does
//	  vacant, on f+1 of the others                   | where a host does not use this list yet
//	FOLLOW: wait until every host that is live or    | f+1 of the 2f others
//	  joining shows exactly this epoch               |
//	COPY: zeroes, then every record, to the new disk | the same
//	FILL: the list with the new disk, on the new     | f+1 of the 2f others and the new disk,
//	  disk and on f+1 of the others                  | where a host uses this list already
//	FOLLOW                                           | f+1 of all
//
// The lists of any two hosts are the same, or one has a vacant position where the other has a disk. A vacant
// position counts as a disk that is down, so their majorities have a disk in common. A write in the list
// before VACATE is on f of the others or more. COPY reads f+1 of these after the last such write was
// complete. A later write is on f+1 of them, whatever the new disk has.
//
// R writes lists with the set's own majority, and a list that it could not finish ends its lease: the next
// holder of the lock waits until no write of R can land.
//
// It returns the errors of package replace and ErrRefused if nothing was changed, ErrIncomplete with the
// cause if it was interrupted later, and the errors of Join.
func Replace(ctx context.Context, cfg daemon.Config, o Order) (*Replaced, error) {
	r, err := planReplacement(ctx, cfg, o)
	given := slices.ContainsFunc(cfg.Devices, func(path string) bool { return path == o.New || sameFile(path, o.New) })
	if errors.Is(err, replace.ErrFormer) && !given { // an interrupted FILL wrote the list there first
		cfg.Devices = append(slices.Clip(cfg.Devices), o.New)
		r, err = planReplacement(ctx, cfg, o)
	}
	if err != nil {
		return nil, err
	}
	o.Progress("joining the lockspace as a host of its own, to hold the directory's lock")
	cfg.Waiting = new(waiting.Stage)
	over := o.reportWaits(cfg.Waiting.String)
	r.host, err = daemon.Join(ctx, cfg)
	over()
	if err == nil {
		r.disks = r.host.Disks()
		r.holding = o.reportWaits(r.silentHosts)
		err = r.host.HoldDirectory(ctx, "replace a member disk", r.run)
		r.holding()
		left := r.host.CloseSoon(ctx)
		if r.complete && cmp.Or(err, left) != nil {
			r.done.Warning, err, left = errors.Join(err, left).Error(), nil, nil
		}
		err = errors.Join(err, left)
	}
	if err = errors.Join(err, r.disk.Close()); err != nil {
		return nil, err
	}
	return &r.done, nil
}

// replacement is one run of Replace.
type replacement struct {
	Order
	planned layout.Members // when the disks were checked
	disk    *replace.Disk
	done    Replaced
	// complete reports that the new disk is a member, whatever fails later.
	complete bool

	holding func() // ends the reports of what the directory's lock waits for

	clock clock.Clock
	times timing.Times
	host  *daemon.Host
	disks *lockspace.Disks
}

// planReplacement opens and checks the new disk. It changes nothing. The caller closes the disk.
func planReplacement(ctx context.Context, cfg daemon.Config, o Order) (r *replacement, err error) {
	readOnly := cfg.Disks
	readOnly.ReadOnly = true
	dev, sb, _, err := lockspace.OpenDisks(cfg.Devices, readOnly)
	if err != nil {
		return nil, err
	}
	disks := lockspace.MemberDisks(dev)
	if err := dev.Close(); err != nil && !errors.Is(err, mirror.ErrInFlight) { // reads of a disk that hangs may return later
		return nil, err
	}
	if disks == nil {
		return nil, fmt.Errorf("%w: lockspace %s is on one disk, which cannot be replaced; format three disks", ErrRefused, lockspace.DescribeSuperblock(sb))
	}
	open := replace.Opener(replace.OpenDisk)
	if cfg.Disks.Open != nil {
		open = cfg.Disks.Open
	}
	position, err := replace.FindPosition(o.Old, disks, open)
	if err == nil {
		err = refuseVacancy(sb.Members, position)
	}
	if err != nil {
		return nil, err
	}
	r = &replacement{Order: o, planned: sb.Members, clock: cfg.Clock, times: timing.Of(sb)}
	if r.clock == nil {
		r.clock = clock.Boottime
	}
	if r.disk, err = replace.Open(o.New, sb, position, open); err != nil {
		return nil, err
	}
	if err := r.disk.Check(ctx, disks, o.Force); err != nil {
		return nil, errors.Join(err, r.disk.Close())
	}
	r.done = Replaced{Lockspace: sb, Position: position, Old: sb.Members.Disks[position-1], New: r.disk.UUID(), Device: o.New}
	switch old := disks[position-1]; {
	case old.Name == o.New || sameFile(old.Name, o.New): // bakeryd has this path
		r.done.OldDevice, r.done.Device = old.Name, old.Name
	case old.State == mirror.Up:
		r.done.OldDevice = old.Name
	}
	return r, nil
}

// sameFile reports whether two paths lead to one file.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// refuseVacancy returns an error if another position is vacant.
func refuseVacancy(m layout.Members, position int) error {
	if v := m.Vacant(); v != 0 && v != position {
		return fmt.Errorf("%w: position %d is vacant, by a replacement that is not complete; complete that first, with bakeryctl disk replace %[2]d NEW",
			ErrRefused, v)
	}
	return nil
}

// run replaces the disk under the directory's lock.
func (r *replacement) run(ctx context.Context, lock locks.DirectoryHold) error {
	r.holding()
	err := r.replace(ctx, lock)
	return errors.Join(err, r.awaitLists(ctx))
}

func (r *replacement) replace(ctx context.Context, lock locks.DirectoryHold) error {
	list, err := r.newest(lock)
	if err != nil {
		return err
	}
	if r.disk.Present() { // an earlier run may have written the list on fewer disks than a majority
		return r.confirm(ctx, lock, list)
	}
	position := r.done.Position
	list.Disks[position-1] = layout.UUID{}
	r.disks.Use(list, "")
	// Entries that only the old disk made settled could not be used while this host has the lock.
	if err = r.settle(ctx, lock); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, errors.Join(err, r.withdraw(ctx, lock, list)))
	}
	if err = r.publish(ctx, lock, list); err == nil {
		r.Progress(fmt.Sprintf("position %d is vacant until this is done: %d of the other %d disks must work", position, list.Majority(), list.Positions-1))
		err = r.fill(ctx, lock, list)
	}
	if err != nil && !r.complete {
		return fmt.Errorf("%w, and the lockspace works without disk %d: %w", ErrIncomplete, position, err)
	}
	return err
}

// settle settles the directory. A live host writes its slot again if too few of the other disks have it, when
// it reads in the record of this host that this is needed.
func (r *replacement) settle(ctx context.Context, lock locks.DirectoryHold) error {
	for until := r.clock.Now() + r.times.Lease; ; {
		err := lock.Settle()
		if err == nil || !errors.Is(err, directory.ErrUnsettled) || r.clock.Now() >= until {
			return err
		}
		if retry.Pause(ctx, r.times.Poll()) != nil {
			return context.Cause(ctx)
		}
	}
}

// confirm writes the list with the new disk again, and waits until all hosts use it.
func (r *replacement) confirm(ctx context.Context, lock locks.DirectoryHold, list layout.Members) error {
	r.done.Lockspace.Members, r.complete = list, true
	r.disks.Use(list, "")
	if err := r.publish(ctx, lock, list); err != nil {
		return err
	}
	return r.follow(ctx, list.Epoch)
}

// withdraw writes the list as it was, with a newer epoch than the one that this host may have shown: no host
// would find that. If the old disk is not up then, this host may have a request in flight there that it does not
// know of any more (SAME-DISK of package mirror). It ends the lease because it must not say then that it has left.
func (r *replacement) withdraw(ctx context.Context, lock locks.DirectoryHold, list layout.Members) error {
	list.Disks = r.planned.Disks
	list.Epoch++
	r.disks.Use(list, "")
	err := r.publish(ctx, lock, list)
	if r.done.Old != (layout.UUID{}) && r.awaitDisk(ctx) != nil {
		return errors.Join(err, r.uncertain(fmt.Errorf("%w to disk %d", errInFlight, r.done.Position)))
	}
	return err
}

// newest returns the newest list, with the epoch of the next one.
func (r *replacement) newest(lock locks.DirectoryHold) (layout.Members, error) {
	if _, err := r.disks.Follow(); err != nil {
		return layout.Members{}, err
	}
	list, epoch := r.disks.Superblock().Members, uint64(lock.Ticket())
	switch {
	case list.Disks != r.planned.Disks:
		return list, fmt.Errorf("%w: another process has changed the list of disks; run the command again", ErrRefused)
	case epoch <= list.Epoch:
		return list, fmt.Errorf("%w: the directory's lock has token %d, which is not above epoch %d of the list of disks; run bakeryctl check",
			ErrRefused, epoch, list.Epoch)
	}
	list.Epoch = epoch
	return list, cmp.Or(r.refuseLosses(list.Majority()), r.refuseLossesOfHosts(list.Majority()))
}

// refuseLosses returns an error if fewer than a majority of the other members are up.
func (r *replacement) refuseLosses(majority int) error {
	up := 0
	var down []string
	for _, d := range lockspace.MemberDisks(r.disks) {
		switch {
		case d.Position == r.done.Position:
		case d.State == mirror.Up:
			up++
		default:
			down = append(down, describe(d))
		}
	}
	if up < majority {
		return fmt.Errorf("%w: %d of the other disks must be up, %d up now: %s; repair them first", ErrRefused, majority, up, strings.Join(down, ", "))
	}
	return nil
}

// lag is the number of renewals by which a copy of a host record may be late although the disk is up for its host.
const lag = 3

// refuseLossesOfHosts returns an error if a live host does not write its record to a majority of the other members:
// it could not use the list, and would be waited for in vain.
func (r *replacement) refuseLossesOfHosts(majority int) error {
	space := r.done.Lockspace.Space()
	known, _ := r.host.Member().Known()
	newest, copies := make([]layout.HostRecord, len(known)), make([][]layout.HostRecord, len(known))
	buf := lockspace.Pool.Get(len(known) * space.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	others := r.disks.All() &^ mirror.At(r.done.Position-1)
	err := r.disks.ReadCopies(buf, space.Geometry.Host(1), others, func(c mirror.Copy) {
		if c.Err != nil {
			return
		}
		rec, err := space.DecodeHost(c.Block, c.Record+1)
		if err != nil {
			return
		}
		if n := &newest[c.Record]; n.Generation < rec.Generation || n.Generation == rec.Generation && n.Sequence < rec.Sequence {
			*n = rec
		}
		if others.Has(c.Position) {
			copies[c.Record] = append(copies[c.Record], rec)
		}
	})
	if err != nil {
		return fmt.Errorf("read host table: %w", err)
	}
	for i, n := range newest {
		current := slices.DeleteFunc(copies[i], func(c layout.HostRecord) bool { return c.Generation < n.Generation || c.Sequence+lag < n.Sequence })
		if len(current) < majority && n.State == layout.StateLive && !(known[i].Gone && known[i].Incarnation == n.Incarnation) {
			return fmt.Errorf("%w: %s writes to %d of the other disks, %d needed: it would lose its lease with this one; "+
				"run bakeryctl disks there, and repair its paths first", ErrRefused, text.HostName(i+1, n.Name), len(current), majority)
		}
	}
	return nil
}

func describe(d lockspace.MemberDisk) string {
	what := fmt.Sprintf("disk %d (%s) is %v", d.Position, d.Name, d.State)
	if d.Err != nil {
		what += fmt.Sprintf(": %v", d.Err)
	}
	return what
}

// fill makes the new disk the member at the vacant position.
func (r *replacement) fill(ctx context.Context, lock locks.DirectoryHold, list layout.Members) (err error) {
	if err = r.follow(ctx, list.Epoch); err != nil {
		return err
	}
	if err = r.lock(ctx); err != nil {
		return err
	}
	r.Progress("copying the lockspace to " + r.New)
	if r.done.Unreadable, err = r.disk.Fill(ctx, r.disks, lock.Check, r.Counter); err != nil {
		return r.uncertain(err)
	}
	list.Disks[r.done.Position-1] = r.disk.UUID()
	list.Epoch++
	r.done.Lockspace.Members = list
	if err = lock.Check(); err != nil {
		return err
	}
	if err = cmp.Or(r.disk.Admit(r.done.Lockspace), r.disk.Close()); err != nil {
		return r.uncertain(err)
	}
	if err = r.publish(ctx, lock, list); err != nil {
		return err
	}
	r.complete = true
	r.disks.Use(list, r.New)
	if err = r.awaitDisk(ctx); err != nil {
		return err
	}
	return r.follow(ctx, list.Epoch)
}

// awaitDisk waits until the disk at the position has the records of this host. A new one has older ones by COPY.
func (r *replacement) awaitDisk(ctx context.Context) error {
	for until := r.clock.Now() + r.done.Lockspace.Lease; ; {
		d := lockspace.MemberDisks(r.disks)[r.done.Position-1]
		switch {
		case d.State == mirror.Up && d.Behind == 0:
			return nil
		case r.clock.Now() >= until:
			return fmt.Errorf("the disk lacks %d records: %s", d.Behind, describe(d))
		}
		if retry.Pause(ctx, r.times.Poll()) != nil {
			return context.Cause(ctx)
		}
	}
}

// lock locks the new disk. Hosts of this machine that have just used it as a member close it.
func (r *replacement) lock(ctx context.Context) (err error) {
	for until := r.clock.Now() + r.done.Lockspace.Lease; ; {
		if err = r.disk.Lock(); !errors.Is(err, blockdev.ErrBusy) || r.clock.Now() >= until {
			return err
		}
		if retry.Pause(ctx, r.times.Poll()) != nil {
			return context.Cause(ctx)
		}
	}
}

// publish writes the list in both superblocks of all members that are up, and of a majority at least. It does not wait
// for one that hangs.
func (r *replacement) publish(ctx context.Context, lock locks.DirectoryHold, list layout.Members) error {
	sb := r.done.Lockspace
	sb.Members, sb.Position = list, list.First()
	g := sb.Geometry
	buf := lockspace.Pool.Get(g.Stride)
	defer lockspace.Pool.Put(buf)
	for _, which := range []int{1, 0} {
		err := cmp.Or(context.Cause(ctx), sb.Encode(buf, which), lock.Check())
		if err != nil {
			return err
		}
		if err = r.disks.Write(buf, g.Superblock(which)); err != nil {
			return r.uncertain(fmt.Errorf("write the list of disks: %w: %w", errInFlight, err))
		}
	}
	return nil
}

// awaitLists waits until no write of a list is in flight: the next holder of the lock may write them. It ends the lease
// if one takes too long.
func (r *replacement) awaitLists(ctx context.Context) error {
	shown := false
	for until := r.clock.Now() + r.limit(); ; {
		var names []string
		inFlight := r.disks.Finish(0, 2*int64(r.done.Lockspace.Geometry.Stride), r.times.Budget())
		for i, d := range lockspace.MemberDisks(r.disks) {
			if inFlight.Has(i) {
				names = append(names, fmt.Sprintf("disk %d (%s)", d.Position, d.Name))
			}
		}
		switch {
		case inFlight == 0:
			return nil
		case ctx.Err() != nil || r.clock.Now() >= until:
			return r.uncertain(fmt.Errorf("write the list of disks to %s: %w", strings.Join(names, ", "), errInFlight))
		}
		if !shown {
			r.Progress("waiting for the list of disks to be written to " + strings.Join(names, ", "))
			shown = true
		}
	}
}

// limit is how long a host or a disk is waited for.
func (r *replacement) limit() time.Duration {
	return r.times.Dead() + r.times.MaxWatchdog() + joinPatience*r.times.Lease
}

// errInFlight is returned when a write to a disk has not returned.
var errInFlight = errors.New("a write is in flight")

// uncertain ends the lease after an error with which a write may land later: no host has the directory's lock until
// all writes of this one have landed, or are lost.
func (r *replacement) uncertain(err error) error {
	if errors.Is(err, errInFlight) || errors.Is(err, replace.ErrWrite) {
		r.host.Member().LoseFor(err)
	}
	return err
}
