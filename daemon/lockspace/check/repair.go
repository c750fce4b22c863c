package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// A directory entry that cannot be read is repaired in one of three ways:
//
//   - A host ended while it wrote the entry. Its intent has the entry, which the repairer writes.
//     The late write may still land, and no host has used the place since.
//   - A host has used the lock. It knows the entry and restores it (package daemon).
//   - No host knows the entry. The name is lost, and the repairer frees the place. Freeing is a
//     removal, and safe only if no host continues to use the old entry. Its creation id c is
//     unknown:
//
//     A (remembers x at 1, c)               repairer
//                                           frees 1 with e, the greatest number it sees
//     B creates x again at 2, and holds it
//     claims at 1 by c; sees nothing newer
//     than c; enters while B holds x
//
// Before it frees the entry the repairer leaves a slot with creation e at 1. That sends A back to
// the directory (NEWEST) if e > c. If any host ever claimed by c, a slot shows c, and e is greater.
// But a lock that was created and never used shows in no slot, and its c comes from the clock of
// its creator: c has no certain bound. Therefore the place is freed only if no running host may
// remember c: every other host has left or is dead. A host that joins later reads the directory and
// finds either damage or the free entry. The repairer leaves the slot in any case, as every removal
// does.

// EntryRepair is the repair of a directory entry that cannot be read.
type EntryRepair struct {
	Entry layout.Entry // the entry to write
	What  string       // the repair in words: "restoring ..."
	Err   error        // an ErrNotRepaired if nothing may be written
}

// PlanEntryRepair reads the lockspace as the host self, which has joined to repair it, and decides
// how to repair the entry of a lock. intents are the slots of self in the internal lock, as its
// incarnation before left them. others returns the other hosts that may be up, and is called after
// all reads; nil means that there are none.
func PlanEntryRepair(dev blockdev.Device, sb layout.Superblock, lock, self int, intents []layout.Slot, others func() ([]string, error)) (EntryRepair, error) {
	ex := &examiner{Device: dev, ctx: context.Background(), sb: sb}
	p, err := ex.readPicture([]int{lockspace.DirectoryLock, lock})
	if err != nil {
		return EntryRepair{}, err
	}
	own := func(s layout.Slot) bool { return s.Host == self }
	// A write of an earlier incarnation of self can no longer land, but its intent has the
	// entry.
	p.slots[lockspace.DirectoryLock] = append(slices.DeleteFunc(p.slots[lockspace.DirectoryLock], own), intents...)
	delete(p.hosts, self)
	p.damaged = slices.DeleteFunc(p.damaged, func(r lockspace.Record) bool { return r.Kind == lockspace.KindEntry })
	w := lockspace.Walker{Dev: dev, SB: sb, Visit: p.add}
	if w.VisitEntries(1, sb.Geometry.Locks); w.Err != nil {
		return EntryRepair{}, w.Err
	}
	var up []string
	if others != nil {
		if up, err = others(); err != nil {
			return EntryRepair{}, err
		}
	}
	return p.planEntryRepair(lock, up), nil
}

// ReadIntents returns the slots of a host in the internal lock.
func ReadIntents(dev blockdev.Device, sb layout.Superblock, host int) ([]layout.Slot, error) {
	ex := &examiner{Device: dev, ctx: context.Background(), sb: sb}
	p, err := ex.readPicture([]int{lockspace.DirectoryLock})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(p.slots[lockspace.DirectoryLock], func(s layout.Slot) bool { return s.Host != host }), nil
}

// adviceText returns the remedy of the finding that the repair is for.
func (r EntryRepair) adviceText() string {
	if r.Err != nil {
		return remedyRepair + "asks the running hosts to restore it; if none has used the lock, stop bakeryd on all hosts first: " +
			"then the place becomes free, and the name of the lock is lost"
	}
	return remedyRepair + "repairs it, " + r.What
}

// lostSpan is added to the greatest number that could be read, for the creation ids that could not:
// about 71 minutes of clock, as for tickets in an unreadable slot of a dead host.
const lostSpan = 1 << 24

// hostsMaybeUp returns the names of the hosts that may be up, by the host table alone.
func (p *picture) hostsMaybeUp() (up []string) {
	for id := 1; id <= p.ex.sb.Geometry.Hosts; id++ {
		h, ok := p.hosts[id]
		if p.hostHidden(id) {
			up = append(up, fmt.Sprintf("host %d, whose record cannot be read,", id))
		} else if ok && !p.ended(id, h.Incarnation) {
			up = append(up, text.HostName(id, h.Name))
		}
	}
	return up
}

