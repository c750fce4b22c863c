package daemon

import (
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
	w := walker{dev: dev, space: sb.Space(), visit: s.add}
	if err := w.superblocks(sb); err != nil {
		return nil, err
	}
	if err := w.entries(); err != nil {
		return nil, err
	}
	// As hosts do, read the slots of those hosts only that ever were.
	highest := 0
	top := walker{dev: dev, space: sb.Space(), visit: func(r Record) error {
		highest = max(highest, r.Host)
		if r.HostRecord != nil {
			highest = max(highest, r.HostRecord.Highest)
		}
		return nil
	}}
	if err := top.hosts(); err != nil {
		return nil, err
	}
	for _, lock := range s.usedLocks() {
		if err := w.slots(lock, highest); err != nil {
			return nil, err
		}
	}
	if err := w.hosts(); err != nil {
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

// usedLocks returns the internal lock, those with a name, and those whose entry may hide one.
func (s *Snapshot) usedLocks() []int {
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
