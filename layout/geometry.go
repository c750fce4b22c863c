package layout

import "fmt"

const (
	// MinStride and MaxStride bound the distance from one record to the next.
	MinStride = RecordSize
	MaxStride = 65536

	// MaxHosts is the largest number of hosts of a lockspace; their ids are 1..MaxHosts.
	MaxHosts = 2000

	// MaxLocks is the largest number of locks of a lockspace; they are numbered 1..MaxLocks.
	MaxLocks = 65536
)

// Geometry is the layout of a lockspace. All addresses follow from it.
//
//	superblock | copy | host records 1..Hosts | directory entries 1..Locks |
//	slots: lock 0: host 1..Hosts | lock 1: host 1..Hosts | ... | lock Locks: host 1..Hosts
//
// Lock 0 is internal: it guards the directory and has no entry. The slots of one lock are
// contiguous, so that one read covers them all.
//
// The methods that return an address panic on a number outside the geometry. Such an address
// belongs to another record, and a write to it would destroy a slot that its owner relies on.
type Geometry struct {
	Stride int // bytes from one record to the next: the physical block size of the device
	Hosts  int // host ids are 1..Hosts
	Locks  int // locks are 1..Locks; 0 is the internal lock
}

// Validate returns an ErrField naming the first member that is out of bounds.
func (g Geometry) Validate() error {
	if g.Stride < MinStride || g.Stride > MaxStride || g.Stride&(g.Stride-1) != 0 {
		return fmt.Errorf("stride %d, want a power of two from %d to %d: %w", g.Stride, MinStride, MaxStride, ErrField)
	}
	return firstError(within("hosts", g.Hosts, 1, MaxHosts), within("locks", g.Locks, 1, MaxLocks))
}

// Superblock returns the address of the superblock (copy 0) or of its copy (copy 1).
func (g Geometry) Superblock(copy int) int64 {
	mustBeWithin("superblock copy", copy, 0, 1)
	return g.at(int64(copy))
}

// Host returns the address of the record of a host, 1..Hosts.
func (g Geometry) Host(id int) int64 {
	mustBeWithin("host", id, 1, g.Hosts)
	return g.at(2 + int64(id-1))
}

// Entry returns the address of the directory entry of a lock, 1..Locks.
func (g Geometry) Entry(lock int) int64 {
	mustBeWithin("lock", lock, 1, g.Locks)
	return g.at(2 + int64(g.Hosts) + int64(lock-1))
}

// Slot returns the address of the slot of a host, 1..Hosts, in a lock, 0..Locks.
func (g Geometry) Slot(lock, host int) int64 {
	mustBeWithin("lock", lock, 0, g.Locks)
	mustBeWithin("host", host, 1, g.Hosts)
	return g.at(2 + int64(g.Hosts) + int64(g.Locks) + int64(lock)*int64(g.Hosts) + int64(host-1))
}

// Size returns the number of bytes that the lockspace occupies.
func (g Geometry) Size() int64 {
	return g.at(2 + int64(g.Hosts) + int64(g.Locks) + (int64(g.Locks)+1)*int64(g.Hosts))
}

func (g Geometry) at(record int64) int64 { return record * int64(g.Stride) }

// Space encodes and decodes the records of one lockspace. Every record carries the lockspace's
// uuid. It distinguishes a sector that an earlier format of the device left, or that a host of it
// wrote late.
//
// Encoding requires a buffer of at least RecordSize bytes, normally one stride, and fills all of
// it. An invalid record is an ErrField or ErrShort, and the buffer is then unchanged. Decoding
// requires a buffer that begins with the record. Its numbers say which record is expected, and
// panic as the methods of [Geometry] do.
type Space struct {
	UUID     UUID
	Geometry Geometry
	Several  bool // on several disks: format version 2
}

func within(field string, got, low, high int) error {
	if got < low || got > high {
		return fmt.Errorf("%s %d, want %d to %d: %w", field, got, low, high, ErrField)
	}
	return nil
}

func mustBeWithin(field string, got, low, high int) {
	if got < low || got > high {
		panic(fmt.Sprintf("layout: %s %d, want %d to %d", field, got, low, high))
	}
}
