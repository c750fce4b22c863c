package lockspace

import (
	"cmp"
	"slices"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// Snapshot is a lockspace as one who is not a member reads it: hosts and locks, without the slots of locks that
// were removed or never made. It is not of one moment. Each host record was read after all slots, so that a slot
// can be told to be void by it. What is virgin is left out.
type Snapshot struct {
	Device     blockdev.Info
	Superblock layout.Superblock
	CopyUsed   int // 1 if the superblock at byte 0 is damaged

	Hosts   []layout.HostRecord // by id
	Entries []layout.Entry      // by lock, free ones too
	Slots   []layout.Slot       // by lock and host, those of the internal lock 0 too
	Damaged []Record            // what could not be read or decoded, by offset
}

// Inspect reads a lockspace without joining it; it never writes. It returns the errors of FindLockspace and those
// of the device as a whole; what is wrong with a record is in the snapshot.
func Inspect(dev blockdev.Device) (*Snapshot, error) {
	sb, copyUsed, err := FindLockspace(dev)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Device: dev.Info(), Superblock: sb, CopyUsed: copyUsed}
	w := Walker{Dev: dev, Space: sb.Space(), Visit: s.add}
	if err := w.Superblocks(sb); err != nil {
		return nil, err
	}
	if err := w.Entries(); err != nil {
		return nil, err
	}
	// As hosts do, read the slots of those hosts only that ever were.
	highest := 0
	top := Walker{Dev: dev, Space: sb.Space(), Visit: func(r Record) error {
		highest = max(highest, r.Host)
		if r.HostRecord != nil {
			highest = max(highest, r.HostRecord.ReadHorizon)
		}
		return nil
	}}
	if err := top.Hosts(); err != nil {
		return nil, err
	}
	for _, lock := range s.UsedLocks() {
		if err := w.Slots(lock, highest); err != nil {
			return nil, err
		}
	}
	if err := w.Hosts(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(s.Damaged, func(a, b Record) int { return int(a.Offset - b.Offset) })
	return s, nil
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

// UsedLocks returns the internal lock, those with a name, and those whose entry may hide one.
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

// Again returns the snapshot with the slots of some locks, and after that the host table if it is wanted, read anew.
func (s *Snapshot) Again(dev blockdev.Device, locks []int, highest int, hosts bool) (*Snapshot, error) {
	anew := *s
	anew.Slots = slices.DeleteFunc(slices.Clone(s.Slots), func(x layout.Slot) bool { return slices.Contains(locks, x.Lock) })
	anew.Damaged = slices.DeleteFunc(slices.Clone(s.Damaged), func(r Record) bool {
		return r.Kind == KindSlot && slices.Contains(locks, r.Lock) || hosts && r.Kind == KindHost
	})
	w := Walker{Dev: dev, Space: s.Superblock.Space(), Visit: anew.add}
	for _, lock := range locks {
		if err := w.Slots(lock, highest); err != nil {
			return nil, err
		}
	}
	if hosts {
		anew.Hosts = nil
		if err := w.Hosts(); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(anew.Damaged, func(a, b Record) int { return cmp.Compare(a.Offset, b.Offset) })
	return &anew, nil
}

// Highest is up to which id there are hosts.
func (s *Snapshot) Highest() int {
	n := 1
	for _, h := range s.Hosts {
		n = max(n, h.ID, h.ReadHorizon)
	}
	return n
}