// planEntryRepair decides how to repair the entry of a lock. up are the other hosts that may be up.
func (p *picture) planEntryRepair(lock int, up []string) EntryRepair {
	refuse := func(format string, args ...any) EntryRepair {
		return EntryRepair{Err: fmt.Errorf("%w: "+format, append([]any{ErrNotRepaired}, args...)...)}
	}
	for _, r := range p.damaged {
		if r.Kind == lockspace.KindSlot && r.Lock == lockspace.DirectoryLock && !p.gone(r.Host) {
			return refuse("host %d has an unreadable directory intent; start bakeryd on host %d, or evict it if it is dead", r.Host, r.Host)
		}
	}
	intent, creation, err := p.intended()
	if err != nil {
		return refuse("%w", err)
	}
	newest := uint64(0)
	for _, s := range p.slots[lock] {
		newest = max(newest, s.Creation)
		creation = max(creation, s.Creation, s.Ticket.Number(), s.ValueToken.Number())
	}
	_, whole := p.tickets(lock)
	i, ok := intent[lock]
	same := false // whether another lock has the name
	for _, e := range p.entries {
		same = same || e.Name == i.Name && e.Lock != lock
		creation = max(creation, e.Creation)
	}
	// An entry is replaced only after a removal, which leaves a slot. Therefore the intent is
	// the newest entry of its place if all slots are readable and none has a greater creation.
	if ok && i.Name != "" && whole && i.Creation >= newest && !same {
		return EntryRepair{Entry: layout.Entry(i), What: fmt.Sprintf("restoring lock %s with %d permits, which a host was writing as it ended",
			text.Printable(i.Name), i.Permits)}
	}
	if len(up) > 0 {
		return EntryRepair{Err: RefuseWhileUp(up[0])}
	}
	creation = max(creation, bakery.ClockNumber(time.Now(), p.ex.sb.Formatted))
	if !whole || len(p.damaged) > 1 {
		creation += min(lostSpan, layout.MaxNumber)
	}
	if creation >= layout.MaxNumber {
		return refuse("the numbers of the lock are used up; run bakeryctl format")
	}
	return EntryRepair{Entry: layout.Entry{Lock: lock, Creation: creation + 1}, What: "making its place free; the name of the lock is lost"}
}

// intended returns the newest intent for each lock, and the greatest creation id of all intents.
func (p *picture) intended() (newest map[int]layout.Intent, creation uint64, err error) {
	newest = map[int]layout.Intent{}
	for _, s := range p.slots[lockspace.DirectoryLock] {
		if len(s.Value) == 0 {
			continue
		}
		i, err := p.ex.sb.Space().DecodeIntent(s.Value)
		i.Token, i.Sequence = 0, 0
		switch {
		case err != nil && p.ended(s.Host, s.Incarnation): // void
			continue
		case err != nil:
			return nil, 0, fmt.Errorf("slot of host %d in the directory's lock: %w", s.Host, err)
		}
		if i.Creation > newest[i.Lock].Creation {
			newest[i.Lock] = i
		}
		creation = max(creation, i.Creation)
	}
	return newest, creation, nil
}

// ErrNotRepaired is returned when a repair is not possible now. The text has the reason and what to
// do.
var ErrNotRepaired = errors.New("not repaired")

// RefuseWhileUp returns an ErrNotRepaired for an entry that host may remember.
func RefuseWhileUp(host string) error {
	return fmt.Errorf("%w: %s may be up and know the entry, and did not restore it when asked; "+
		"stop bakeryd on all hosts, evict those that are dead, then run bakeryctl check --repair again", ErrNotRepaired, host)
}

// RewriteSuperblock writes the superblock or its copy, whichever kind names, from the other one. It
// returns ErrNotRepaired if formatting has begun, or if both are valid and differ.
//
// Hosts may be running. They read both at each renewal and continue if either is that of their
// lockspace. The valid one is not written, and a half-written other one is no worse than a damaged
// one. On a member disk both are of this disk. Formatting writes its mark first. If it begins between the check for the mark and this
// write, it zeroes or overwrites this write, or fails when it verifies its own.
func RewriteSuperblock(dev blockdev.Device, kind lockspace.RecordKind, progress func(string)) error {
	sb, _, err := lockspace.FindSuperblock(dev)
	if err != nil {
		return err
	}
	bad, good := 0, 1
	if kind == lockspace.KindCopy {
		bad, good = 1, 0
	}
	g := sb.Geometry
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
	case err == nil && lockspace.SameSuperblock(found, sb):
		return nil // already valid
	case err == nil:
		return fmt.Errorf("%w: the superblock is of lockspace %s, the copy of %s", ErrNotRepaired, lockspace.DescribeSuperblock(sb), lockspace.DescribeSuperblock(found))
	}
	from := []string{"the superblock at byte 0", fmt.Sprintf("its copy at byte %d", g.Superblock(1))}[good]
	progress(fmt.Sprintf("%s at byte %d: writing it again from %s", lockspace.Record{Kind: kind}.Describe(), at, from))
	return format.WriteSuperblock(dev, sb, bad)
}
