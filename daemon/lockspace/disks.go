package lockspace

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

// The times of a DiskOptions without any.
const (
	DefaultTimeout = 2 * time.Second
	DefaultRetry   = time.Second
)

// DiskOptions configure OpenDisks. A lockspace on one disk uses ReadOnly alone. A position counts from
// 0, as in package mirror: it is an index of the positions of [layout.Members]. The functions may be
// called concurrently, also after OpenDisks returned.
type DiskOptions struct {
	ReadOnly bool

	// Open opens a path; nil: blockdev.Open does.
	Open func(path string, readOnly bool) (Disk, error)

	// Lock locks what this process writes on a member, each time that the member was opened and
	// before it is used: see [blockdev.Disk.Lock] and [mirror.Member]. nil if not needed.
	Lock func(position int, disk Disk, sb layout.Superblock) error

	// Check checks a member, after its superblock was: see [mirror.Options]. nil if not needed.
	Check func(position int, dev blockdev.Device) error

	// Changed is called after the state of members changed: see [mirror.Options]. nil if not needed.
	Changed func()

	// Timeout limits how long OpenDisks waits for a path that does not answer, and is the Timeout
	// of [mirror.Options]. 0: DefaultTimeout.
	Timeout time.Duration

	// Patience is the Patience of [mirror.Options]. 0: what a host that claims its id can afford.
	Patience time.Duration

	// Retry is the pause before a missing member is opened again, and the Retry of
	// [mirror.Options]. 0: DefaultRetry.
	Retry time.Duration
}

// Disk is a member disk. [blockdev.Disk] implements it.
type Disk interface {
	blockdev.Device
	Lock(off, n int64) error // see [blockdev.Disk.Lock]
}

func openPath(path string, readOnly bool) (Disk, error) {
	disk, err := blockdev.Open(path, blockdev.Options{ReadOnly: readOnly})
	if err != nil {
		return nil, err
	}
	return disk, nil
}

// ErrNoPath is the error of a member for which no path is left.
var ErrNoPath = errors.New("no path was given for it")

// OpenDisks opens the lockspace on the disks at paths, in any order. copyUsed is 1 if a superblock at
// byte 0 is damaged and its copy is in use. The caller should warn: only check --repair and formatting
// rewrite the superblock.
//
// One path is that of a lockspace on one disk. It returns ErrNoLockspace (with the errors of
// [layout.FindSuperblock] or ErrInterrupted), ErrStride, ErrDeviceSize, ErrDisks for a member disk, or
// the errors of [blockdev.Open] and of reading.
//
// Several paths are those of a majority of the member disks of a lockspace. dev is then a
// [mirror.Set], see MemberDisks. A disk counts if its superblock is that of the newest epoch. A path
// where no superblock was found is taken for that of a missing member, of any of them: the set tries
// all such paths for each, until one leads to it. A member for which
// no such path is left stays down, and is a loss like any other: its path is needed to repair it.
// OpenDisks returns ErrDisks, with the reason for each path, or the errors of [mirror.Open].
func OpenDisks(paths []string, o DiskOptions) (dev blockdev.Device, sb layout.Superblock, copyUsed int, err error) {
	if len(paths) == 1 {
		return openDisk(paths[0], o.ReadOnly)
	}
	o.Timeout, o.Retry = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.Retry, DefaultRetry)
	reads := new(singleflight.Group)
	if o.Open == nil {
		reads, o.Open = &pathReads, openPath
	}
	d, err := choose(survey(reads, paths, o.Timeout, o.readPath))
	if err != nil {
		return nil, layout.Superblock{}, 0, err
	}
	d.o = o
	set, err := mirror.Open(d.members(), mirror.Options{
		Stride: d.sb.Geometry.Stride, Size: d.sb.Geometry.Size(), Codec: NewCodec(d.sb),
		ReadOnly: o.ReadOnly, Check: d.check, Changed: o.Changed, Timeout: o.Timeout,
		Patience: cmp.Or(o.Patience, timing.Of(d.sb).ClaimBudget()/2), // a claim looks and decides within its budget
		Retry:    o.Retry,
	})
	if err != nil {
		return nil, layout.Superblock{}, 0, err
	}
	return set, d.sb, d.copyUsed, nil
}

func openDisk(path string, readOnly bool) (dev blockdev.Device, sb layout.Superblock, copyUsed int, err error) {
	disk, err := blockdev.Open(path, blockdev.Options{ReadOnly: readOnly})
	if err != nil {
		return nil, layout.Superblock{}, 0, err
	}
	sb, copyUsed, err = FindLockspace(disk)
	if err != nil {
		return nil, layout.Superblock{}, 0, errors.Join(err, disk.Close())
	}
	return disk, sb, copyUsed, nil
}

// MemberDisk is a member disk of a lockspace on several. The Name of its Status is its path, the paths
// that may lead to it, or "member N" with the Err ErrNoPath.
type MemberDisk struct {
	Position int // on the disk, from 1
	UUID     layout.UUID
	mirror.Status
}

