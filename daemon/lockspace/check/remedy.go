package check

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// What a directory entry that cannot be read was is known
//
//   - from the intent of a host that ended while it wrote it: that very entry is written. The late write may land
//     at any time anyway, and nobody else has put anything there since.
//   - to a host that holds the lock by it, which restores it by itself: mend.go.
//   - to nobody. The name is lost, and the place is made free. That is a removal by one who does not know the name,
//     and a removal is safe only if nobody goes on by the old entry, whose creation id c nobody knows:
//
//     A (remembers x at 1, c)             repairer
//                                         frees 1, with e: above all that it sees
//     B makes x anew, at 2; holds it
//     claims at 1 by c; sees nothing newer
//     than c; enters beside B
//
// A slot with creation e that the repairer leaves at 1, before it frees the entry, sends A back to the directory (NEWEST)
// if e > c. If A, or anybody, has ever claimed by c then a slot tells c, and e is above it. But a lock that was made and
// never used shows nowhere, and its c comes from the clock of who made it: no bound on it is certain. So the place
// is freed only when nobody is left who may remember c: when every other host has left or is dead. Who joins later
// reads the directory, and finds either damage or the free entry. The slot is left all the same, as every
// removal leaves one.

// Remedy is what to do about a directory entry that cannot be read.
type Remedy struct {
	Entry layout.Entry // to be written
	What  string       // in words: "restoring ..."
	Err   error        // ErrNotRepaired: why nothing may be written
}

// FindRemedy reads the lockspace as a host that has joined to repair it, and decides what an entry that cannot be read
// becomes. self is the host, intents its own slots of the internal lock as an incarnation before left them. others,
// called after all is read, returns the other hosts that may be up; nil: none.
func FindRemedy(dev blockdev.Device, sb layout.Superblock, lock, self int, intents []layout.Slot, others func() ([]string, error)) (Remedy, error) {
	ex := examiner{dev: dev, sb: sb, space: sb.Space()}
	p, err := ex.look([]int{lockspace.DirectoryLock, lock})
	if err != nil {
		return Remedy{}, err
	}
	own := func(s layout.Slot) bool { return s.Host == self }
	// What an incarnation before this one was about to write can no longer land, but it tells what the entry was.
	p.slots[lockspace.DirectoryLock] = append(slices.DeleteFunc(p.slots[lockspace.DirectoryLock], own), intents...)
	delete(p.hosts, self)
	p.damaged = slices.DeleteFunc(p.damaged, func(r lockspace.Record) bool { return r.Kind == lockspace.KindEntry })
	w := lockspace.Walker{Dev: dev, Space: ex.space, Visit: p.add}
	if err := w.Entries(); err != nil {
		return Remedy{}, err
	}
	var up []string
	if others != nil {
		if up, err = others(); err != nil {
			return Remedy{}, err
		}
	}
	return p.remedy(lock, up), nil
}

// Intents returns a host's own slots of the internal lock.
func Intents(dev blockdev.Device, sb layout.Superblock, host int) ([]layout.Slot, error) {
	ex := examiner{dev: dev, sb: sb, space: sb.Space()}
	p, err := ex.look([]int{lockspace.DirectoryLock})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(p.slots[lockspace.DirectoryLock], func(s layout.Slot) bool { return s.Host != host }), nil
}

// in says what "check --repair" does.
func (r Remedy) in() string {
	if r.Err != nil {
		return mendRepair + "has the running hosts restore it; if none has used the lock, stop bakeryd on all hosts first: " +
			"then the place becomes free, and the name of the lock is lost"
	}
	return mendRepair + "repairs it, " + r.What
}

// lostSpan is how far the creation ids may go that cannot be read: as for tickets that a dead host's slot hides, about
// 71 minutes of clock.
const lostSpan = 1 << 24

