package format

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// formatter makes a lockspace on a device that may hold another, in an order that leaves, wherever it is
// interrupted, the old lockspace whole, or no lockspace, or the new one whole:
//
//	step                                    | found by a reader after it
//	----------------------------------------|----------------------------------------------
//	1 over a lockspace: mark at byte 0      | the old one, by its copy
//	2 zeroes over the copy                  | none; byte 0 says what was there
//	3 wait for the old hosts                | none
//	4 zeroes over the area, upwards, except | none
//	  for the mark                          |
//	5 the new copy                          | the new one, by its copy
//	6 the new superblock, over the mark     | the new one
//
// Each is durable before the next begins. The mark is the old superblock encoded as its copy is: at byte 0 that
// is nobody's superblock, since a copy is good only at its own address, but it keeps the lease and the geometry
// of the hosts that may still be about. Formatting that finds the mark waits for them all over again, as long
// as a host record is left that shows one. Without a lockspace there is no mark, and zeroes begin at byte 0.
//
// Step 3 is what keeps a holder in the old lockspace and one in the new apart. A host reads the superblocks
// whenever it renews, and gives up once both are gone. One that had read them before may yet write its renewal,
// and so hold on for another lease from then. So the wait is the one after which a host is dead for every
// observer: its record has stood still for lease + margin, and its watchdog's time. A host that was about to
// join has its record in the table before it last reads the superblocks.
type formatter struct {
	dev  blockdev.Device
	o    Options
	area int64 // what the new lockspace needs to be zeroes: from byte 0
}

const (
	// eraseChunk is how much is read or zeroed between two looks at the context.
	eraseChunk = 64 << 20

	// tellEvery is how often a long step tells how far it is.
	tellEvery = 5 * time.Second
)

func (f *formatter) run(ctx context.Context, stride int) (*Result, error) {
	found, err := f.survey(ctx)
	if err != nil {
		return nil, err
	}
	if found.kind != deviceVacant && !f.o.Force {
		return nil, f.refuse(ctx, found)
	}
	if err := f.erase(ctx, found); err != nil {
		return nil, err
	}
	sb := f.o.superblock(stride) // of now: clocks behind it are not trusted, and the wait may have been long
	if err := writeSuperblocks(f.dev, sb); err != nil {
		return nil, fmt.Errorf("%w; the device is not usable until it is formatted again", err)
	}
	result := &Result{Path: f.dev.Info().Path, Superblock: sb, Size: text.Bytes(sb.Geometry.Size())}
	if signature := probeSignature(ctx, f.dev.Info()); signature != "" {
		result.Warnings = append(result.Warnings,
			fmt.Sprintf("%s is left on the device outside the lockspace; other programs may take the device for theirs", signature))
	}
	return result, nil
}

