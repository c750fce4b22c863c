package lockspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

	// minHung is the least Hung of package mirror. An initiator that lost its target logs in again after more.
	minHung = time.Second
)

// DiskOptions configure OpenDisks. A lockspace on one disk uses ReadOnly alone. A position counts from
// 0, as in package mirror: it is an index of the positions of [layout.Members]. The functions may be
// called concurrently, also after OpenDisks returned.
type DiskOptions struct {
	ReadOnly bool

	// Open opens a path; nil: blockdev.Open does.
	Open func(path string, readOnly bool) (Disk, error)

	// Lock locks what this process writes on a member, each time that the member was opened and
	// before it is used: see [blockdev.Disk.Lock] and [mirror.Member]. sb has the list by which the disk
	// is the member. It may be an older one than the list in use. nil if not needed.
	Lock func(position int, disk Disk, sb layout.Superblock) error

	// InFlight reports whether an earlier term of this host, of this process or another one, may have a request
	// in flight to a member disk. nil if not needed.
	InFlight func(disk layout.UUID) bool

	// Kept returns the disks of a lockspace that InFlight may report, also those that are no members any
	// more. nil if there are none.
	Kept func(lockspace layout.UUID) ([]layout.UUID, error)

	// Check checks a member, after its superblock was: see [mirror.Options]. nil if not needed.
	Check func(position int, dev blockdev.Device) error

	// Changed is called, in a goroutine, after the state of members or the list of them changed. nil if
	// not needed.
	Changed func()

	// LeftOut is called by OpenDisks for each path to a disk of the lockspace that is not a member any
	// more, with the reason. nil if not needed.
	LeftOut func(path string, reason error)

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
	disk, err := blockdev.Open(path, blockdev.Options{ReadOnly: readOnly, Killable: true})
	if err != nil {
		return nil, err
	}
	return disk, nil
}

var (
	// ErrNoPath is the error of a member for which no path is left.
	ErrNoPath = errors.New("no path was given for it")

	// ErrVacant is the error of a position that has no disk.
	ErrVacant = errors.New("vacant: its disk is being replaced, or a replacement was interrupted")

	// ErrLostWrites is the error of a disk that lost what this host had written there.
	ErrLostWrites = errors.New("lost writes")

	// ErrReplaced is the error of a member whose path leads to another disk, which is no member, or not yet.
	ErrReplaced = errors.New("it was replaced")
)

// OpenDisks opens the lockspace on the disks at paths, in any order. copyUsed is 1 if a superblock at
// byte 0 is damaged and its copy is in use. The caller should warn: only check --repair and formatting
// rewrite the superblock.
//
// One path is that of a lockspace on one disk. It returns ErrNoLockspace (with the errors of
// [layout.FindSuperblock] or ErrInterrupted), ErrStride, ErrDeviceSize, ErrDisks for a member disk, or
// the errors of [blockdev.Open] and of reading.
//
// Several paths are those of a majority of the member disks of a lockspace. dev is then a *Disks. The
// newest list of members that is found on any disk is used. A disk counts if the uuid that it lists at
// its own position is the one there in the newest list: its own list may be older (IDENTITY). A path
// that leads to no member may be that of a missing one, of any of them: the set tries all such paths
// for each, until one leads to it. A member for which no such path is left stays down, and is a loss
// like any other: its path is needed to repair it. OpenDisks returns ErrDisks, with the reason for each
// path, or the errors of [mirror.Open].
func OpenDisks(paths []string, o DiskOptions) (dev blockdev.Device, sb layout.Superblock, copyUsed int, err error) {
	if len(paths) == 1 {
		return openDisk(paths[0], o.ReadOnly)
	}
	o.Timeout, o.Retry = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.Retry, DefaultRetry)
	d := &Disks{o: o, paths: slices.Clone(paths), reads: new(singleflight.Group), opened: make(chan struct{}), at: map[string]layout.UUID{}}
	d.over, d.end = context.WithCancel(context.Background())
	defer close(d.opened)
	if o.Open == nil {
		d.reads, d.o.Open = &pathReads, openPath
	}
	all := survey(d.reads, paths, o.Timeout, d.o.readPath)
	d.sb, err = choose(all)
	if err != nil {
		return nil, layout.Superblock{}, 0, err
	}
	used := d.sb
	d.used.Store(&used)
	d.locate(all)
	for _, f := range all {
		copyUsed = max(copyUsed, f.copyUsed)
		if f.err == nil && !d.sb.Members.Has(f.sb.Position, diskOf(f.sb)) && o.LeftOut != nil {
			o.LeftOut(f.path, fmt.Errorf("%s, but the disk is not a member in epoch %d; remove it from --device or BAKERYD_DEVICE", f.describe(), d.sb.Members.Epoch))
		}
	}
	look := d.look
	if o.ReadOnly { // it is open for a short time
		look = nil
	}
	var members []mirror.Member
	for i := range d.sb.Members.Positions {
		members = append(members, d.member(i))
	}
	times := timing.Of(d.sb)
	patience := cmp.Or(o.Patience, times.ClaimBudget()/2) // a claim looks and decides within its budget
	set, err := mirror.Open(members, mirror.Options{
		Stride: d.sb.Geometry.Stride, Size: d.sb.Geometry.Size(), Codec: NewCodec(d.sb),
		ReadOnly: o.ReadOnly, Check: d.check, Look: look, Changed: o.Changed, Timeout: o.Timeout,
		Patience: patience, RecordPatience: max(patience, times.Budget()/4), // a table read may wait three times
		Hung:  max(minHung, times.Budget()), // a disk that keeps to the budget is not checked
		Retry: o.Retry,
	})
	if err != nil {
		d.end()
		return nil, layout.Superblock{}, 0, err
	}
	d.Set = set
	return d, d.Superblock(), copyUsed, nil
}

