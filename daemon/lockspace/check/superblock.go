package check

import (
	"fmt"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/layout"
)

// RewriteSuperblock writes the superblock or its copy, whichever kind names, from the other one. It
// returns ErrNotRepaired if formatting has begun, or if both are valid and differ.
//
// Hosts may be running. They read both at each renewal and continue if either is that of their
// lockspace. The valid one is not written, and a half-written other one is no worse than a damaged
// one. Formatting writes its mark first. If it begins between the check for the mark and this
// write, it zeroes or overwrites this write, or fails when it verifies its own.
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
		return nil // already valid
	}
	head, err := lockspace.ReadHead(dev)
	if err != nil {
		return err
	}
	if _, formatting := lockspace.FindFormatMark(head); formatting {
		return fmt.Errorf("%w: %w; run bakeryctl format --force to complete it", ErrNotRepaired, lockspace.ErrInterrupted)
	}
	at := g.Superblock(bad)
	found, err := layout.DecodeSuperblock(head[at:], bad)
	switch {
	case err == nil && found == sb:
		return nil // already valid
	case err == nil:
		return fmt.Errorf("%w: the superblock is of lockspace %s, the copy of %s", ErrNotRepaired, lockspace.DescribeSuperblock(sb), lockspace.DescribeSuperblock(found))
	}
	from := []string{"the superblock at byte 0", fmt.Sprintf("its copy at byte %d", g.Superblock(1))}[good]
	progress(fmt.Sprintf("%s at byte %d: writing it again from %s", lockspace.Record{Kind: kind}.Describe(), at, from))
	return format.WriteSuperblock(dev, sb, bad)
}
