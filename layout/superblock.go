package layout

import (
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	// MinLease and MaxLease bound the lease of a lockspace, which is a whole number of
	// microseconds.
	MinLease = time.Second
	MaxLease = time.Hour

	// HeadSize is the number of bytes that FindSuperblock needs to find a copy at any stride.
	HeadSize = 128 << 10
)

const _ = uint(HeadSize - MaxStride - RecordSize)

// Policy is the condition for treating a silent host as dead.
type Policy uint8

// The policies.
const (
	PolicyLease  Policy = iota // its lease has expired
	PolicyFence                // its lease or FenceAfter has expired, and a fence agent has confirmed that it is cut off
	PolicyManual               // an operator has confirmed it
)

var policies = enum{"policy", []string{"lease", "fence", "manual"}}

func (p Policy) String() string { return policies.name(uint8(p)) }

// MarshalText returns the policy's name.
func (p Policy) MarshalText() ([]byte, error) { return policies.marshal(uint8(p)) }

// UnmarshalText reads the policy's name.
func (p *Policy) UnmarshalText(text []byte) error { return unmarshal(policies, p, text) }

// Superblock holds the parameters that all hosts of a lockspace must agree on. Only formatting
// writes it.
//
//	 bytes  | field
//	--------|---------------------------------------------------------------------
//	  0- 39 | header; magic "BKSB"; the address is 0, that of the copy its stride
//	 40- 43 | stride
//	 44- 47 | hosts
//	 48- 51 | locks
//	 52     | policy: 0 lease, 1 fence, 2 manual
//	 53     | reserved, zero
//	 54- 55 | length of the name
//	 56- 63 | lease in microseconds
//	 64- 71 | time of formatting, in microseconds since 1970, 0 if unknown
//	 72-135 | name, UTF-8, then zeroes
//	136-143 | fence-after in microseconds, 0 for the lease
//	144-151 | members: epoch; 0 with one disk, and then all up to the end is zero
//	152     | members: number of positions, 3 or 5
//	153-159 | reserved, zero
//	160-239 | members: uuids of the disks at positions 1 to 5, zeroes where there is none
//	240-511 | reserved, zero
type Superblock struct {
	UUID      UUID
	Name      string // at most MaxName bytes, may be empty
	Geometry  Geometry
	Lease     time.Duration
	Policy    Policy
	Formatted time.Time // UTC; microseconds are kept
	// FenceAfter is how long a host may be silent before others fence it. 0, and always 0 with a policy
	// other than fence: until its lease is over.
	FenceAfter time.Duration

	Members  Members
	Position int // of the member disk for which this superblock was written; 0 with one disk
}

// MinFenceAfter returns the least FenceAfter for a lease. A host then misses two renewals before it is
// fenced, and one of them may fail and be repeated in time (daemon/lease/timing).
func MinFenceAfter(lease time.Duration) time.Duration { return lease / 5 }

const _ = uint(136-72-MaxName) + uint(72+MaxName-136)

func (sb *Superblock) fields(c *codec) {
	c.check(checkUUID(sb.UUID))
	number(c, 40, 4, "stride", &sb.Geometry.Stride, math.MinInt, math.MaxInt) // Validate knows its powers of two
	number(c, 44, 4, "hosts", &sb.Geometry.Hosts, 1, MaxHosts)
	number(c, 48, 4, "locks", &sb.Geometry.Locks, 1, MaxLocks)
	c.check(sb.Geometry.Validate())
	number(c, 52, 1, "policy", &sb.Policy, PolicyLease, PolicyManual)
	c.zero(53, 54)
	c.duration(56, "lease", &sb.Lease)
	c.check(checkLease(sb.Lease))
	c.time(64, "formatted", &sb.Formatted)
	c.text(54, 72, 136, "lockspace name", &sb.Name)
	c.check(ValidateLockspaceName(sb.Name))
	c.duration(136, "fence-after", &sb.FenceAfter)
	c.check(sb.checkFenceAfter())
	sb.members(c)
	c.zero(256, RecordSize)
}

// duration passes a time of at most MaxLease, in microseconds.
func (c *codec) duration(at int, field string, v *time.Duration) {
	us := uint64(*v / time.Microsecond)
	if word(c, at, &us); c.reading {
		if us > uint64(MaxLease/time.Microsecond) {
			c.check(fmt.Errorf("%s %d us, want at most %v: %w", field, us, MaxLease, ErrField))
			return
		}
		*v = time.Duration(us) * time.Microsecond
	}
}

