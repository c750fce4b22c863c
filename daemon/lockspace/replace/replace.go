// Package replace makes a disk the member at a position of a lockspace on several disks. It checks the
// disk, copies every record to it, and makes it valid. It knows nothing of hosts and leases: the caller
// determines when that is safe. Start reading at [Disk].
package replace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

var (
	// ErrNoMember is returned when a name is not that of a member disk.
	ErrNoMember = errors.New("not a member disk")

	// ErrMember is returned when the new disk is a member.
	ErrMember = errors.New("disk is a member already")

	// ErrFormer is returned when the new disk was a member, or is one by a list that is not in use.
	ErrFormer = errors.New("disk was a member")

	// ErrWrite is returned when a write to the new disk failed. It may land later.
	ErrWrite = errors.New("a write to the new disk failed")

	// ErrOtherLockspace is returned when the new disk holds another lockspace. Force does not help.
	ErrOtherLockspace = errors.New("disk holds another lockspace")
)

// Opener opens a disk. If it is to be written, no other program may use it exclusively.
type Opener func(path string, readOnly bool) (lockspace.Disk, error)

// OpenDisk is the Opener of real disks.
func OpenDisk(path string, readOnly bool) (lockspace.Disk, error) {
	disk, err := blockdev.Open(path, blockdev.Options{ReadOnly: readOnly, Exclusive: !readOnly, Killable: true})
	if err != nil {
		return nil, err
	}
	return disk, nil
}

// FindPosition returns the position that a name means: a position, the uuid of a member disk, or a path to
// it. A path to a lost disk is known if the disk was looked for there.
func FindPosition(name string, disks []lockspace.MemberDisk, open Opener) (int, error) {
	if n, err := strconv.Atoi(name); err == nil {
		if n < 1 || n > len(disks) {
			return 0, fmt.Errorf("%w: position %d, want 1 to %d", ErrNoMember, n, len(disks))
		}
		return n, nil
	}
	if id, err := uuid.Parse(name); err == nil {
		return positionWhere(name, disks, func(d lockspace.MemberDisk) bool { return d.UUID == layout.UUID(id) })
	}
	if disk, found, err := inspect(name, open); err == nil && found.Position != 0 {
		position, err := positionWhere(name, disks, func(d lockspace.MemberDisk) bool {
			return d.UUID == diskOf(found) || d.State == mirror.Up && disk != "" && diskAt(d.Name, open) == disk
		})
		if err == nil {
			return position, nil
		}
	}
	return positionWhere(name, disks, func(d lockspace.MemberDisk) bool { return d.Name == name }) // also with other contents
}

func positionWhere(name string, disks []lockspace.MemberDisk, is func(lockspace.MemberDisk) bool) (int, error) {
	i := slices.IndexFunc(disks, is)
	if i < 0 {
		return 0, fmt.Errorf("%w: %s; give the position of a lost disk, 1 to %d, as bakeryctl disks shows it", ErrNoMember, name, len(disks))
	}
	return disks[i].Position, nil
}

// inspect returns which disk a path leads to, and its superblock. It gives up a path that does not answer within
// [lockspace.DefaultTimeout], as a lost disk may not.
func inspect(path string, open Opener) (disk string, sb layout.Superblock, err error) {
	type finding struct {
		disk string
		sb   layout.Superblock
		err  error
	}
	found := make(chan finding, 1)
	go func() {
		dev, err := open(path, true)
		if err != nil {
			found <- finding{err: err}
			return
		}
		f := finding{disk: dev.Info().Disk()}
		f.sb, _, err = lockspace.FindSuperblock(dev)
		f.err = errors.Join(err, dev.Close())
		found <- f
	}()
	select {
	case f := <-found:
		return f.disk, f.sb, f.err
	case <-time.After(lockspace.DefaultTimeout):
		return "", sb, fmt.Errorf("%s: %w within %v", path, lockspace.ErrNoAnswer, lockspace.DefaultTimeout)
	}
}

// diskAt returns which disk a path leads to; "" if unknown.
func diskAt(path string, open Opener) string {
	disk, _, _ := inspect(path, open)
	return disk
}

// mayLand is why a disk that was a member may not be one again: hosts forget what they have in flight to a disk that is
// replaced. The kernel may have it longer than bakeryd runs.
const mayLand = "a request of a host may be in flight to it, which would land over later ones; give another disk, " +
	"or --force if it hung on no host, or once those hosts were rebooted"

// diskOf returns the uuid of the disk that has a superblock; zero if that is not on several disks.
func diskOf(sb layout.Superblock) layout.UUID {
	if sb.Position == 0 {
		return layout.UUID{}
	}
	return sb.Members.Disks[sb.Position-1]
}

// Disk is a disk that becomes the member at a position. These are the states in which an interruption
// leaves it:
//
//	step                                | found by a reader after it
//	------------------------------------|---------------------------------------------
//	1 mark at byte 0                    | a disk that is being filled
//	2 zeroes over the rest of the area  | the same
//	3 the records                       | the same
//	4 the copy of the superblock        | the list, on a disk that is being filled
//	5 the superblock, over the mark     | a member
//
// The mark is the superblock in the encoding of its copy, as that of an interrupted format: at byte 0 it
// is not valid. It has the position, and a uuid of its own for the disk.
type Disk struct {
	dev      lockspace.Disk
	open     Opener
	sb       layout.Superblock // of the lockspace when the disk was checked
	position int
	id       layout.UUID // of the disk as a member
	present  bool        // it is the member already
}

