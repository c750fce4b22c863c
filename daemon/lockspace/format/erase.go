package format

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// formatter creates a lockspace on a device that may hold another. Its order of steps leaves, after
// any interruption, the complete old lockspace, no lockspace, or the complete new one:
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
// Step 3 prevents a holder in the old lockspace at the same time as one in the new. A host reads
// the superblocks at each renewal and gives up when both are gone. A host that read them before may
// still write that renewal, and then holds its locks for another lease. Therefore the wait is the
// time after which every observer declares a host dead: lease + margin without a change of its
// record, and the time of its watchdog. A host that is joining writes its record before it reads
// the superblocks for the last time.
type formatter struct {
	dev  blockdev.Device
	o    Options
	area int64 // bytes from byte 0 that must be zeroes for the new lockspace
}

const (
	// readChunk and zeroChunk are the bytes read and zeroed between two checks of the context.
	readChunk = 1 << 20
	zeroChunk = 64 << 20

	// progressInterval is the time between two progress messages of a long step.
	progressInterval = 5 * time.Second
)

func (f *formatter) run(ctx context.Context) (*Result, error) {
	info := f.dev.Info()
	stride, err := chooseStride(info, f.o.Stride)
	if err != nil {
		return nil, err
	}
	g := f.o.geometry(stride)
	if need := g.Size(); info.Size < need {
		return nil, fmt.Errorf("%w: %d hosts and %d locks %d bytes apart need %v, it has %v; %s",
			lockspace.ErrDeviceSize, g.Hosts, g.Locks, stride, text.Bytes(need), text.Bytes(info.Size), fitting(g, info.Size))
	}
	f.area = min(max(g.Size(), layout.HeadSize), info.Size)
	found, err := f.survey(ctx)
	if err != nil {
		return nil, err
	}
	if found.kind != deviceVacant {
		if !f.o.Force {
			return nil, f.refuse(ctx, found)
		}
		if err := f.erase(ctx, found); err != nil {
			return nil, err
		}
	}
	// Formatted is the time after the wait: hosts do not trust clocks behind it.
	sb := f.o.superblock(stride)
	if err := writeSuperblocks(f.dev, sb); err != nil {
		return nil, fmt.Errorf("%w; the device is not usable until it is formatted again", err)
	}
	result := &Result{Path: info.Path, Superblock: sb, Size: text.Bytes(g.Size())}
	if signature := probeSignature(ctx, info); signature != "" {
		result.Warnings = append(result.Warnings,
			fmt.Sprintf("%s is left on the device outside the lockspace; other programs may take the device for theirs", signature))
	}
	return result, nil
}

// erase zeroes the area upwards except for the mark, after no host can hold a lock of the old
// lockspace: steps 1 to 4.
func (f *formatter) erase(ctx context.Context, found occupant) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	from := int64(0)
	if found.kind == deviceLockspace || found.kind == deviceInterrupted {
		if err := f.wipe(found); err != nil {
			return fmt.Errorf("wipe superblocks: %w", err)
		}
		from = int64(lockspace.BlockSize(f.dev))
	}
	err := f.waitForHosts(ctx, found)
	if err == nil {
		err = f.inChunks(ctx, "zeroing", "zeroed", from, zeroChunk, func(off, n int64) (bool, error) { return true, f.dev.Zero(off, n) })
	}
	if err != nil {
		return fmt.Errorf("%w; the old contents are lost, and the device is not usable until it is formatted again with force", err)
	}
	return nil
}

// wipe writes the mark and zeroes the copies, so that no reader finds the old lockspace: steps 1
// and 2.
func (f *formatter) wipe(found occupant) error {
	block := lockspace.BlockSize(f.dev)
	p := lockspace.Pool.Get(block)
	defer lockspace.Pool.Put(p)
	if found.kind == deviceLockspace {
		if err := found.old.Encode(p, 1); err != nil {
			return err
		}
		if err := f.dev.Write(p, 0); err != nil {
			return err
		}
	}
	head, err := lockspace.ReadHead(f.dev)
	if err != nil {
		return err
	}
	clear(p)
	for stride := max(layout.MinStride, block); stride <= layout.MaxStride && stride+layout.RecordSize <= len(head); stride *= 2 {
		sb, err := layout.DecodeSuperblock(head[stride:], 1)
		if err != nil || sb.Geometry.Stride != stride {
			continue
		}
		if err := f.dev.Write(p, int64(stride)); err != nil {
			return err
		}
	}
	return nil
}