// Space returns the encoder and decoder of the lockspace's other records.
func (sb Superblock) Space() Space {
	return Space{UUID: sb.UUID, Geometry: sb.Geometry, Several: sb.Members.Several()}
}

func checkLease(lease time.Duration) error {
	if lease < MinLease || lease > MaxLease || lease%time.Microsecond != 0 {
		return fmt.Errorf("lease %v, want %v to %v in whole microseconds: %w", lease, MinLease, MaxLease, ErrField)
	}
	return nil
}

func (sb *Superblock) checkFenceAfter() error {
	least, after := MinFenceAfter(sb.Lease), sb.FenceAfter
	switch {
	case after == 0:
		return nil
	case sb.Policy != PolicyFence:
		return fmt.Errorf("fence-after %v with policy %v, want 0: %w", after, sb.Policy, ErrField)
	case after < least || after > sb.Lease || after%time.Microsecond != 0:
		return fmt.Errorf("fence-after %v, want 0 or %v to %v in whole microseconds: %w", after, least, sb.Lease, ErrField)
	}
	return nil
}

// Encode writes the superblock (copy 0) or its copy (copy 1) into buf, and zeroes into the rest
// of buf. On an error, ErrShort or ErrField, buf is unchanged.
func (sb Superblock) Encode(buf []byte, which int) error {
	var err error
	c := writer(sb.Members.Several(), &err)
	sb.fields(&c)
	if err := firstError(checkSize(buf), err); err != nil {
		return fmt.Errorf("%s: %w", superblockWhere(which), err)
	}
	c.seal(buf, magicSuperblock, sb.UUID, sb.Geometry.Superblock(which))
	return nil
}

// DecodeSuperblock decodes the superblock (copy 0) or its copy (copy 1). A copy's address is the
// stride that the copy itself records. The caller checks that the copy was read from there, as
// FindSuperblock does.
func DecodeSuperblock(buf []byte, copy int) (Superblock, error) {
	mustBeWithin("superblock copy", copy, 0, 1)
	record, err := open(buf, magicSuperblock, false)
	var sb Superblock
	switch {
	case err == nil && record == nil:
		err = fmt.Errorf("all zeroes: %w", ErrBlank)
	case err == nil:
		c := reader(record, &err)
		sb.UUID = UUID(record[headerUUID:headerEnd])
		sb.fields(&c)
		err = firstError(isAt(record, int64(sb.Geometry.Stride)*int64(copy)), err)
	}
	if err != nil {
		return Superblock{}, fmt.Errorf("%s: %w", superblockWhere(copy), err)
	}
	return sb, nil
}

func superblockWhere(copy int) string {
	if copy == 0 {
		return "superblock at byte 0"
	}
	return "copy of the superblock"
}

// FindSuperblock searches the first bytes of a device, at least RecordSize and ideally HeadSize
// of them, for a superblock: first at byte 0, then for the copy at every possible stride. It
// returns which of the two it found, 0 or 1.
//
// If there is neither, the error is ErrBlank if head is all zeroes, otherwise the error at byte
// 0. Zeroes at byte 0 with other data after them are ErrMagic: many file systems begin like that.
func FindSuperblock(head []byte) (sb Superblock, copyUsed int, err error) {
	sb, err = DecodeSuperblock(head, 0)
	if err == nil || errors.Is(err, ErrShort) {
		return sb, 0, err
	}
	// A superblock of a later version is not damage. A copy must not replace it, because it may
	// be older.
	if errors.Is(err, ErrVersion) && le.Uint32(head[headerChecksum:]) == checksum(head) {
		return sb, 0, err
	}
	found := 0
	for stride := MinStride; stride <= MaxStride && stride+RecordSize <= len(head); stride *= 2 {
		other, copyErr := DecodeSuperblock(head[stride:], 1)
		if copyErr != nil || other.Geometry.Stride != stride {
			continue
		}
		if found != 0 {
			// An earlier format left its copy. Only byte 0 could show which of the two is
			// current.
			return Superblock{}, 0, fmt.Errorf("copies of two superblocks at bytes %d and %d (%v and %v): %w",
				found, stride, sb.UUID, other.UUID, err)
		}
		sb, found = other, stride
	}
	switch {
	case found != 0:
		return sb, 1, nil
	case errors.Is(err, ErrBlank) && !isZero(head):
		return sb, 0, fmt.Errorf("superblock at byte 0: zeroes, but other data follows on the device: %w", ErrMagic)
	}
	return sb, 0, err
}