// erase makes the area zeroes, apart from the mark, once nobody relies on what was there.
func (f *formatter) erase(ctx context.Context, found occupant) error {
	if found.kind == deviceVacant {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	from := int64(0)
	switch found.kind {
	case deviceLockspace, deviceInterrupted:
		if err := f.wipe(found); err != nil {
			return fmt.Errorf("wipe superblocks: %w", err)
		}
		from = int64(lockspace.BlockSize(f.dev))
	}
	err := f.letGo(ctx, found)
	if err == nil {
		err = f.zero(ctx, from)
	}
	if err != nil {
		return fmt.Errorf("%w; what was on the device is gone, and it is not usable until it is formatted again with force", err)
	}
	return nil
}

// wipe makes the old lockspace unfindable: steps 1 and 2.
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

// letGo waits until no host of the old lockspace can hold anything: step 3.
func (f *formatter) letGo(ctx context.Context, found occupant) error {
	if found.kind == deviceForeign {
		return nil
	}
	lease, whose := found.old.Lease, ""
	if found.kind == deviceRemains {
		lease, whose = layout.MaxLease, "; their lease is not known, this is the longest there is"
	}
	rows, err := lockspace.ReadHostTable(f.dev, found.old.Space()) // anew: a host may have joined since the survey
	if err != nil {
		return fmt.Errorf("read host table: %w", err)
	}
	if found.kind == deviceRemains {
		rows = readableRows(rows)
	}
	if !lockspace.AnyInUse(rows) {
		return nil
	}
	wait := lease + lease/5 + lockspace.WatchdogTime(rows)
	f.o.tell("waiting %v for the hosts of the old lockspace to let go%s", wait, whose)
	still := time.Now()
	for limit := still.Add(3 * wait); time.Since(still) < wait; {
		f.o.Counter.Tell("waiting for the hosts of the old lockspace", time.Since(still).Milliseconds(), wait.Milliseconds(), false)
		if err := retry.Pause(ctx, lockspace.PollEvery(lease, 5*time.Second)); err != nil {
			return err
		}
		now, err := lockspace.ReadHostTable(f.dev, found.old.Space())
		if err != nil {
			return fmt.Errorf("read host table: %w", err)
		}
		if found.kind == deviceRemains {
			now = readableRows(now)
		}
		if row, ok := lockspace.ChangedRow(rows, now); ok {
			if time.Now().After(limit) {
				return fmt.Errorf("%w: %s goes on renewing although its lockspace was wiped",
					ErrHostAlive, text.HostName(row.ID, row.Record.Name))
			}
			rows, still = now, time.Now()
			wait = max(wait, lease+lease/5+lockspace.WatchdogTime(rows))
			f.o.tell("%s has renewed once more, waiting %v", text.HostName(row.ID, row.Record.Name), wait)
		}
	}
	return nil
}

// readable leaves out what is not a host record: of remains it is not known where the host table ends.
func readableRows(rows []lockspace.HostRow) (good []lockspace.HostRow) {
	for _, r := range rows {
		if r.Err == nil {
			good = append(good, r)
		}
	}
	return good
}

// zero makes the area zeroes, from an offset upwards: step 4.
func (f *formatter) zero(ctx context.Context, from int64) error {
	told := time.Now()
	for off := from; off < f.area; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(eraseChunk, f.area-off)
		if err := blockdev.Zero(f.dev, off, n); err != nil {
			return err
		}
		off += n
		f.o.Counter.Tell("zeroing", off, f.area, true)
		if f.o.Counter == nil && off < f.area && time.Since(told) >= tellEvery {
			told = time.Now()
			f.o.tell("%d%% zeroed", off*100/f.area)
		}
	}
	return nil
}

// allZero looks whether the area is zeroes.
func (f *formatter) allZero(ctx context.Context) (zero bool, at int64, err error) {
	told := time.Now()
	for off := int64(0); off < f.area; off += eraseChunk {
		if err := ctx.Err(); err != nil {
			return false, -1, err
		}
		zero, at, err := blockdev.AllZero(f.dev, off, min(eraseChunk, f.area-off), func(done int64) {
			f.o.Counter.Tell("looking for data", off+done, f.area, true)
		})
		if err != nil || !zero {
			return false, at, err
		}
		if f.o.Counter == nil && time.Since(told) >= tellEvery {
			told = time.Now()
			f.o.tell("%d%% looked at", min(100, (off+eraseChunk)*100/f.area))
		}
	}
	return true, -1, nil
}

// writeSuperblocks writes the copy, then the superblock, and reads both back: steps 5 and 6.
func writeSuperblocks(dev blockdev.Device, sb layout.Superblock) error {
	stride := sb.Geometry.Stride
	p, back := lockspace.Pool.Get(stride), lockspace.Pool.Get(stride)
	defer lockspace.Pool.Put(p)
	defer lockspace.Pool.Put(back)
	for _, copy := range []int{1, 0} {
		if err := sb.Encode(p, copy); err != nil {
			return err
		}
		at := sb.Geometry.Superblock(copy)
		if err := dev.Write(p, at); err != nil {
			return fmt.Errorf("write superblock: %w", err)
		}
		if err := dev.Read(back, at); err != nil {
			return fmt.Errorf("read superblock back: %w", err)
		}
		if !bytes.Equal(p, back) {
			return fmt.Errorf("%w: superblock at byte %d", ErrVerify, at)
		}
	}
	return nil
}
