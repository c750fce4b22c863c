package format

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// erase zeroes the area of each disk upwards except for the mark, after no host can hold a lock of
// an old lockspace: steps 1 to 4.
func (f *formatter) erase(ctx context.Context) error {
	if f.all(func(d *disk) bool { return d.found.kind == deviceVacant && !d.created }) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return f.wrap(err)
	}
	lost := false
	for _, d := range f.disks {
		if err := d.wipe(); err != nil {
			err = d.wrap(fmt.Errorf("wipe superblocks: %w", err))
			if lost {
				err = f.unusable(err, true)
			}
			return err
		}
		lost = lost || d.occupied()
	}
	err := f.waitForHosts(ctx)
	if err == nil {
		err = f.zero(ctx)
	}
	if err != nil && lost {
		err = f.unusable(err, true)
	}
	return err
}

// wipe writes the mark and zeroes the copies, so that no reader finds the old lockspace: steps 1
// and 2.
func (d *disk) wipe() error {
	if !d.marked() {
		return nil
	}
	block := lockspace.BlockSize(d.dev)
	p := lockspace.Pool.Get(block)
	defer lockspace.Pool.Put(p)
	if d.found.kind == deviceLockspace {
		if err := d.found.old.Encode(p, 1); err != nil {
			return err
		}
		if err := d.dev.Write(p, 0); err != nil {
			return err
		}
	}
	head, err := lockspace.ReadHead(d.dev)
	if err != nil {
		return err
	}
	clear(p)
	for stride := max(layout.MinStride, block); stride <= layout.MaxStride && stride+layout.RecordSize <= len(head); stride *= 2 {
		sb, err := layout.DecodeSuperblock(head[stride:], 1)
		if err != nil || sb.Geometry.Stride != stride {
			continue
		}
		if err := d.dev.Write(p, int64(stride)); err != nil {
			return err
		}
	}
	return nil
}

// waitForHosts blocks until no host of an old lockspace can hold a lock: step 3.
func (f *formatter) waitForHosts(ctx context.Context) error {
	for _, d := range f.disks {
		if d.hasHosts() {
			// A host may have joined since the survey.
			rows, err := d.hostTable()
			if err != nil {
				return d.wrap(err)
			}
			d.found.rows = rows
		}
	}
	lease, watchdog, assumed := time.Duration(0), time.Duration(0), ""
	var old []*disk // of lockspaces that a host may use
	for _, d := range f.disks {
		if !d.hasHosts() || !slices.ContainsFunc(f.disks, func(o *disk) bool { return o.sameLockspace(d) && o.inUse() }) {
			continue
		}
		old, watchdog = append(old, d), max(watchdog, lockspace.WatchdogTime(d.found.rows))
		known := f.leaseOf(d)
		if known == 0 {
			known, assumed = layout.MaxLease, "; the lease is not known, so the longest one is assumed"
		}
		lease = max(lease, known)
	}
	if len(old) == 0 {
		return nil
	}
	wait := lease + lease/5 + watchdog
	f.o.report("waiting %v for the leases of the old lockspace to end%s", wait, assumed)
	still := time.Now()
	for limit := still.Add(3 * wait); time.Since(still) < wait; {
		f.o.Counter.Report("waiting for the leases of the old lockspace", time.Since(still).Milliseconds(), wait.Milliseconds(), false)
		if err := retry.Pause(ctx, lockspace.PollInterval(lease, 5*time.Second)); err != nil {
			return f.wrap(err)
		}
		renewed := "" // the name of a host
		for _, d := range old {
			now, err := d.hostTable()
			if err != nil {
				return d.wrap(err)
			}
			row, ok := lockspace.ChangedRow(d.found.rows, now)
			if !ok {
				continue
			}
			if time.Now().After(limit) {
				return d.wrap(fmt.Errorf("%w: %s still renews its lease although its lockspace was wiped",
					ErrHostAlive, text.HostName(row.ID, row.Record.Name)))
			}
			d.found.rows, still = now, time.Now()
			wait = max(wait, lease+lease/5+lockspace.WatchdogTime(now))
			renewed = text.HostName(row.ID, row.Record.Name)
		}
		if renewed != "" {
			f.o.report("%s renewed its lease, waiting %v", renewed, wait)
		}
	}
	return nil
}