// MemberDisks returns the member disks of dev and sb, which OpenDisks returned, in the order of the
// set. It returns nil if the lockspace is on one disk.
func MemberDisks(dev blockdev.Device, sb layout.Superblock) (disks []MemberDisk) {
	set, ok := dev.(*mirror.Set)
	if !ok {
		return nil
	}
	for i, status := range set.Members() {
		disks = append(disks, MemberDisk{Position: i + 1, UUID: sb.Members.Disks[i], Status: status})
	}
	return disks
}

// codec knows the versions of the records of a lockspace on several disks.
type codec struct{ space layout.Space }

// NewCodec returns the codec of a lockspace on several disks.
func NewCodec(sb layout.Superblock) mirror.Codec { return codec{sb.Space()} }

func (c codec) Version(block []byte, off int64, position int) (mirror.Version, error) {
	v, err := c.space.CopyVersion(block, off, position+1)
	return mirror.Version(v), err
}

func (c codec) Place(block []byte, position int) { layout.PlaceCopy(block, position+1) }

// memberDisks opens and checks the member disks of a lockspace.
type memberDisks struct {
	o        DiskOptions
	sb       layout.Superblock
	copyUsed int
	paths    [][]string // where a member was found, or may be
	names    []string
}

func (d *memberDisks) members() (list []mirror.Member) {
	for i, name := range d.names {
		list = append(list, mirror.Member{Name: name, Open: func() (blockdev.Device, error) { return d.open(i) }})
	}
	return list
}

// open opens a member at the first path that leads to it.
func (d *memberDisks) open(i int) (blockdev.Device, error) {
	if len(d.paths[i]) == 0 {
		return nil, ErrNoPath
	}
	var errs error
	for _, path := range d.paths[i] {
		disk, err := d.openAt(path, i)
		switch {
		case err == nil:
			return disk, nil
		case errs == nil:
			errs = err
		default: // in one line, for the log
			errs = fmt.Errorf("%w; %w", errs, err)
		}
	}
	return nil, errs
}

func (d *memberDisks) openAt(path string, i int) (blockdev.Device, error) {
	disk, err := d.o.Open(path, d.o.ReadOnly)
	if err != nil {
		return nil, err
	}
	if err = d.identify(i, disk); err == nil && d.o.Lock != nil {
		err = d.o.Lock(i, disk, d.sb)
	}
	if err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	return disk, nil
}

// check implements IDENTITY of package mirror.
func (d *memberDisks) check(i int, dev blockdev.Device) error {
	if err := d.identify(i, dev); err != nil || d.o.Check == nil {
		return err
	}
	return d.o.Check(i, dev)
}

// identify returns an error unless dev is the member at a position. It reads the superblock and the
// copy. One of them may be damaged, none may be of another disk.
func (d *memberDisks) identify(i int, dev blockdev.Device) error {
	path, stride := dev.Info().Path, d.sb.Geometry.Stride
	buf := Pool.Get(2 * stride)
	defer Pool.Put(buf)
	errs, err := ReadRecords(dev, buf, 0, stride)
	if err != nil {
		return fmt.Errorf("read superblock: %w", err)
	}
	valid := false
	for which, err := range errs {
		record := buf[which*stride:]
		if old, marked := FindFormatMark(record); which == 0 && err == nil && marked {
			return fmt.Errorf("%s: %w over lockspace %s", path, ErrInterrupted, DescribeSuperblock(old))
		}
		var sb layout.Superblock
		if err == nil {
			sb, err = layout.DecodeSuperblock(record, which)
		}
		switch {
		case err != nil:
			errs[which] = err
			continue
		case !SameSuperblock(sb, d.sb):
			return d.differs(path, sb)
		case sb.Position != i+1:
			return fmt.Errorf("%s is member %d, want member %d: %w", path, sb.Position, i+1, layout.ErrIdentity)
		}
		valid = true
	}
	if !valid {
		return fmt.Errorf("%s: %w; %w", path, errs[0], errs[1])
	}
	return nil
}

// differs returns how a superblock differs from the one in use.
func (d *memberDisks) differs(path string, sb layout.Superblock) error {
	switch {
	case sb.UUID != d.sb.UUID:
		return fmt.Errorf("%s is of lockspace %s, want %s: %w", path, DescribeSuperblock(sb), DescribeSuperblock(d.sb), layout.ErrIdentity)
	case sb.Members.Epoch != d.sb.Members.Epoch:
		return fmt.Errorf("%s has epoch %d of the member disks, want %d: %w", path, sb.Members.Epoch, d.sb.Members.Epoch, layout.ErrIdentity)
	}
	return fmt.Errorf("%s has another superblock than the other member disks: %w", path, layout.ErrIdentity)
}

// SameSuperblock reports whether two superblocks are those of one lockspace in one state, of any of its
// member disks.
func SameSuperblock(a, b layout.Superblock) bool {
	a.Position = b.Position
	return a == b
}

// diskOf returns the uuid of the disk that has a superblock.
func diskOf(sb layout.Superblock) layout.UUID { return sb.Members.Disks[sb.Position-1] }
