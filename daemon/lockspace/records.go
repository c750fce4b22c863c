package lockspace

import (
	"fmt"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// RecordKind is the type of a record.
type RecordKind string

// The types of record, in their order on the disk.
const (
	KindSuperblock RecordKind = "superblock"
	KindCopy       RecordKind = "copy"
	KindHost       RecordKind = "host"
	KindEntry      RecordKind = "entry"
	KindSlot       RecordKind = "slot"
)

// Record is a record of the disk, or the error of reading it.
type Record struct {
	Offset int64 // in bytes
	Kind   RecordKind
	Lock   int // number of the lock of an entry or a slot
	Host   int // id of the host of a host record or a slot

	Position int // of the member disk that has this copy; 0 on one disk, on a set of several, and with Err

	// Without Err, one of these is not nil.
	Superblock     *layout.Superblock
	HostRecord     *layout.HostRecord
	Entry          *layout.Entry
	Slot           *layout.Slot
	Err            error
	OtherLockspace bool // whether Err is of a valid superblock that differs from the one in use
}

// Describe returns the name of the record for a message.
func (r Record) Describe() string {
	switch r.Kind {
	case KindCopy:
		return "copy of the superblock"
	case KindHost:
		return fmt.Sprintf("record of host %d", r.Host)
	case KindEntry:
		return fmt.Sprintf("directory entry of lock %d", r.Lock)
	case KindSlot:
		return fmt.Sprintf("slot of host %d in lock %d", r.Host, r.Lock)
	}
	return string(r.Kind)
}

// HostAt returns the record of a host without its contents.
func HostAt(g layout.Geometry, host int) Record {
	return Record{Offset: g.Host(host), Kind: KindHost, Host: host}
}

// EntryAt returns the directory entry of a lock without its contents.
func EntryAt(g layout.Geometry, lock int) Record {
	return Record{Offset: g.Entry(lock), Kind: KindEntry, Lock: lock}
}

// SlotAt returns the slot of a host in a lock without its contents.
func SlotAt(g layout.Geometry, lock, host int) Record {
	return Record{Offset: g.Slot(lock, host), Kind: KindSlot, Lock: lock, Host: host}
}

// decode sets the contents of a record of the lockspace sb, or its error, unless it is blank.
func (r *Record) decode(sb *layout.Superblock, sector []byte) (blank bool) {
	switch r.Kind {
	case KindSuperblock, KindCopy:
		r.Superblock = new(layout.Superblock)
		*r.Superblock, r.Err = layout.DecodeSuperblock(sector, int(r.Offset)/sb.Geometry.Stride)
		if r.Err == nil && !SameSuperblock(*r.Superblock, *sb) {
			r.OtherLockspace = true
			r.Err = fmt.Errorf("it belongs to lockspace %s: %w", DescribeSuperblock(*r.Superblock), layout.ErrIdentity)
		}
	case KindHost:
		r.HostRecord = new(layout.HostRecord)
		*r.HostRecord, r.Err = sb.Space().DecodeHost(sector, r.Host)
		blank = r.HostRecord.Blank()
	case KindEntry:
		r.Entry = new(layout.Entry)
		*r.Entry, r.Err = sb.Space().DecodeEntry(sector, r.Lock)
		blank = r.Entry.Blank()
	case KindSlot:
		r.Slot = new(layout.Slot)
		*r.Slot, r.Err = sb.Space().DecodeSlot(sector, r.Lock, r.Host)
		blank = r.Slot.Blank()
	}
	return blank && r.Err == nil
}

// Walk calls visit with every record of a lockspace that is not blank, in the order of the disk. It
// returns the errors of the device as a whole and those of visit.
func Walk(dev blockdev.Device, sb layout.Superblock, visit func(Record) error) error {
	w := Walker{Dev: dev, SB: sb, Visit: visit}
	w.VisitSuperblocks()
	w.VisitHosts()
	w.VisitEntries(1, sb.Geometry.Locks)
	for lock := range sb.Geometry.Locks + 1 {
		w.VisitSlots(lock, sb.Geometry.Hosts)
	}
	return w.Err
}

// Walker reads the parts of a lockspace and calls Visit with every record that is not blank.
type Walker struct {
	Dev   blockdev.Device
	SB    layout.Superblock
	Visit func(Record) error
	Err   error // the first one of the device as a whole or of Visit; nothing is read after it
}

// VisitSuperblocks reads the superblock and its copy. One that differs from SB has an error.
func (w *Walker) VisitSuperblocks() {
	w.visit("superblock", 2, func(i int) Record {
		return Record{Offset: w.SB.Geometry.Superblock(i), Kind: []RecordKind{KindSuperblock, KindCopy}[i]}
	})
}

// VisitHosts reads the host table.
func (w *Walker) VisitHosts() {
	w.visit("host table", w.SB.Geometry.Hosts, func(i int) Record { return HostAt(w.SB.Geometry, 1+i) })
}

// VisitEntries reads the directory entries of count locks from first on.
func (w *Walker) VisitEntries(first, count int) {
	w.visit("lock directory", count, func(i int) Record { return EntryAt(w.SB.Geometry, first+i) })
}

// VisitSlots reads the slots of hosts 1..count in a lock.
func (w *Walker) VisitSlots(lock, count int) {
	what := fmt.Sprintf("the slots of lock %d", lock)
	w.visit(what, count, func(i int) Record { return SlotAt(w.SB.Geometry, lock, 1+i) })
}

// visit reads count records of one kind. at returns the place of the i-th one.
func (w *Walker) visit(what string, count int, at func(i int) Record) {
	if w.Err != nil {
		return
	}
	err := ScanRecords(w.Dev, at(0).Offset, w.SB.Geometry.Stride, count, func(i int, sector []byte, err error) error {
		r := at(i)
		if r.Err = err; err == nil && r.decode(&w.SB, sector) {
			return nil
		}
		if position := w.SB.Position; r.Err == nil && position > 0 && w.Dev.Info().Members == 0 {
			if _, r.Err = w.SB.Space().CopyVersion(sector, r.Offset, position); r.Err == nil {
				r.Position = position
			}
		}
		return w.Visit(r)
	})
	if err != nil {
		w.Err = fmt.Errorf("read %s: %w", what, err)
	}
}
