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

	// One of these is not nil.
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

// Walk calls visit with every record of a lockspace that is not blank, in the order of the disk. It
// returns the errors of the device as a whole and those of visit.
func Walk(dev blockdev.Device, sb layout.Superblock, visit func(Record) error) error {
	w := Walker{Dev: dev, Space: sb.Space(), Visit: visit}
	err := w.VisitSuperblocks(sb)
	if err == nil {
		err = w.VisitHosts()
	}
	if err == nil {
		err = w.VisitEntries()
	}
	for lock := 0; err == nil && lock <= sb.Geometry.Locks; lock++ {
		err = w.VisitSlots(lock, sb.Geometry.Hosts)
	}
	return err
}

// Walker reads the parts of a lockspace and calls Visit with every record that is not blank. Its
// methods return the errors of the device as a whole and those of Visit.
type Walker struct {
	Dev   blockdev.Device
	Space layout.Space
	Visit func(Record) error
}

// VisitSuperblocks reads the superblock and its copy. One that differs from want has an error.
func (w Walker) VisitSuperblocks(want layout.Superblock) error {
	stride := w.Space.Geometry.Stride
	return ScanRecords(w.Dev, 0, stride, 2, func(i int, sector []byte, err error) error {
		r := Record{Offset: w.Space.Geometry.Superblock(i), Kind: []RecordKind{KindSuperblock, KindCopy}[i], Err: err}
		var sb layout.Superblock
		if err == nil {
			sb, r.Err = layout.DecodeSuperblock(sector, i)
		}
		if r.Err == nil && sb != want {
			r.OtherLockspace = true
			r.Err = fmt.Errorf("it belongs to lockspace %s: %w", DescribeSuperblock(sb), layout.ErrIdentity)
		}
		if r.Err == nil {
			r.Superblock = &sb
		}
		return w.Visit(r)
	})
}

// VisitHosts reads the host table.
func (w Walker) VisitHosts() error {
	g := w.Space.Geometry
	return w.visit("host table", g.Host(1), g.Hosts, func(i int) Record { return Record{Kind: KindHost, Host: i + 1} },
		func(sector []byte, r *Record) (blank bool, err error) {
			host, err := w.Space.DecodeHost(sector, r.Host)
			r.HostRecord = &host
			return host.Blank(), err
		})
}

// VisitEntries reads the directory.
func (w Walker) VisitEntries() error { return w.VisitEntryRange(1, w.Space.Geometry.Locks) }

// VisitEntryRange reads the directory entries of count locks from first on.
func (w Walker) VisitEntryRange(first, count int) error {
	return w.visit("lock directory", w.Space.Geometry.Entry(first), count, func(i int) Record { return Record{Kind: KindEntry, Lock: first + i} },
		func(sector []byte, r *Record) (blank bool, err error) {
			entry, err := w.Space.DecodeEntry(sector, r.Lock)
			r.Entry = &entry
			return entry.Blank(), err
		})
}

// VisitSlots reads the slots of hosts 1..count in a lock.
func (w Walker) VisitSlots(lock, count int) error {
	what := fmt.Sprintf("the slots of lock %d", lock)
	return w.visit(what, w.Space.Geometry.Slot(lock, 1), count, func(i int) Record { return Record{Kind: KindSlot, Lock: lock, Host: i + 1} },
		func(sector []byte, r *Record) (blank bool, err error) {
			slot, err := w.Space.DecodeSlot(sector, lock, r.Host)
			r.Slot = &slot
			return slot.Blank(), err
		})
}

// visit reads count records of one kind, from off on. identity returns the i-th one without its
// contents, which decode adds.
func (w Walker) visit(what string, off int64, count int, identity func(i int) Record, decode func(sector []byte, r *Record) (blank bool, err error)) error {
	stride := w.Space.Geometry.Stride
	err := ScanRecords(w.Dev, off, stride, count, func(i int, sector []byte, err error) error {
		r := identity(i)
		r.Offset = off + int64(i)*int64(stride)
		bare, blank := r, false
		if err == nil {
			blank, err = decode(sector, &r)
		}
		switch {
		case err != nil:
			bare.Err = err
			return w.Visit(bare)
		case blank:
			return nil
		}
		return w.Visit(r)
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}