// leaseOf returns the lease of the old lockspace of a disk, which another disk may show; 0 if
// unknown.
func (f *formatter) leaseOf(d *disk) (lease time.Duration) {
	for _, other := range f.disks {
		if other.sameLockspace(d) {
			lease = max(lease, other.found.old.Lease)
		}
	}
	return lease
}

// zero zeroes the areas of all disks at the same time, and allocates the blocks of new files: step
// 4.
func (f *formatter) zero(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		total   int64
		once    sync.Once
		first   error
		running sync.WaitGroup
		zeroed  = make(chan int64) // bytes
	)
	for _, d := range f.disks {
		if d.occupied() {
			total += d.area
		}
	}
	p := f.o.progress("zeroing", "zeroed", total)
	for _, d := range f.disks {
		running.Go(func() {
			if err := f.zeroDisk(ctx, d, func(n int64) { zeroed <- n }); err != nil {
				once.Do(func() { first = d.wrap(err) })
				cancel()
			}
		})
	}
	go func() {
		running.Wait()
		close(zeroed)
	}()
	for n := range zeroed {
		p.add(n)
	}
	return first
}

// zeroDisk zeroes one disk. It calls add with the number of bytes after each chunk.
func (f *formatter) zeroDisk(ctx context.Context, d *disk, add func(n int64)) error {
	from := int64(0)
	switch {
	case d.created:
		return allocateBlocks(d.dev, f.geometry)
	case d.marked():
		from = int64(lockspace.BlockSize(d.dev))
	case !d.occupied():
		return nil
	}
	return d.inChunks(ctx, add, from, zeroChunk, func(off, n int64) (bool, error) { return true, d.dev.Zero(off, n) })
}

// hostTable reads the host table of the old lockspace. That of remains has only rows that are host
// records, because its end is not known.
func (d *disk) hostTable() ([]lockspace.HostRow, error) {
	rows, err := lockspace.ReadHostTable(d.dev, d.found.space)
	if err != nil {
		return nil, fmt.Errorf("read host table: %w", err)
	}
	if d.found.kind == deviceRemains {
		rows = slices.DeleteFunc(rows, func(r lockspace.HostRow) bool { return r.Err != nil })
	}
	return rows, nil
}

// writeSuperblocks writes the copy, then the superblock: steps 5 and 6.
func writeSuperblocks(dev blockdev.Device, sb layout.Superblock) error {
	if err := WriteSuperblock(dev, sb, 1); err != nil {
		return err
	}
	return WriteSuperblock(dev, sb, 0)
}

// WriteSuperblock writes the superblock (0) or its copy (1), and reads it back. It returns ErrVerify
// or an error of the device.
func WriteSuperblock(dev blockdev.Device, sb layout.Superblock, copy int) error {
	stride, at := sb.Geometry.Stride, sb.Geometry.Superblock(copy)
	p, back := lockspace.Pool.Get(stride), lockspace.Pool.Get(stride)
	defer lockspace.Pool.Put(p)
	defer lockspace.Pool.Put(back)
	if err := sb.Encode(p, copy); err != nil {
		return err
	}
	if err := dev.Write(p, at); err != nil {
		return fmt.Errorf("write superblock: %w", err)
	}
	if err := dev.Read(back, at); err != nil {
		return fmt.Errorf("read superblock back: %w", err)
	}
	if !bytes.Equal(p, back) {
		return fmt.Errorf("%w: superblock at byte %d", ErrVerify, at)
	}
	return nil
}
