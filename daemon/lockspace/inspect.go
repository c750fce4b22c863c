package lockspace

import (
	"cmp"
	"slices"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// Snapshot is a lockspace as read by a process that did not join: hosts and locks. It omits blank
// records and the slots of locks that were removed or never made.
//
// The records are not of one moment. Host records are read after all slots, so that they show which
// slots are void.
type Snapshot struct {
	Device     blockdev.Info
	Superblock layout.Superblock
	CopyUsed   int // index of the superblock in use: 1 if the one at byte 0 is damaged

	Hosts   []layout.HostRecord // by id
	Entries []layout.Entry      // by lock, including free ones
	Slots   []layout.Slot       // by lock and host, including those of the internal lock 0
	Damaged []Record            // records that could not be read or decoded, by offset
}

// Inspect reads a lockspace without joining it; it never writes. It returns the errors of
// FindLockspace and those of the device as a whole. Errors of single records are in the snapshot.
func Inspect(dev blockdev.Device) (*Snapshot, error) {
	sb, copyUsed, err := FindLockspace(dev)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Device: dev.Info(), Superblock: sb, CopyUsed: copyUsed}
	w := Walker{Dev: dev, SB: sb, Visit: s.add}
	w.VisitSuperblocks()
	w.VisitEntries(1, sb.Geometry.Locks)
	w.VisitHosts()
	if w.Err != nil {
		return nil, w.Err
	}
	// Read the slots of hosts that ever joined only, as hosts do.
	return s.Reread(dev, s.UsedLocks(), s.HighestHost(), true)
}

func (s *Snapshot) add(r Record) error {
	switch {
	case r.Err != nil:
		s.Damaged = append(s.Damaged, r)
	case r.HostRecord != nil:
		s.Hosts = append(s.Hosts, *r.HostRecord)
	case r.Entry != nil:
		s.Entries = append(s.Entries, *r.Entry)
	case r.Slot != nil:
		s.Slots = append(s.Slots, *r.Slot)
	}
	return nil
}

// UsedLocks returns the numbers of the internal lock, of locks with a name, and of locks with a
// damaged entry.
func (s *Snapshot) UsedLocks() []int {
	locks := []int{0}
	for _, e := range s.Entries {
		if !e.Free() {
			locks = append(locks, e.Lock)
		}
	}
	for _, r := range s.Damaged {
		if r.Kind == KindEntry {
			locks = append(locks, r.Lock)
		}
	}
	slices.Sort(locks)
	return locks
}

// Reread returns the snapshot after it has read the slots of some locks again, up to those of host
// highest. If hosts is set it then reads the host table again, too.
func (s *Snapshot) Reread(dev blockdev.Device, locks []int, highest int, hosts bool) (*Snapshot, error) {
	next := *s
	next.Slots = slices.DeleteFunc(slices.Clone(s.Slots), func(x layout.Slot) bool { return slices.Contains(locks, x.Lock) })
	next.Damaged = slices.DeleteFunc(slices.Clone(s.Damaged), func(r Record) bool {
		return r.Kind == KindSlot && slices.Contains(locks, r.Lock) || hosts && r.Kind == KindHost
	})
	w := Walker{Dev: dev, SB: s.Superblock, Visit: next.add}
	for _, lock := range locks {
		w.VisitSlots(lock, highest)
	}
	if hosts {
		next.Hosts = nil
		w.VisitHosts()
	}
	slices.SortStableFunc(next.Damaged, func(a, b Record) int { return cmp.Compare(a.Offset, b.Offset) })
	return &next, w.Err
}

// HighestHost returns the highest host id that a host record has or covers, at least 1.
func (s *Snapshot) HighestHost() int {
	id := 1
	for _, h := range s.Hosts {
		id = max(id, h.ID, h.ReadHorizon)
	}
	for _, r := range s.Damaged {
		if r.Kind == KindHost {
			id = max(id, r.Host)
		}
	}
	return id
}

// HostIncarnation identifies an incarnation of a host.
type HostIncarnation struct {
	Host        int
	Incarnation uint64
}

// Verdicts are the kinds of verdict that hosts publish about one incarnation.
type Verdicts struct{ Dead, Forgotten, Wish bool }

// VerdictTable has the verdicts that any host publishes, by incarnation.
type VerdictTable map[HostIncarnation]Verdicts

// PublishedVerdicts returns the verdicts that the hosts of a snapshot publish.
func (s *Snapshot) PublishedVerdicts() VerdictTable {
	all := make(VerdictTable)
	for _, h := range s.Hosts {
		for _, v := range h.Verdicts {
			of := HostIncarnation{v.Host, v.Incarnation}
			w := all[of]
			w.Dead = w.Dead || v.Kind.Dead()
			w.Forgotten = w.Forgotten || v.Kind == layout.VerdictForgotten
			w.Wish = w.Wish || v.Kind == layout.VerdictWish
			all[of] = w
		}
	}
	return all
}
