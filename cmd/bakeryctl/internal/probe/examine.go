package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Verdict rates a finding.
type Verdict string

// The verdicts, the worst last. Unknown means that the fact could not be found.
const (
	OK      Verdict = "ok"
	Warning Verdict = "warning"
	Unfit   Verdict = "unfit"
	Unknown Verdict = "unknown"
)

// Finding is one rated fact.
type Finding struct {
	ID      string  `json:"id"` // for programs; never changes
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"` // the fact, and why it matters
	Remedy  string  `json:"remedy"` // an instruction; empty if none is needed
}

// Report is the output of bakeryctl probe --json.
type Report struct {
	Device        string                  `json:"device"`
	Fit           bool                    `json:"fit"`            // whether it is suitable for locks
	Findings      []Finding               `json:"findings"`       // about the device
	Size          int64                   `json:"size"`           // bytes
	LogicalBlock  int                     `json:"logical_block"`  // bytes
	PhysicalBlock int                     `json:"physical_block"` // bytes
	Stride        int                     `json:"stride"`         // that format would use; 0: none
	Contents      string                  `json:"contents"`       // contents of its beginning
	Lockspace     *spaceReport            `json:"lockspace"`      // nil if there is none
	Disk          *Disk                   `json:"disk"`           // nil if it is a file
	File          *File                   `json:"file"`           // nil if it is a disk
	Reservations  *fence.Capabilities     `json:"reservations"`   // nil if there are none
	Watchdogs     []Watchdog              `json:"watchdogs"`      // of this host
	Measured      *measure.Measurement    `json:"measured"`       // with --write
	Meetings      []*measuring.MeetReport `json:"meetings"`       // coherence checks, with --with

	opened bool               // direct IO works
	id     string             // see blockdev.Info.Disk
	space  *layout.Superblock // nil: none
	lease  time.Duration      // of space; 0: none
}

// spaceReport describes the lockspace on a device.
type spaceReport struct {
	UUID    layout.UUID   `json:"uuid"`
	Name    string        `json:"name"` // name of the lockspace, at most 64 bytes; may be empty
	Stride  int           `json:"stride"`
	Hosts   int           `json:"hosts"` // greatest number of hosts
	Locks   int           `json:"locks"` // greatest number of locks
	LeaseMS int64         `json:"lease_ms"`
	Policy  layout.Policy `json:"policy"`
	FenceMS int64         `json:"fence_after_ms,omitzero"`
}

// capabilitiesTimeout is the timeout for reading the reservation capabilities of a device.
const capabilitiesTimeout = 10 * time.Second

func (r *Report) add(id string, v Verdict, detail, remedy string) {
	r.Findings = append(r.Findings, Finding{id, v, detail, remedy})
}

// judgedLease returns the lease that findings are relative to.
func (r *Report) judgedLease() time.Duration { return cmp.Or(r.lease, lockspace.DefaultLease) }

// outage returns the time that a host may hang without the loss of its locks, and its name: fence-after
// or the lease.
func (r *Report) outage() (time.Duration, string) {
	if r.space != nil && r.space.FenceAfter > 0 {
		return r.space.FenceAfter, fmt.Sprintf("fence-after of %v", r.space.FenceAfter)
	}
	return r.judgedLease(), fmt.Sprintf("lease of %v", r.judgedLease())
}

func (r *Report) conclude() {
	r.Fit = !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Verdict == Unfit })
}

// examine collects all findings that do not require a write.
func examine(ctx context.Context, sys Sys, path string) (*Report, error) {
	r := &Report{Device: path, Findings: []Finding{}, Meetings: []*measuring.MeetReport{}, Watchdogs: sys.Watchdogs()}
	dev, err := blockdev.Open(path, blockdev.Options{ReadOnly: true, Killable: true})
	if errors.Is(err, blockdev.ErrNoDirectIO) {
		r.add("direct-io", Unfit, err.Error(), "use a block device")
		return r, r.addFile(sys, path)
	}
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	r.opened, r.id = true, dev.Info().Disk()
	r.addBlocks(dev)
	occupied, err := format.ReadOccupancy(ctx, dev)
	if err != nil {
		return nil, err
	}
	info := dev.Info()
	if r.space = occupied.Lockspace; r.space != nil {
		r.lease = r.space.Lease
	}
	r.addRoom(occupied, info)
	if !info.Regular {
		r.addDisk(ctx, sys, info)
	} else if err := r.addFile(sys, path); err != nil {
		return nil, err
	}
	r.addContents(occupied, info)
	r.judgeWatchdogs(timing.Times{Lease: r.judgedLease()}.Watchdog())
	return r, nil
}

func (r *Report) addBlocks(dev blockdev.Device) {
	info := dev.Info()
	r.Size, r.LogicalBlock, r.PhysicalBlock = info.Size, info.LogicalBlock, info.PhysicalBlock
	if err := dev.Read(blockdev.Alloc(info.LogicalBlock), 0); err != nil {
		r.add("direct-io", Unfit, err.Error(), "run dmesg to see what is wrong with the device")
	} else {
		r.add("direct-io", OK, fmt.Sprintf("%d bytes were read past the page cache", info.LogicalBlock), "")
	}
}