// Drop is that of the set. It also returns the members to which an earlier term of this host may have a
// request in flight.
func (d *Disks) Drop(off, n int64) mirror.Positions { return d.Set.Drop(off, n) | d.earlier() }

// Finish is that of the set, and returns what Drop returns.
func (d *Disks) Finish(off, n int64, most time.Duration) mirror.Positions {
	return d.Set.Finish(off, n, most) | d.earlier()
}

// earlier returns the members to which an earlier term of this host may have a request in flight. At a vacant
// position that is any disk that is no member: VACANT of package mirror.
func (d *Disks) earlier() (ps mirror.Positions) {
	if d.o.InFlight == nil {
		return 0
	}
	sb := d.Superblock()
	for i, id := range sb.Members.Disks[:sb.Members.Positions] {
		if !id.IsZero() && d.o.InFlight(id) {
			ps |= mirror.At(i)
		}
	}
	if v := sb.Members.Vacant(); v != 0 && d.o.Kept != nil {
		kept, err := d.o.Kept(sb.UUID)
		if err != nil || slices.ContainsFunc(kept, func(id layout.UUID) bool { return sb.Members.PositionOf(id) == 0 && d.o.InFlight(id) }) {
			ps |= mirror.At(v - 1)
		}
	}
	return ps
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

// HangAfter is the age of a request, or of a check, at which a disk is reported as hanging.
const HangAfter = 5 * time.Second

// MemberDisk is a member disk of a lockspace on several, or a vacant position: its Err is ErrVacant. The
// Name of its Status is its path, the paths that may lead to it, or "member N" if there is none.
type MemberDisk struct {
	Position int // on the disk, from 1
	UUID     layout.UUID
	mirror.Status
}

// Remedy returns what to do about a disk that is not up; "" if Err alone shows it.
func (m MemberDisk) Remedy() string {
	switch {
	case errors.Is(m.Err, ErrVacant):
		return fmt.Sprintf("if no replacement is running, run bakeryctl disk replace %d NEW", m.Position)
	case errors.Is(m.Err, ErrNoPath):
		return "add its path to --device or BAKERYD_DEVICE"
	case m.isOneOf():
		return "check these devices; if none of them is the disk, add its path to --device or BAKERYD_DEVICE"
	case errors.Is(m.Err, ErrReplaced):
		return "add the path of the new disk to --device or BAKERYD_DEVICE, and restart bakeryd"
	case m.Overwritten() || errors.Is(m.Err, ErrLostWrites):
		return fmt.Sprintf("check that the path is right; if so, the disk lost its contents: run bakeryctl disk replace %d NEW, where NEW may be this disk, with --force", m.Position)
	}
	return ""
}

// isOneOf reports whether several paths may lead to a disk: its error may be that of a disk that is to be a member.
func (m MemberDisk) isOneOf() bool { return strings.Contains(m.Name, " or ") }

// Overwritten reports whether a disk is not up because it has no superblock of the member.
func (m MemberDisk) Overwritten() bool {
	return m.State != mirror.Up && !m.isOneOf() && slices.ContainsFunc(otherContents, func(err error) bool { return errors.Is(m.Err, err) })
}

// otherContents are the errors of superblocks that are not those of a member.
var otherContents = []error{layout.ErrBlank, layout.ErrMagic, layout.ErrVersion, layout.ErrChecksum, layout.ErrIdentity, ErrInterrupted}

// Set is the device of a lockspace on several disks. [Disks] implements it.
type Set interface {
	blockdev.Device
	Superblock() layout.Superblock
	ReadCopies(p []byte, off int64, need mirror.Positions, visit func(mirror.Copy)) error
	Members() []mirror.Status
}

// MemberDisks returns the member disks of a device that OpenDisks returned. While another list is taken into use, some
// may be by the list before. It returns nil if the lockspace is on one disk.
func MemberDisks(dev blockdev.Device) []MemberDisk {
	if set, several := dev.(Set); several {
		return membersOf(set.Members())
	}
	return nil
}

// MemberDisks returns the member disks of the set.
func (d *Disks) MemberDisks() []MemberDisk { return membersOf(d.Members()) }

func membersOf(all []mirror.Status) (disks []MemberDisk) {
	for i, status := range all {
		disks = append(disks, MemberDisk{Position: i + 1, UUID: status.ID, Status: status})
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

// member returns the member at an index of the set.
func (d *Disks) member(i int) mirror.Member {
	name := fmt.Sprintf("member %d", i+1)
	list, paths := d.candidates(i)
	if len(paths) > 0 {
		name = strings.Join(paths, " or ")
	}
	return mirror.Member{Name: name, Open: func() (blockdev.Device, error) { return d.open(i) }, ID: list.Disks[i]}
}

// candidates returns the list in use, and the paths that lead to a member by it, or may: all those that
// lead to no other member.
func (d *Disks) candidates(i int) (list layout.Members, paths []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list = d.sb.Members
	if list.Disks[i].IsZero() {
		return list, nil
	}
	for _, path := range d.paths {
		if d.at[path] == list.Disks[i] {
			paths = append(paths, path)
		}
	}
	if len(paths) > 0 {
		return list, paths
	}
	for _, path := range d.paths {
		if id := d.at[path]; id.IsZero() || list.PositionOf(id) == 0 {
			paths = append(paths, path)
		}
	}
	return list, paths
}

// open opens a member at the first path that leads to it.
func (d *Disks) open(i int) (blockdev.Device, error) {
	list, paths := d.candidates(i)
	switch {
	case list.Disks[i].IsZero():
		return nil, ErrVacant
	case len(paths) == 0:
		return nil, ErrNoPath
	}
	var errs error
	for _, path := range paths {
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

func (d *Disks) openAt(path string, i int) (blockdev.Device, error) {
	select { // see pathReads
	case <-d.reads.DoChan(path, func() (any, error) { return d.o.readPath(path), nil }):
	case <-d.over.Done():
		return nil, blockdev.ErrClosed
	}
	disk, err := d.o.Open(path, d.o.ReadOnly)
	if err != nil {
		return nil, err
	}
	sb, err := d.identify(i, disk)
	if err == nil && d.o.Lock != nil {
		err = d.o.Lock(i, disk, sb)
	}
	if err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	return disk, nil
}

// check implements IDENTITY of package mirror. A check of a set that is closed may return late, from a disk that
// hung. Then it must not register the key of its term, which replaces that of the next one.
func (d *Disks) check(i int, dev blockdev.Device) error {
	if err := d.look(i, dev); err != nil || d.o.Check == nil {
		return err
	}
	if d.over.Err() != nil {
		return blockdev.ErrClosed
	}
	return d.o.Check(i, dev)
}

// look returns an error if dev is not the member at a position, or lost what this host wrote there.
func (d *Disks) look(i int, dev blockdev.Device) error {
	if _, err := d.identify(i, dev); err != nil {
		return err
	}
	return d.checkOwn(i, dev)
}

// identify returns the superblock with the list by which dev is the member at a position, or an error if it
// is not. It reads the superblock and the copy. One of them may be damaged, none may be of another disk. If
// one has a newer list, it begins to follow that.
func (d *Disks) identify(i int, dev blockdev.Device) (in layout.Superblock, err error) {
	d.mu.Lock()
	in = d.sb
	d.mu.Unlock()
	path, stride := dev.Info().Path, in.Geometry.Stride
	buf := Pool.Get(2 * stride)
	defer Pool.Put(buf)
	errs, err := ReadRecords(dev, buf, 0, stride)
	if err != nil {
		return in, fmt.Errorf("read superblock: %w", err)
	}
	valid := false
	for which, err := range errs {
		record := buf[which*stride:]
		if old, marked := FindFormatMark(record); which == 0 && err == nil && marked {
			return in, fmt.Errorf("%s: %w over lockspace %s", path, ErrInterrupted, DescribeSuperblock(old))
		}
		var sb layout.Superblock
		if err == nil {
			sb, err = layout.DecodeSuperblock(record, which)
		}
		if err != nil {
			errs[which] = err
			continue
		}
		if SameSuperblock(sb, in) && sb.Members.Epoch > in.Members.Epoch {
			d.notice()
		}
		if err := differs(path, sb, in, i+1); err != nil {
			return in, err
		}
		valid = true
	}
	if !valid {
		return in, fmt.Errorf("%s: %w; %w", path, errs[0], errs[1])
	}
	return in, nil
}

// ownRecord is the host record that this process writes.
type ownRecord struct {
	host        int
	incarnation uint64
}

// Own names the record that this process writes from now on: that of a host, with an incarnation.
func (d *Disks) Own(host int, incarnation uint64) { d.own.Store(&ownRecord{host, incarnation}) }

// checkOwn returns an error if a disk has an older version of this host's record than it acknowledged to this process,
// as the member at a position (OWN). A claim of another host that read the same record has the generation of
// the own one.
func (d *Disks) checkOwn(i int, dev blockdev.Device) error {
	own, sb := d.own.Load(), d.Superblock()
	if own == nil { // nothing was written
		return nil
	}
	off := sb.Geometry.Host(own.host)
	acked := d.Kept(off, i) // before the read: a write may be acknowledged meanwhile
	buf := Pool.Get(sb.Geometry.Stride)
	defer Pool.Put(buf)
	if err := dev.Read(buf, off); err != nil {
		return fmt.Errorf("read the record of this host: %w", err)
	}
	found, err := NewCodec(sb).Version(buf, off, i)
	if err != nil || !found.Less(acked) {
		return nil
	}
	if r, err := sb.Space().DecodeHost(buf, own.host); found.Epoch == acked.Epoch && (err != nil || r.Incarnation != own.incarnation) {
		return nil
	}
	return fmt.Errorf("%s %w: it has version %d.%d of the record of this host, and acknowledged %d.%d: it is blank or an old copy",
		dev.Info().Path, ErrLostWrites, found.Epoch, found.Counter, acked.Epoch, acked.Counter)
}

// differs returns why a superblock is not that of the member at a position of the lockspace in use.
func differs(path string, sb, in layout.Superblock, position int) error {
	switch {
	case sb.UUID != in.UUID:
		return fmt.Errorf("%s is of lockspace %s, want %s: %w", path, DescribeSuperblock(sb), DescribeSuperblock(in), layout.ErrIdentity)
	case !SameSuperblock(sb, in):
		return fmt.Errorf("%s has another superblock than the other member disks: %w", path, layout.ErrIdentity)
	case sb.Position != position:
		return fmt.Errorf("%s is member %d, want member %d: %w", path, sb.Position, position, layout.ErrIdentity)
	case !in.Members.Has(position, diskOf(sb)):
		return fmt.Errorf("%s is disk %v, which is not member %d in epoch %d: %w", path, diskOf(sb), position, in.Members.Epoch, ErrReplaced)
	}
	return nil
}

// SameSuperblock reports whether two superblocks are those of one lockspace, of any of its member disks
// and with any list of them.
func SameSuperblock(a, b layout.Superblock) bool {
	a.Position, a.Members.Epoch, a.Members.Disks = b.Position, b.Members.Epoch, b.Members.Disks
	return a == b
}

// diskOf returns the uuid of the disk that has a superblock.
func diskOf(sb layout.Superblock) layout.UUID { return sb.Members.Disks[sb.Position-1] }
