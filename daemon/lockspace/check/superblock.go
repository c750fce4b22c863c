package check

import (
	"bytes"
	"fmt"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/layout"
)

// RewriteSuperblock writes the superblock, or its copy, from the other one.
//
// Hosts may be running. They look at both with each renewal, and go on if either of them is that of their
// lockspace: the good one is not touched, and the other one is half written at worst, which is no worse than
// damaged. Formatting is told by its mark, which is the first that it writes; should it begin between the look and
// this write, it zeroes what was written, or writes over it, or finds out when it reads back what it wrote.
func RewriteSuperblock(dev blockdev.Device, kind lockspace.RecordKind, progress func(string)) error {
	sb, copyUsed, err := lockspace.FindLockspace(dev)
	if err != nil {
		return err
	}
	bad, good := 0, 1
	if kind == lockspace.KindCopy {
		bad, good = 1, 0
	}
	g := sb.Geometry
	if copyUsed != good && bad == 0 {
		return nil // whole by now
	}
	head, err := lockspace.ReadHead(dev)
	if err != nil {
		return err
	}
	if _, formatting := lockspace.FindMark(head); formatting {
		return fmt.Errorf("%w: %w; bakeryctl format --force completes it", ErrNotRepaired, lockspace.ErrInterrupted)
	}
	at := g.Superblock(bad)
	found, err := layout.DecodeSuperblock(head[at:], bad)
	switch {
	case err == nil && found == sb:
		return nil // whole by now
	case err == nil:
		return fmt.Errorf("%w: the superblock is of lockspace %s, the copy of %s", ErrNotRepaired, lockspace.DescribeSuperblock(sb), lockspace.DescribeSuperblock(found))
	}
	buf := lockspace.Pool.Get(g.Stride)
	defer lockspace.Pool.Put(buf)
	if err := sb.Encode(buf, bad); err != nil {
		return err
	}
	from := []string{"the superblock at byte 0", fmt.Sprintf("its copy at byte %d", g.Superblock(1))}[good]
	progress(fmt.Sprintf("%s at byte %d: writing it again from %s", lockspace.Record{Kind: kind}.What(), at, from))
	return writeBack(dev, buf, at)
}

// writeBack writes a record and sees whether it is there.
func writeBack(dev blockdev.Device, buf []byte, at int64) error {
	if err := dev.Write(buf, at); err != nil {
		return err
	}
	back := lockspace.Pool.Get(len(buf))
	defer lockspace.Pool.Put(back)
	if err := dev.Read(back, at); err != nil {
		return err
	}
	if !bytes.Equal(back, buf) {
		return fmt.Errorf("%w: byte %d", format.ErrVerify, at)
	}
	return nil
}