// waitForHosts blocks until no host of the old lockspace can hold a lock: step 3.
func (f *formatter) waitForHosts(ctx context.Context, found occupant) error {
	if found.kind == deviceForeign {
		return nil
	}
	lease, assumed := found.old.Lease, ""
	if found.kind == deviceRemains {
		lease, assumed = layout.MaxLease, "; the lease is not known, so the longest one is assumed"
	}
	// A host may have joined since the survey.
	rows, err := f.hostTable(found)
	if err != nil || !slices.ContainsFunc(rows, lockspace.HostRow.InUse) {
		return err
	}
	wait := lease + lease/5 + lockspace.WatchdogTime(rows)
	f.o.report("waiting %v for the leases of the old lockspace to end%s", wait, assumed)
	still := time.Now()
	for limit := still.Add(3 * wait); time.Since(still) < wait; {
		f.o.Counter.Report("waiting for the leases of the old lockspace", time.Since(still).Milliseconds(), wait.Milliseconds(), false)
		if err := retry.Pause(ctx, lockspace.PollInterval(lease, 5*time.Second)); err != nil {
			return err
		}
		now, err := f.hostTable(found)
		if err != nil {
			return err
		}
		if row, ok := lockspace.ChangedRow(rows, now); ok {
			if time.Now().After(limit) {
				return fmt.Errorf("%w: %s still renews its lease although its lockspace was wiped",
					ErrHostAlive, text.HostName(row.ID, row.Record.Name))
			}
			rows, still = now, time.Now()
			wait = max(wait, lease+lease/5+lockspace.WatchdogTime(rows))
			f.o.report("%s renewed its lease, waiting %v", text.HostName(row.ID, row.Record.Name), wait)
		}
	}
	return nil
}

// hostTable reads the host table of the old lockspace. That of remains has only rows that are host
// records, because its end is not known.
func (f *formatter) hostTable(found occupant) ([]lockspace.HostRow, error) {
	rows, err := lockspace.ReadHostTable(f.dev, found.old.Space())
	if err != nil {
		return nil, fmt.Errorf("read host table: %w", err)
	}
	if found.kind == deviceRemains {
		rows = slices.DeleteFunc(rows, func(r lockspace.HostRow) bool { return r.Err != nil })
	}
	return rows, nil
}

// firstNonZero returns the first byte of the area from an offset on that is not zero, or -1.
func (f *formatter) firstNonZero(ctx context.Context, from int64) (at int64, err error) {
	p, zeroes := lockspace.Pool.Get(readChunk), lockspace.Pool.Get(readChunk)
	defer lockspace.Pool.Put(p)
	defer lockspace.Pool.Put(zeroes)
	clear(zeroes)
	at = -1
	err = f.inChunks(ctx, "looking for data", "read", from, readChunk, func(off, n int64) (bool, error) {
		if err := f.dev.Read(p[:n], off); err != nil || bytes.Equal(p[:n], zeroes[:n]) {
			return true, err
		}
		at = off + int64(slices.IndexFunc(p, func(b byte) bool { return b != 0 }))
		return false, nil
	})
	return at, err
}

// inChunks calls do for the chunks of the area from an offset on, until it returns false, and
// reports the progress.
func (f *formatter) inChunks(ctx context.Context, step, done string, from, chunk int64, do func(off, n int64) (bool, error)) error {
	reported := time.Now()
	for off := from; off < f.area; off += chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(chunk, f.area-off)
		if more, err := do(off, n); err != nil || !more {
			return err
		}
		f.o.Counter.Report(step, off+n, f.area, true)
		if f.o.Counter == nil && off+n < f.area && time.Since(reported) >= progressInterval {
			reported = time.Now()
			f.o.report("%d%% %s", (off+n)*100/f.area, done)
		}
	}
	return nil
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
