package replace

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	// copyChunk is the number of bytes that are copied at once, and zeroChunk that of a request for
	// zeroes. Between two of them a copy can be interrupted.
	copyChunk = 1 << 20
	zeroChunk = 64 << 20
)

// unreadable fills a record of which no copy may count. It is no record and no zeroes: a blank copy would
// claim that the record was never written.
const unreadable = "this record was not readable when the disk replaced another one\n"

// Fill marks the disk, zeroes it, and copies the newest version of each record to it: steps 1 to 3.
// from is the set of the other members. It has Copies of package directory. mayWrite returns an error when no
// write may begin: the disk may be a member by then, with later records (COPIED). Fill returns the number
// of records that it made unreadable: those that a majority of the others does not show, and unsettled
// entries of the directory. An unsettled entry that one more disk shows may become settled, which only a
// host may do that has announced it (FORWARD). It returns ErrWrite, or other errors with no write in flight.
func (d *Disk) Fill(ctx context.Context, from blockdev.Device, mayWrite func() error, counter lockspace.Counter) (bad int, err error) {
	begin := func() error { return cmp.Or(context.Cause(ctx), mayWrite()) }
	if err = d.clear(begin, counter); err == nil {
		bad, err = d.copyRecords(begin, from, counter)
	}
	if err != nil {
		err = fmt.Errorf("copy the lockspace to %s: %w", d.Path(), err)
	}
	return bad, err
}

// clear writes the mark, and zeroes after it.
func (d *Disk) clear(begin func() error, counter lockspace.Counter) error {
	block := lockspace.BlockSize(d.dev)
	p := lockspace.Pool.Get(block)
	defer lockspace.Pool.Put(p)
	mark := d.sb
	mark.Position, mark.Members.Disks[d.position-1] = d.position, d.id
	if err := cmp.Or(mark.Encode(p, 1), begin()); err != nil {
		return err
	}
	if err := d.dev.Write(p, 0); err != nil {
		return fmt.Errorf("%w: %w", ErrWrite, err)
	}
	for off, end := int64(block), d.area(); off < end; off += zeroChunk {
		if err := begin(); err != nil {
			return err
		}
		counter.Report("zeroing the new disk", off, end, true)
		if err := d.dev.Zero(off, min(zeroChunk, end-off)); err != nil {
			return fmt.Errorf("%w: %w", ErrWrite, err)
		}
	}
	return nil
}

func (d *Disk) copyRecords(begin func() error, from blockdev.Device, counter lockspace.Counter) (bad int, err error) {
	g := d.sb.Geometry
	entries, slots, end := g.Entry(1), g.Slot(lockspace.DirectoryLock, 1), g.Size()
	settling := directory.NewSettling(from, g.Stride, nil)
	for _, part := range []struct {
		from, to int64
		dev      blockdev.Device
		counts   func(off int64) bool
	}{
		{g.Host(1), entries, from, func(int64) bool { return true }},
		{entries, slots, settling, settling.Settled},
		{slots, end, from, func(int64) bool { return true }},
	} {
		for off := part.from; off < part.to; off += copyChunk {
			n, err := d.copyChunk(begin, part.dev, off, int(min(copyChunk, part.to-off)), part.counts)
			if bad += n; err != nil {
				return bad, err
			}
			counter.Report("copying to the new disk", off, end, true)
		}
	}
	return bad, nil
}

// copyChunk copies the records of a range. Those for which counts is false become unreadable, and it
// returns their number.
func (d *Disk) copyChunk(begin func() error, from blockdev.Device, off int64, n int, counts func(off int64) bool) (bad int, err error) {
	buf := lockspace.Pool.Get(n)
	defer lockspace.Pool.Put(buf)
	if err := cmp.Or(from.Read(buf, off), begin()); err != nil { // in this order: reading may take long
		return 0, err
	}
	space, stride, blank := d.sb.Space(), d.sb.Geometry.Stride, make([]byte, layout.RecordSize)
	first, last := -1, 0 // bounds of what is written
	for at := 0; at < n; at += stride {
		block := buf[at : at+stride]
		if bytes.Equal(block[:layout.RecordSize], blank) {
			continue
		}
		where := off + int64(at)
		if _, err := space.CopyVersion(block, where, layout.CopyPosition(block)); err != nil || !counts(where) {
			bad++
			copy(block, bytes.Repeat([]byte(unreadable), stride/len(unreadable)+1))
		} else {
			layout.PlaceCopy(block, d.position)
		}
		if last = at + stride; first < 0 {
			first = at
		}
	}
	if first < 0 {
		return 0, nil
	}
	if err := d.dev.Write(buf[first:last], off+int64(first)); err != nil {
		return bad, fmt.Errorf("%w: %w", ErrWrite, err)
	}
	return bad, nil
}