func (r *Report) addRoom(o format.Occupancy, info blockdev.Info) {
	r.Stride = o.Stride
	blocks := fmt.Sprintf("logical %d, physical %d", info.LogicalBlock, info.PhysicalBlock)
	if r.Stride == 0 {
		r.add("blocks", Unfit, fmt.Sprintf("%s: records of this size are not supported, the maximum is %d bytes", blocks, layout.MaxStride), "use a device with smaller blocks")
		return
	}
	r.add("blocks", OK, fmt.Sprintf("%s: format places records %d bytes apart", blocks, r.Stride), "")
	switch size := text.Bytes(info.Size).String(); {
	case r.space != nil:
		r.add("size", OK, size, "")
	case !o.HasRoom:
		r.add("size", Unfit, size+": "+o.Fits, "use a larger device")
	default:
		r.add("size", OK, size+": "+o.Fits, "")
	}
}

func (r *Report) addDisk(ctx context.Context, sys Sys, info blockdev.Info) {
	disk, err := sys.Disk(info.Major, info.Minor)
	if err != nil {
		r.add("kind", Unknown, err.Error(), "mount sysfs on /sys")
		return
	}
	r.Disk = &disk
	r.judgeDisk(ctx, sys)
	r.addReservations(ctx, info.Path)
}

// addReservations adds whether other hosts can be fenced on the device.
func (r *Report) addReservations(ctx context.Context, path string) {
	const id = "reservations"
	cannotFence := func(why string) {
		if r.space != nil && r.space.Policy == layout.PolicyFence {
			r.add(id, Warning, why, "the lockspace has policy fence: use bakeryd --fence exec, or format with another --policy")
		} else {
			r.add(id, OK, why, "")
		}
	}
	switch r.Disk.Kind {
	case KindNVMe:
		r.add(id, Unknown, "SCSI commands do not show whether bakeryd --fence pr can cut a dead host off from NVMe", "run nvme id-ns -H and read rescap")
		return
	case KindPartition:
		cannotFence("a partition has no SCSI persistent reservations: bakeryd --fence pr cannot cut a dead host off from it")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, capabilitiesTimeout)
	defer cancel()
	c, err := fence.ReadCapabilities(ctx, path)
	switch {
	case errors.Is(err, fence.ErrUnsupported):
		cannotFence("the device has no SCSI persistent reservations: bakeryd --fence pr cannot cut a dead host off from it")
		return
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		r.add(id, Unknown, err.Error(), "run it as root")
		return
	case err != nil:
		r.add(id, Unknown, err.Error(), "run sg_persist --in --report-capabilities")
		return
	}
	r.Reservations = &c
	text := fmt.Sprintf("SCSI persistent reservations, %d keys registered", c.Keys)
	switch {
	case !c.Reported:
		r.add(id, OK, text+"; the device does not report their types", "")
	case !c.AllRegistrants:
		cannotFence(text + ", but none of type Write Exclusive - All Registrants: bakeryd --fence pr cannot cut a dead host off from it")
	case !c.CanPersist:
		r.add(id, OK, text+", lost when the device loses power", "")
	default:
		r.add(id, OK, text+", can survive a loss of power (PTPL)", "")
	}
}

// addContents adds what the device contains.
func (r *Report) addContents(o format.Occupancy, info blockdev.Info) {
	r.Contents = o.What
	sb := o.Lockspace
	switch {
	case o.What == "":
		r.add("contents", OK, "empty: bakeryctl format accepts it", "")
		return
	case sb == nil:
		r.add("contents", Warning, "it holds "+o.What, "check the device name; bakeryctl format --force destroys the contents")
		return
	}
	g := sb.Geometry
	r.Lockspace = &spaceReport{UUID: sb.UUID, Name: sb.Name, Stride: g.Stride, Hosts: g.Hosts, Locks: g.Locks, LeaseMS: sb.Lease.Milliseconds(), Policy: sb.Policy,
		FenceMS: sb.FenceAfter.Milliseconds()}
	text := fmt.Sprintf("%s, %d hosts, %d locks, lease %v, policy %v", o.What, g.Hosts, g.Locks, sb.Lease, sb.Policy)
	if sb.FenceAfter > 0 {
		text += fmt.Sprintf(", fence after %v", sb.FenceAfter)
	}
	switch {
	case g.Stride < info.PhysicalBlock && !info.Regular:
		r.add("contents", Unfit, fmt.Sprintf("%s; records are %d bytes apart, less than a physical block: a write may damage the records of other hosts", text, g.Stride),
			"stop all hosts and run bakeryctl format --force")
	case o.CopyUsed != 0:
		r.add("contents", Warning, text+"; the superblock is damaged, its copy is in use", "run bakeryctl check --repair")
	default:
		r.add("contents", OK, text, "")
	}
}