// maybeUp names the hosts that may be up, as far as one who is not a host can tell.
func (p *picture) maybeUp() (up []string) {
	for id := 1; id <= p.ex.sb.Geometry.Hosts; id++ {
		h, ok := p.hosts[id]
		if _, hidden := p.damage(lockspace.KindHost, 0, id); hidden {
			up = append(up, fmt.Sprintf("host %d, whose record cannot be read,", id))
		} else if ok && !p.over(id, h.Incarnation) {
			up = append(up, text.HostName(id, h.Name))
		}
	}
	return up
}

// remedy decides what an entry that cannot be read becomes. up are the other hosts that may be up.
func (p *picture) remedy(lock int, up []string) Remedy {
	refuse := func(format string, args ...any) Remedy {
		return Remedy{Err: fmt.Errorf("%w: "+format, append([]any{ErrNotRepaired}, args...)...)}
	}
	for _, r := range p.damaged {
		if r.Kind == lockspace.KindSlot && r.Lock == lockspace.DirectoryLock && !p.gone(r.Host) {
			return refuse("what host %d was about to write there cannot be read; start bakeryd on host %d, or evict it if it is dead", r.Host, r.Host)
		}
	}
	intent, creation, err := p.intended()
	if err != nil {
		return refuse("%w", err)
	}
	newest, whole := uint64(0), true
	for _, s := range p.slots[lock] {
		newest = max(newest, s.Creation)
	}
	_, whole = p.tickets(lock)
	i, ok := intent[lock]
	same := slices.ContainsFunc(p.named(i.Name), func(e layout.Entry) bool { return e.Lock != lock })
	// An entry is followed by another one only after a removal, of which a slot tells. So the intent is the last
	// word on its place if all slots are readable and none knows better.
	if ok && i.Name != "" && whole && i.Creation >= newest && !same {
		return Remedy{Entry: layout.Entry(i), What: fmt.Sprintf("restoring lock %s with %d permits, which a host was writing as it ended",
			text.Printable(i.Name), i.Permits)}
	}
	if len(up) > 0 {
		return Remedy{Err: RefuseUp(up[0])}
	}
	for _, e := range p.entries {
		creation = max(creation, e.Creation)
	}
	for _, s := range p.slots[lock] {
		creation = max(creation, s.Creation, s.Ticket.Number(), s.ValueToken.Number())
	}
	creation = max(creation, bakery.ClockNumber(time.Now(), p.ex.sb.Formatted))
	if !whole || len(p.damaged) > 1 {
		creation += min(lostSpan, layout.MaxNumber)
	}
	if creation >= layout.MaxNumber {
		return refuse("the numbers of the lock are used up: only bakeryctl format helps")
	}
	return Remedy{Entry: layout.Entry{Lock: lock, Creation: creation + 1}, What: "making its place free; the name of the lock is lost"}
}

// intended returns what hosts were about to write, the newest for each lock, and the highest creation id of all.
func (p *picture) intended() (newest map[int]layout.Intent, creation uint64, err error) {
	newest = map[int]layout.Intent{}
	for _, s := range p.slots[lockspace.DirectoryLock] {
		if len(s.Value) == 0 {
			continue
		}
		i, err := p.ex.space.DecodeIntent(s.Value)
		switch {
		case err != nil && p.over(s.Host, s.Incarnation): // as of a slot that cannot be read
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

// named returns the entries of a name.
func (p *picture) named(name string) (found []layout.Entry) {
	for _, e := range p.entries {
		if e.Name == name {
			found = append(found, e)
		}
	}
	return found
}

// ErrNotRepaired is returned when something that Repair mends cannot be mended now: the text says why, and what to do.
var ErrNotRepaired = errors.New("not repaired")

func RefuseUp(who string) error {
	return fmt.Errorf("%w: %s may be up and know the entry, and did not restore it when asked; "+
		"stop bakeryd on all hosts, evict those that are dead, then run bakeryctl check --repair again", ErrNotRepaired, who)
}
