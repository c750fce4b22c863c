package store

import (
	"fmt"
	"slices"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/layout"
)

// The value of a slot in the directory's lock is an intent, see [layout.Intent].

// Intend makes the next write of the slot show an intent. It returns the entry to write, with its version
// on several disks; an intent that binds has that version. ticket is that of the hold.
//
// No version has two contents: the slot shows held before the entry is written, so a process that
// continues this incarnation makes no grant by this ticket.
func (a *Slots) Intend(e layout.Entry, ticket layout.Ticket, binds bool) layout.Entry {
	e.Token, e.Sequence = 0, 0
	i := layout.Intent(e)
	if a.space.Several {
		a.intents++
		e.Token, e.Sequence = ticket, a.intents
		if binds {
			i = layout.Intent(e)
		}
	}
	a.Own.Value, a.Own.ValueToken, a.intends = i.Value(), 0, true
	return e
}

// Intended makes the next write of the slot show no intent.
func (a *Slots) Intended() { a.Own.Value, a.Own.ValueToken, a.intends = nil, 0, false }

// Intent returns an intent that was not carried out: a failed write of the entry may still land. former
// reports whether an earlier incarnation left it.
//
// With one disk, an intent of an earlier process to clear an entry does not count: that process has no
// write in flight, and its removal was taken back unless it was complete. With several the entry may
// stay half written, so it counts (CARRIED).
func (a *Slots) Intent() (i layout.Intent, former, found bool, err error) {
	if len(a.Own.Value) == 0 {
		return i, false, false, nil
	}
	if i, err = a.space.DecodeIntent(a.Own.Value); err != nil {
		return i, false, false, err
	}
	if layout.Entry(i).Free() && !a.intends && !a.space.Several {
		a.Intended()
		return i, false, false, nil
	}
	return i, a.Own.ValueToken != 0, true, nil
}

// Intents reads the directory intents of the hosts from first to last, without their versions. bad has
// by host id why an intent cannot be read.
//
// With several disks the intents of all copies of an unsettled slot count (EARLIER). A copy that a read
// did not see may be the only one left of an intent that was durable, so all of them are required. A host
// that left had completed its last write of the slot, which every majority of copies shows.
func (d *Disk) Intents(dev blockdev.Device, first, last int) (found map[int][]layout.Intent, bad map[int]error, err error) {
	g := d.SB.Geometry
	found, bad = map[int][]layout.Intent{}, map[int]error{}
	from := g.Slot(lockspace.DirectoryLock, first)
	read := func(record []byte, host int) {
		i, ok, err := d.intentIn(record, host)
		if err != nil {
			bad[host] = err
		} else if ok && !slices.Contains(found[host], i) {
			found[host] = append(found[host], i)
		}
	}
	var copies *directory.Settling
	if d.Several() {
		copies = directory.NewSettling(dev, g.Stride, func(off int64, c mirror.Copy) { read(c.Block, first+int(off-from)/g.Stride) })
		dev = copies
	}
	buf := lockspace.Pool.Get((last - first + 1) * g.Stride)
	defer lockspace.Pool.Put(buf)
	errs, err := lockspace.ReadRecords(dev, buf, from, g.Stride)
	if err != nil {
		return nil, nil, fmt.Errorf("read the slots of %s: %w", lockName(lockspace.DirectoryLock), err)
	}
	for i, err := range errs {
		host := first + i
		at := g.Slot(lockspace.DirectoryLock, host)
		switch {
		case err != nil:
			bad[host] = err
		case copies == nil || copies.Settled(at) || !copies.Complete(at) && d.HasLeft(host):
			delete(found, host)
			delete(bad, host)
			read(buf[i*g.Stride:(i+1)*g.Stride], host)
		case !copies.Complete(at):
			bad[host] = fmt.Errorf("slot of host %d in %s: %w", host, lockName(lockspace.DirectoryLock), directory.ErrUnsettled)
		}
	}
	return found, bad, nil
}

func (d *Disk) intentIn(record []byte, host int) (i layout.Intent, found bool, err error) {
	s, err := d.SB.Space().DecodeSlot(record, lockspace.DirectoryLock, host)
	if err != nil || len(s.Value) == 0 {
		return i, false, err
	}
	i, err = d.SB.Space().DecodeIntent(s.Value)
	i.Token, i.Sequence = 0, 0
	return i, err == nil, err
}
