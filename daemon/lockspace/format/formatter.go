package format

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// formatter creates a lockspace on a disk, or on several as its members. Its order of steps leaves
// on each disk, after any interruption, the complete old lockspace, no lockspace, or the complete
// new one:
//
//	step                                    | found by a reader after it
//	----------------------------------------|----------------------------------------------
//	1 over a lockspace: mark at byte 0      | the old one, by its copy
//	2 zeroes over the copy                  | none; byte 0 names the old one
//	3 wait for the old hosts                | none
//	4 zeroes over the area, upwards, except | none
//	  for the mark                          |
//	5 the new copy                          | the new one, by its copy
//	6 the new superblock, over the mark     | the new one
//
// Each step is durable before the next begins. The mark is the old superblock in the encoding of
// its copy. At byte 0 it is not valid, since a copy is valid only at its own address, but it keeps
// the lease and the geometry of hosts that may still run. Formatting that finds the mark repeats
// the whole wait if a host record still shows a host. Without an old lockspace there is no mark,
// and zeroing begins at byte 0.
//
// With several disks, steps 1 and 2 are complete on all of them before step 3 begins, and step 4
// before step 5. Therefore no record of an old lockspace is erased while a majority of the given
// disks shows that lockspace, and no disk has the new one while another still has old records.
//
// Step 3 prevents a holder in the old lockspace at the same time as one in the new. A host reads
// the superblocks at each renewal and gives up when both are gone. A host that read them before may
// still write that renewal, and then holds its locks for another lease. Therefore the wait is the
// time after which every observer declares a host dead: lease + margin without a change of its
// record, and the time of its watchdog. A host that is joining writes its record before it reads
// the superblocks for the last time. The record of a host is on a majority of the disks of its
// lockspace, and may be old on the others. The wait is for all given disks of that lockspace, and a
// change on one of them begins it again: if they are a majority, one of them has each renewal.
type formatter struct {
	o        Options
	disks    []*disk         // by position
	geometry layout.Geometry // of the new lockspace
}

// disk is a disk of a formatter.
type disk struct {
	dev     blockdev.Device
	created bool  // whether it is a file that is being created, and needs no survey
	area    int64 // bytes from byte 0 that must be zeroes for the new lockspace
	found   occupant
}

func (f *formatter) run(ctx context.Context) (*Result, error) {
	stride, err := f.chooseStride()
	if err != nil {
		return nil, err
	}
	g := f.o.geometry(stride)
	f.geometry = g
	for _, d := range f.disks {
		info, need := d.dev.Info(), g.Size()
		if info.Size < need {
			return nil, d.wrap(fmt.Errorf("%w: %d hosts and %d locks %d bytes apart need %v, it has %v; %s",
				lockspace.ErrDeviceSize, g.Hosts, g.Locks, stride, text.Bytes(need), text.Bytes(info.Size), fitting(g, info.Size)))
		}
		d.area = min(max(need, layout.HeadSize), info.Size)
	}
	if err := f.survey(ctx); err != nil {
		return nil, err
	}
	if !f.o.Force && slices.ContainsFunc(f.disks, (*disk).occupied) {
		return nil, f.refuse(ctx)
	}
	if err := f.erase(ctx); err != nil {
		return nil, err
	}
	// Formatted is the time after the wait: hosts do not trust clocks behind it.
	sb := f.o.superblock(stride, len(f.disks))
	result := &Result{Superblock: sb, Size: text.Bytes(g.Size()), Created: true}
	for i, d := range f.disks {
		sb := sb
		if i > 0 {
			sb.Position = i + 1
		}
		if err := writeSuperblocks(d.dev, sb); err != nil {
			return nil, f.unusable(d.wrap(err), false)
		}
		result.Paths = append(result.Paths, d.dev.Info().Path)
		result.Created = result.Created && d.created
	}
	for _, d := range f.disks {
		result.Warnings = append(result.Warnings, f.warnings(ctx, d)...)
	}
	return result, nil
}

// warnings returns those about what is left on a disk.
func (f *formatter) warnings(ctx context.Context, d *disk) []string {
	info, on := d.dev.Info(), "the device"
	if len(f.disks) > 1 {
		on = info.Path
	}
	if d.created {
		return nil
	}
	if signature := probeSignature(ctx, info); signature != "" {
		return []string{fmt.Sprintf("%s is left on %s outside the lockspace; other programs may take the device for theirs", signature, on)}
	}
	return nil
}

// wrap adds the disk to an error.
func (d *disk) wrap(err error) error {
	if d.created {
		return fmt.Errorf("create %s: %w", d.dev.Info().Path, err)
	}
	return fmt.Errorf("format %s: %w", d.dev.Info().Path, err)
}

// wrap adds all disks to an error.
func (f *formatter) wrap(err error) error {
	if len(f.disks) == 1 {
		return f.disks[0].wrap(err)
	}
	return fmt.Errorf("format %s: %w", strings.Join(f.paths(), ", "), err)
}

func (f *formatter) paths() (paths []string) {
	for _, d := range f.disks {
		paths = append(paths, d.dev.Info().Path)
	}
	return paths
}

// unusable adds to an error the state in which it leaves the disks, unless all are files that were
// being created: these are gone.
func (f *formatter) unusable(err error, lost bool) error {
	if f.all(func(d *disk) bool { return d.created }) {
		return err
	}
	device, it := "the device is", "it is"
	if len(f.disks) > 1 {
		device, it = "the disks are", "they are"
	}
	if lost {
		return fmt.Errorf("%w; the old contents are lost, and %s not usable until %s formatted again with force", err, device, it)
	}
	return fmt.Errorf("%w; %s not usable until %s formatted again", err, device, it)
}

// all reports whether a condition holds for all disks.
func (f *formatter) all(condition func(*disk) bool) bool {
	return !slices.ContainsFunc(f.disks, func(d *disk) bool { return !condition(d) })
}
