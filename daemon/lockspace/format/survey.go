package format

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// occupantKind is the kind of contents of a device.
type occupantKind int

const (
	deviceVacant      occupantKind = iota // zeroes
	deviceLockspace                       // a complete lockspace
	deviceInterrupted                     // the mark of an interrupted format
	deviceRemains                         // host records without a superblock
	deviceForeign                         // anything else
)

// occupant is the contents of a device that formatting would destroy.
type occupant struct {
	kind occupantKind
	old  layout.Superblock // of a lockspace or the mark
	// space is that of the hosts. Remains have no superblock for it.
	space layout.Space
	rows  []lockspace.HostRow
	what  string // in words; "" if vacant

	scratch bool // whether a foreign occupant is the scratch block of a probe and nothing else
}

// occupied reports whether formatting would destroy something.
func (d *disk) occupied() bool { return d.found.kind != deviceVacant }

// marked reports whether formatting leaves a mark at byte 0, or has left one.
func (d *disk) marked() bool {
	return d.found.kind == deviceLockspace || d.found.kind == deviceInterrupted
}

// hasHosts reports whether there is a host table.
func (d *disk) hasHosts() bool { return d.marked() || d.found.kind == deviceRemains }

// inUse reports whether a host may use the old lockspace, by the rows that were read last.
func (d *disk) inUse() bool { return slices.ContainsFunc(d.found.rows, lockspace.HostRow.InUse) }

// sameLockspace reports whether both disks have host records of one lockspace.
func (d *disk) sameLockspace(other *disk) bool {
	return d.hasHosts() && other.hasHosts() && d.found.space.UUID == other.found.space.UUID
}

// survey finds what is on the disks.
func (f *formatter) survey(ctx context.Context) (err error) {
	total := int64(0)
	for _, d := range f.disks {
		total += d.area
	}
	p := f.o.progress("looking for data", "read", total)
	for _, d := range f.disks {
		if d.created {
			continue
		}
		if d.found, err = d.survey(ctx, p); err != nil {
			return d.wrap(err)
		}
	}
	return nil
}

// survey returns what is on the disk.
func (d *disk) survey(ctx context.Context, p *progress) (occupant, error) {
	head, err := lockspace.ReadHead(d.dev)
	if err != nil {
		return occupant{}, err
	}
	old, _, headErr := layout.FindSuperblock(head)
	if headErr == nil {
		return d.surveyLockspace(deviceLockspace, old)
	}
	if old, ok := lockspace.FindFormatMark(head); ok {
		return d.surveyLockspace(deviceInterrupted, old)
	}
	if errors.Is(headErr, layout.ErrVersion) {
		return occupant{}, fmt.Errorf("%w: %w", ErrForeignVersion, headErr)
	}
	info := d.dev.Info()
	from, left := int64(0), ""
	if isScratch(head) {
		from = int64(max(info.PhysicalBlock, lockspace.BlockSize(d.dev)))
		left = "the block of a bakeryctl probe --write that is running or was killed"
	}
	at, err := d.firstNonZero(ctx, p, from)
	if err != nil {
		return occupant{}, err
	}
	if at >= 0 && left == "" {
		found, err := d.surveyRemains(ctx)
		if err != nil || found.kind == deviceRemains {
			return found, err
		}
	}
	o, data := occupant{kind: deviceForeign}, fmt.Sprintf("unknown data, the first byte that is not zero at %d", at)
	// A device that is zero here may have a signature, too: RAID metadata lies at the end.
	signature := probeSignature(ctx, info)
	switch {
	case left != "" && at >= 0:
		o.what = left + ", and " + data
	case signature != "":
		o.what = signature
	case left != "":
		o.what, o.scratch = left, true
	case at >= 0:
		o.what = data
	default:
		o.kind = deviceVacant
	}
	return o, nil
}

func (d *disk) surveyLockspace(kind occupantKind, old layout.Superblock) (occupant, error) {
	o := occupant{kind: kind, old: old, space: old.Space()}
	rows, err := lockspace.ReadHostTable(d.dev, o.space)
	if err != nil {
		err = fmt.Errorf("read host table: %w", err)
	}
	o.rows, o.what = rows, describe(old)+describeRows(rows)
	if kind == deviceInterrupted {
		o.what = "the rest of an interrupted format over " + o.what
	}
	return o, err
}