// Open opens the disk at a path for a position. Close closes it.
func Open(path string, sb layout.Superblock, position int, open Opener) (*Disk, error) {
	dev, err := open(path, false)
	if err != nil {
		return nil, err
	}
	return &Disk{dev: dev, open: open, sb: sb, position: position, id: layout.UUID(uuid.New())}, nil
}

// Close closes the disk. It may be called again.
func (d *Disk) Close() error {
	if err := d.dev.Close(); !errors.Is(err, blockdev.ErrClosed) {
		return err
	}
	return nil
}

// Present reports whether Check found that the disk is the member at the position already.
func (d *Disk) Present() bool { return d.present }

// UUID returns that of the disk as a member.
func (d *Disk) UUID() layout.UUID { return d.id }

// Path returns that of the disk.
func (d *Disk) Path() string { return d.dev.Info().Path }

// Check returns an error if the disk cannot become the member: [lockspace.ErrStride],
// [lockspace.ErrDeviceSize], ErrOtherLockspace, ErrMember, ErrFormer or [format.ErrOccupied] without force,
// or an error of reading. The member at the position itself is Present if it is up; with force it is filled again.
func (d *Disk) Check(ctx context.Context, disks []lockspace.MemberDisk, force bool) error {
	if err := d.check(ctx, disks, force); err != nil {
		return fmt.Errorf("use %s as disk %d: %w", d.Path(), d.position, err)
	}
	return nil
}

func (d *Disk) check(ctx context.Context, disks []lockspace.MemberDisk, force bool) error {
	info, g := d.dev.Info(), d.sb.Geometry
	switch {
	case g.Stride < info.LogicalBlock || g.Stride < info.PhysicalBlock && !info.Regular:
		return fmt.Errorf("%w: its blocks are of %d bytes, and of %d physically; the records of the lockspace are %d bytes apart; give another disk",
			lockspace.ErrStride, info.LogicalBlock, info.PhysicalBlock, g.Stride)
	case info.Size < g.Size():
		return fmt.Errorf("%w: the lockspace needs %v, it has %v; give another disk", lockspace.ErrDeviceSize, text.Bytes(g.Size()), text.Bytes(info.Size))
	}
	itself, up := false, false
	for _, m := range disks {
		id := info.Disk()
		switch same := id != "" && m.State == mirror.Up && diskAt(m.Name, d.open) == id; {
		case m.Position == d.position:
			itself = same || m.Name == d.Path()
			up = itself && m.State == mirror.Up
		case same:
			return fmt.Errorf("%w: it is the same as %s, member %d; give another disk", ErrMember, m.Name, m.Position)
		}
	}
	head, err := lockspace.ReadHead(d.dev)
	if err != nil {
		return err
	}
	mark, marked := lockspace.FindFormatMark(head)
	found, _, err := lockspace.FindSuperblock(d.dev)
	if err == nil {
		switch at := d.sb.Members.PositionOf(diskOf(found)); {
		case found.UUID != d.sb.UUID:
			return fmt.Errorf("%w: %s; stop its hosts and zero the beginning of the disk, or give another disk",
				ErrOtherLockspace, lockspace.DescribeSuperblock(found))
		case found.Position == d.position && at == d.position && up && !force:
			d.present, d.id = true, diskOf(found)
			return nil
		case found.Position == d.position && at == d.position && (force || marked):
			return nil
		case found.Position == d.position && at == d.position:
			return fmt.Errorf("%w: it has the contents of disk %d, which is not used at this path; if it is that disk, add the path to --device "+
				"or BAKERYD_DEVICE; if it is a copy: %s", ErrMember, at, mayLand)
		case at > 0 && found.Position > 0:
			return fmt.Errorf("%w: it is member %d; give another disk", ErrMember, at)
		case marked || force:
		case found.Members.Epoch > d.sb.Members.Epoch:
			return fmt.Errorf("%w: it is disk %d by a newer list (epoch %d) than the other disks have (epoch %d); add its path to --device or BAKERYD_DEVICE",
				ErrFormer, found.Position, found.Members.Epoch, d.sb.Members.Epoch)
		default:
			return fmt.Errorf("%w: it was disk %d of this lockspace until another one replaced it; %s", ErrFormer, found.Position, mayLand)
		}
	}
	if itself && !force {
		return fmt.Errorf("%w: it is disk %d itself, without its contents: %s", ErrMember, d.position, mayLand)
	}
	if marked && mark.UUID == d.sb.UUID && mark.Position == d.position { // by an earlier attempt
		return nil
	}
	what, err := format.Contents(ctx, d.dev, d.area())
	if err == nil && what != "" && !force {
		err = fmt.Errorf("%w: it holds %s", format.ErrOccupied, what)
	}
	return err
}

// area returns the number of bytes from byte 0 that the disk needs.
func (d *Disk) area() int64 {
	return min(max(d.sb.Geometry.Size(), layout.HeadSize), d.dev.Info().Size)
}

// Lock locks the disk against other processes of this machine, also one that was killed and has a request
// in flight: see [blockdev.Disk.Lock]. No host may use the disk.
func (d *Disk) Lock() error { return d.dev.Lock(0, d.area()) }

// Admit makes the disk valid as a member of sb: steps 4 and 5.
func (d *Disk) Admit(sb layout.Superblock) error {
	sb.Position = d.position
	err := format.WriteSuperblock(d.dev, sb, 1)
	if err == nil {
		err = format.WriteSuperblock(d.dev, sb, 0)
	}
	if err != nil {
		return fmt.Errorf("make %s member %d: %w: %w", d.Path(), d.position, ErrWrite, err)
	}
	return nil
}
