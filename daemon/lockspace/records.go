package lockspace

import (
	"fmt"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// RecordKind is a type of record.
type RecordKind string

// The types of record, in the order in which they lie on the disk.
const (
	KindSuperblock RecordKind = "superblock"
	KindCopy       RecordKind = "copy"
	KindHost       RecordKind = "host"
	KindEntry      RecordKind = "entry"
	KindSlot       RecordKind = "slot"
)

// Record is a record as it stands on the disk, or what is wrong with it.
type Record struct {
	Offset int64 // in bytes
	Kind   RecordKind
	Lock   int // of an entry or a slot
	Host   int // of a host record or a slot

	// One of these, or the reason why there is none.
	Superblock *layout.Superblock
	HostRecord *layout.HostRecord
	Entry      *layout.Entry
	Slot       *layout.Slot
	Err        error
	Decodes    bool // of a superblock: it is whole, and another than the one that hosts go by
}

// What names the record.
func (r Record) What() string {
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

// Walk hands over every record of a lockspace that is not virgin, in the order in which they lie on the disk. It
// returns the errors of the device as a whole, and those of visit.
func Walk(dev blockdev.Device, sb layout.Superblock, visit func(Record) error) error {
	w := Walker{Dev: dev, Space: sb.Space(), Visit: visit}
	if err := w.Superblocks(sb); err != nil {
		return err
	}
	if err := w.Hosts(); err != nil {
		return err
	}
	if err := w.Entries(); err != nil {
		return err
	}
	for lock := range sb.Geometry.Locks + 1 {
		if err := w.Slots(lock, sb.Geometry.Hosts); err != nil {
			return err
		}
	}
	return nil
}

// Walker reads the parts of a lockspace, and leaves out what is virgin.
type Walker struct {
	Dev   blockdev.Device
	Space layout.Space
	Visit func(Record) error
}

func (w Walker) Superblocks(want layout.Superblock) error {
	stride := w.Space.Geometry.Stride
	return ScanRecords(w.Dev, 0, stride, 2, func(i int, sector []byte, err error) error {
		r := Record{Offset: w.Space.Geometry.Superblock(i), Kind: []RecordKind{KindSuperblock, KindCopy}[i], Err: err}
		var sb layout.Superblock
		if err == nil {
			sb, r.Err = layout.DecodeSuperblock(sector, i)
		}
		if r.Err == nil && sb != want {
			r.Decodes = true
			r.Err = fmt.Errorf("it speaks of lockspace %s: %w", DescribeSuperblock(sb), layout.ErrIdentity)
		}
		if r.Err == nil {
			r.Superblock = &sb
		}
		return w.Visit(r)
	})
}

func (w Walker) Hosts() error {
	g := w.Space.Geometry
	err := ScanRecords(w.Dev, g.Host(1), g.Stride, g.Hosts, func(i int, sector []byte, err error) error {
		r := Record{Offset: g.Host(i + 1), Kind: KindHost, Host: i + 1, Err: err}
		var host layout.HostRecord
		if err == nil {
			host, r.Err = w.Space.DecodeHost(sector, r.Host)
		}
		if r.Err == nil {
			if host.Blank() {
				return nil
			}
			r.HostRecord = &host
		}
		return w.Visit(r)
	})
	if err != nil {
		return fmt.Errorf("read host table: %w", err)
	}
	return nil
}

func (w Walker) Entries() error { return w.EntriesOf(1, w.Space.Geometry.Locks) }

// EntriesOf reads those of count locks in a row.
func (w Walker) EntriesOf(first, count int) error {
	g := w.Space.Geometry
	err := ScanRecords(w.Dev, g.Entry(first), g.Stride, count, func(i int, sector []byte, err error) error {
		r := Record{Offset: g.Entry(first + i), Kind: KindEntry, Lock: first + i, Err: err}
		var entry layout.Entry
		if err == nil {
			entry, r.Err = w.Space.DecodeEntry(sector, r.Lock)
		}
		if r.Err == nil {
			if entry.Blank() {
				return nil
			}
			r.Entry = &entry
		}
		return w.Visit(r)
	})
	if err != nil {
		return fmt.Errorf("read lock directory: %w", err)
	}
	return nil
}

// Slots reads those of hosts 1..count in a lock.
func (w Walker) Slots(lock, count int) error {
	g := w.Space.Geometry
	err := ScanRecords(w.Dev, g.Slot(lock, 1), g.Stride, count, func(i int, sector []byte, err error) error {
		r := Record{Offset: g.Slot(lock, i+1), Kind: KindSlot, Lock: lock, Host: i + 1, Err: err}
		var slot layout.Slot
		if err == nil {
			slot, r.Err = w.Space.DecodeSlot(sector, lock, r.Host)
		}
		if r.Err == nil {
			if slot.Blank() {
				return nil
			}
			r.Slot = &slot
		}
		return w.Visit(r)
	})
	if err != nil {
		return fmt.Errorf("read the slots of lock %d: %w", lock, err)
	}
	return nil
}