// surveyRemains looks for host records at every possible stride.
func (d *disk) surveyRemains(ctx context.Context) (occupant, error) {
	info := d.dev.Info()
	for stride := max(layout.MinStride, info.LogicalBlock); stride <= layout.MaxStride; stride *= 2 {
		if err := ctx.Err(); err != nil {
			return occupant{}, err
		}
		space := layout.Space{Geometry: layout.Geometry{Stride: stride, Hosts: layout.MaxHosts, Locks: layout.MaxLocks}}
		first := space.Geometry.Host(1)
		count := min(layout.MaxHosts, int((info.Size-first)/int64(stride)))
		var rows []lockspace.HostRow
		err := lockspace.ScanRecords(d.dev, first, stride, count, func(i int, sector []byte, err error) error {
			if err != nil {
				return nil
			}
			of := space
			of.UUID = layout.UUID(sector[24:40]) // at this offset in every format version
			of.Several = binary.LittleEndian.Uint16(sector[4:]) == layout.VersionSeveral
			row := lockspace.HostRow{ID: i + 1, Raw: string(sector)}
			row.Record, err = of.DecodeHost(sector, row.ID)
			if err == nil && !row.Record.Blank() {
				space = of
				rows = append(rows, row)
			}
			return nil
		})
		if err != nil {
			return occupant{}, fmt.Errorf("look for host records: %w", err)
		}
		if len(rows) > 0 {
			// The number of hosts is not known. 64 more are watched, for hosts that
			// join meanwhile.
			top := rows[len(rows)-1].ID
			for _, r := range rows {
				top = max(top, r.Record.ReadHorizon)
			}
			space.Geometry.Hosts = min(count, top+64)
			what := fmt.Sprintf("the remains of lockspace %v, whose superblock is lost%s", space.UUID, describeRows(rows))
			return occupant{kind: deviceRemains, space: space, rows: rows, what: what}, nil
		}
	}
	return occupant{}, nil
}

// describeRows returns in words which hosts of a lockspace have joined and not left.
func describeRows(rows []lockspace.HostRow) string {
	var names []string
	for _, r := range rows {
		switch {
		case r.Err != nil:
			names = append(names, fmt.Sprintf("host %d (unreadable)", r.ID))
		case r.InUse():
			names = append(names, text.HostName(r.ID, r.Record.Name))
		}
	}
	const most = 8
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	if len(names) == 0 {
		return ", no host joined"
	}
	return ", joined by " + strings.Join(names, ", ")
}

// describe returns the name, the uuid and the disks of a lockspace for a message.
func describe(sb layout.Superblock) string {
	what := "lockspace " + lockspace.DescribeSuperblock(sb)
	if sb.Members.Several() {
		what += fmt.Sprintf(" on %d disks, position %d", sb.Members.Positions, sb.Position)
	}
	return what
}

// missing returns the number of disks that the old lockspace of a disk has and that are not given.
func (f *formatter) missing(d *disk) (n int) {
	for _, id := range d.found.old.Members.Disks {
		if !id.IsZero() && !slices.ContainsFunc(f.disks, func(o *disk) bool {
			return o.marked() && o.sameLockspace(d) && o.found.old.Position > 0 && o.found.old.Members.Disks[o.found.old.Position-1] == id
		}) {
			n++
		}
	}
	return n
}

// refuse returns the reason why the disks are not formatted. A host that shows as joined may be
// dead. Therefore refuse watches whether one renews, which a live host does every sixth of the
// lease.
func (f *formatter) refuse(ctx context.Context) error {
	var watched []*disk
	for _, d := range f.disks {
		if d.found.kind == deviceLockspace && d.inUse() {
			watched = append(watched, d)
		}
	}
	alive, host, err := f.watch(ctx, watched)
	if err != nil {
		return err
	}
	var refusals []error
	for _, d := range f.disks {
		if !d.occupied() {
			continue
		}
		err := fmt.Errorf("%w: it holds %s", ErrOccupied, d.found.what)
		if n := f.missing(d); n > 0 {
			err = fmt.Errorf("%w; give all %d disks of that lockspace, %d of them are missing here", err, d.found.old.Members.Count(), n)
		}
		switch {
		case d == alive:
			err = fmt.Errorf("%w: %w: %s is using it now", err, ErrHostAlive, host)
		case alive == nil && slices.Contains(watched, d):
			err = fmt.Errorf("%w; none of them was seen alive", err)
		}
		refusals = append(refusals, d.wrap(err))
	}
	return errors.Join(refusals...)
}

