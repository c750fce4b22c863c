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
	"github.com/bakeryd/bakeryd/blockdev/probe"
	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Report is the output of bakeryctl probe --json.
type Report struct {
	Device        string                  `json:"device"`
	Fit           bool                    `json:"fit"`
	Findings      []probe.Finding         `json:"findings"`
	Size          int64                   `json:"size"`
	LogicalBlock  int                     `json:"logical_block"`
	PhysicalBlock int                     `json:"physical_block"`
	Stride        int                     `json:"stride"` // that format would use; 0: none
	Contents      string                  `json:"contents"`
	Lockspace     *spaceReport            `json:"lockspace"`
	Disk          *probe.Disk             `json:"disk"`
	File          *probe.File             `json:"file"`
	Reservations  *fence.Capabilities     `json:"reservations"`
	Watchdogs     []probe.Watchdog        `json:"watchdogs"`
	Measured      *measure.Measurement    `json:"measured"`
	Meetings      []*measuring.MeetReport `json:"meetings"`

	opened bool               // direct IO works
	space  *layout.Superblock // nil: none
	lease  time.Duration      // of space; 0: none
}

// spaceReport describes the lockspace on a device.
type spaceReport struct {
	UUID    layout.UUID   `json:"uuid"`
	Name    string        `json:"name"`
	Stride  int           `json:"stride"`
	Hosts   int           `json:"hosts"`
	Locks   int           `json:"locks"`
	LeaseMS int64         `json:"lease_ms"`
	Policy  layout.Policy `json:"policy"`
}

// capabilitiesTimeout is the timeout for reading the reservation capabilities of a device.
const capabilitiesTimeout = 10 * time.Second

func (r *Report) add(id string, v probe.Verdict, detail, remedy string) {
	r.Findings = append(r.Findings, probe.Finding{ID: id, Verdict: v, Detail: detail, Remedy: remedy})
}

// judgedLease returns the lease that findings are relative to.
func (r *Report) judgedLease() time.Duration { return cmp.Or(r.lease, lockspace.DefaultLease) }

func (r *Report) conclude() {
	r.Fit = !slices.ContainsFunc(r.Findings, func(f probe.Finding) bool { return f.Verdict == probe.Unfit })
}

// examine collects all findings that do not require a write.
func examine(ctx context.Context, sys probe.Sys, path string) (*Report, error) {
	r := &Report{Device: path, Findings: []probe.Finding{}, Meetings: []*measuring.MeetReport{}, Watchdogs: sys.Watchdogs()}
	dev, err := blockdev.Open(path, blockdev.Options{ReadOnly: true})
	if errors.Is(err, blockdev.ErrNoDirectIO) {
		r.add("direct-io", probe.Unfit, err.Error(), "use a block device")
		return r, r.addFile(sys, path)
	}
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	r.opened = true
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
	if info.Regular {
		err = r.addFile(sys, path)
	} else {
		r.addDisk(ctx, sys, info)
	}
	if err != nil {
		return nil, err
	}
	r.addContents(occupied, info)
	r.Findings = append(r.Findings, probe.JudgeWatchdogs(r.Watchdogs, timing.Times{Lease: r.judgedLease()}.Watchdog()))
	return r, nil
}

func (r *Report) addBlocks(dev blockdev.Device) {
	info := dev.Info()
	r.Size, r.LogicalBlock, r.PhysicalBlock = info.Size, info.LogicalBlock, info.PhysicalBlock
	if err := dev.Read(blockdev.Alloc(info.LogicalBlock), 0); err != nil {
		r.add("direct-io", probe.Unfit, err.Error(), "run dmesg to see what is wrong with the device")
	} else {
		r.add("direct-io", probe.OK, fmt.Sprintf("%d bytes were read past the page cache", info.LogicalBlock), "")
	}
}

func (r *Report) addRoom(o format.Occupancy, info blockdev.Info) {
	r.Stride = o.Stride
	blocks := fmt.Sprintf("logical %d, physical %d", info.LogicalBlock, info.PhysicalBlock)
	if r.Stride == 0 {
		r.add("blocks", probe.Unfit, fmt.Sprintf("%s: records of this size are not supported, the maximum is %d bytes", blocks, layout.MaxStride), "use a device with smaller blocks")
		return
	}
	r.add("blocks", probe.OK, fmt.Sprintf("%s: format places records %d bytes apart", blocks, r.Stride), "")
	switch size := text.Bytes(info.Size).String(); {
	case r.space != nil:
		r.add("size", probe.OK, size, "")
	case !o.HasRoom:
		r.add("size", probe.Unfit, size+": "+o.Fits, "use a larger device")
	default:
		r.add("size", probe.OK, size+": "+o.Fits, "")
	}
}

func (r *Report) addFile(sys probe.Sys, path string) error {
	file, finding, err := sys.File(path)
	if err != nil {
		return err
	}
	r.File = &file
	r.Findings = append(r.Findings, finding)
	return nil
}

func (r *Report) addDisk(ctx context.Context, sys probe.Sys, info blockdev.Info) {
	disk, err := sys.Disk(info.Major, info.Minor)
	if err != nil {
		r.add("kind", probe.Unknown, err.Error(), "mount sysfs on /sys")
		return
	}
	r.Disk = &disk
	r.Findings = append(r.Findings, sys.Findings(ctx, &disk, r.judgedLease())...)
	r.addReservations(ctx, info.Path)
}

// addReservations adds whether other hosts can be fenced on the device.
func (r *Report) addReservations(ctx context.Context, path string) {
	const id = "reservations"
	cannotFence := func(why string) {
		if r.space != nil && r.space.Policy == layout.PolicyFence {
			r.add(id, probe.Warning, why, "the lockspace has policy fence: use bakeryd --fence exec, or format with another --policy")
		} else {
			r.add(id, probe.OK, why, "")
		}
	}
	switch r.Disk.Kind {
	case probe.KindNVMe:
		r.add(id, probe.Unknown, "SCSI commands do not show whether hosts can be fenced on NVMe", "run nvme id-ns -H and read rescap")
		return
	case probe.KindPartition:
		cannotFence("a partition has no reservations: hosts cannot be fenced by it")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, capabilitiesTimeout)
	defer cancel()
	c, err := fence.ReadCapabilities(ctx, path)
	switch {
	case errors.Is(err, fence.ErrUnsupported):
		cannotFence("none: hosts cannot be fenced by it (bakeryd --fence pr)")
		return
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		r.add(id, probe.Unknown, err.Error(), "run it as root")
		return
	case err != nil:
		r.add(id, probe.Unknown, err.Error(), "run sg_persist --in --report-capabilities")
		return
	}
	r.Reservations = &c
	text := fmt.Sprintf("SCSI persistent reservations, %d keys registered", c.Keys)
	switch {
	case !c.Reported:
		r.add(id, probe.OK, text+"; the device does not report their types", "")
	case !c.AllRegistrants:
		cannotFence(text + ", but none of type Write Exclusive - All Registrants: hosts cannot be fenced by it")
	case !c.CanPersist:
		r.add(id, probe.OK, text+", lost when the device loses power", "")
	default:
		r.add(id, probe.OK, text+", can survive a loss of power (PTPL)", "")
	}
}

// addContents adds what the device contains.
func (r *Report) addContents(o format.Occupancy, info blockdev.Info) {
	r.Contents = o.What
	sb := o.Lockspace
	switch {
	case o.What == "":
		r.add("contents", probe.OK, "empty: bakeryctl format accepts it", "")
		return
	case sb == nil:
		r.add("contents", probe.Warning, "it holds "+o.What, "check the device name; bakeryctl format --force destroys the contents")
		return
	}
	g := sb.Geometry
	r.Lockspace = &spaceReport{UUID: sb.UUID, Name: sb.Name, Stride: g.Stride, Hosts: g.Hosts, Locks: g.Locks, LeaseMS: sb.Lease.Milliseconds(), Policy: sb.Policy}
	text := fmt.Sprintf("%s, %d hosts, %d locks, lease %v, policy %v", o.What, g.Hosts, g.Locks, sb.Lease, sb.Policy)
	switch {
	case g.Stride < info.PhysicalBlock && !info.Regular:
		r.add("contents", probe.Unfit, fmt.Sprintf("%s; records are %d bytes apart, less than a physical block: a write may damage the records of other hosts", text, g.Stride),
			"stop all hosts and run bakeryctl format --force")
	case o.CopyUsed != 0:
		r.add("contents", probe.Warning, text+"; the superblock is damaged, its copy is in use", "run bakeryctl check --repair")
	default:
		r.add("contents", probe.OK, text, "")
	}
}