// watch returns the first disk on which a host is seen to renew, and the name of that host. It
// returns nil if no host is.
func (f *formatter) watch(ctx context.Context, disks []*disk) (alive *disk, host string, err error) {
	if len(disks) == 0 {
		return nil, "", nil
	}
	lease := time.Duration(0)
	for _, d := range disks {
		lease = max(lease, d.found.old.Lease)
	}
	watch := lease/6 + lease/20 + lease/20
	f.o.report("watching %v whether a host uses the lockspace", watch.Round(100*time.Millisecond))
	every := lockspace.PollInterval(lease, 250*time.Millisecond)
	for watched := time.Duration(0); ; {
		began := time.Now()
		for _, d := range disks {
			rows, err := d.hostTable()
			if err != nil {
				return nil, "", d.wrap(err)
			}
			if row, ok := lockspace.ChangedRow(d.found.rows, rows); ok && row.Err == nil {
				return d, text.HostName(row.ID, row.Record.Name), nil
			}
		}
		if watched > watch {
			return nil, "", nil
		}
		if err := retry.Pause(ctx, every); err != nil {
			return nil, "", f.wrap(err)
		}
		watched += min(time.Since(began), 2*every+lease/20) // this machine may have been frozen
	}
}

// probeSignature returns in words what blkid(8) finds on a device. It returns "" if blkid finds
// nothing or is missing.
func probeSignature(ctx context.Context, info blockdev.Info) string {
	if !info.Regular && info.Major == 0 {
		return "" // not a device of this system
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "blkid", "-p", "-o", "export", "--", info.Path).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 8 {
		return "several signatures, by blkid"
	}
	found := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		found[key] = value
	}
	var parts []string
	for _, x := range []struct{ key, words string }{{"TYPE", ""}, {"PTTYPE", "a partition table of type "}, {"LABEL", "label "}, {"UUID", "uuid "}} {
		if found[x.key] != "" && (len(parts) > 0 || x.key == "TYPE" || x.key == "PTTYPE") {
			parts = append(parts, x.words+text.Printable(found[x.key]))
		}
	}
	return strings.Join(parts, ", ")
}

// Occupancy describes the contents of a device and the lockspace that would fit on it.
type Occupancy struct {
	What      string             // contents in words, "" if the device is empty
	Lockspace *layout.Superblock // nil if there is no usable one
	CopyUsed  int                // 1 if the superblock at byte 0 is damaged
	Stride    int                // stride that format would choose, 0 if none fits the device
	Fits      string             // size of the lockspace that would fit, in words
	HasRoom   bool               // whether any lockspace fits
}

// ReadOccupancy returns the contents of a device, as formatting finds them. It never writes. It
// returns the errors of reading, ErrForeignVersion, or the cause of ctx's end.
func ReadOccupancy(ctx context.Context, dev blockdev.Device) (Occupancy, error) {
	o := Occupancy{}
	info := dev.Info()
	if stride, err := chooseStride(info, 0); err == nil {
		g := defaultGeometry(stride)
		o.Stride, o.HasRoom, o.Fits = stride, true, fmt.Sprintf("a lockspace of %d hosts and %d locks fits", g.Hosts, g.Locks)
		if g.Size() > info.Size {
			o.Fits = fitting(g, info.Size)
			o.HasRoom = layout.Geometry{Stride: stride, Hosts: 1, Locks: 1}.Size() <= info.Size
		}
	}
	if sb, copyUsed, err := lockspace.FindSuperblock(dev); err == nil {
		o.Lockspace, o.CopyUsed = &sb, copyUsed
		o.What = describe(sb)
		return o, nil
	}
	found, err := surveyorOf(dev).survey(ctx, nil)
	o.What = found.what
	return o, err
}

// Contents returns in words what formatting would find in the first size bytes of a device, "" if nothing.
// It never writes. It returns the errors of ReadOccupancy.
func Contents(ctx context.Context, dev blockdev.Device, size int64) (what string, err error) {
	found, err := (&disk{dev: dev, area: size}).survey(ctx, nil)
	return found.what, err
}

// surveyorOf returns a disk whose survey covers as much of a device as a lockspace of the default
// size needs.
func surveyorOf(dev blockdev.Device) *disk {
	info := dev.Info()
	area := info.Size
	if stride, err := chooseStride(info, 0); err == nil {
		area = min(area, defaultGeometry(stride).Size())
	}
	return &disk{dev: dev, area: area}
}

func defaultGeometry(stride int) layout.Geometry {
	return layout.Geometry{Stride: stride, Hosts: lockspace.DefaultHosts, Locks: lockspace.DefaultLocks}
}
