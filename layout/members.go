package layout

import (
	"fmt"
	"slices"
)

// MaxPositions is the greatest number of member disks.
const MaxPositions = 5

// Members are the disks of a lockspace on several. The zero Members are those of a lockspace on one
// disk.
type Members struct {
	Epoch     uint64             // grows with every change
	Positions int                // 3 or 5: they are numbered from 1
	Disks     [MaxPositions]UUID // by position - 1; zero at one that is vacant
}

// Several reports whether the lockspace is on several disks.
func (m Members) Several() bool { return m != (Members{}) }

// Majority returns the number of members that is one. A vacant position is a member that is missing.
func (m Members) Majority() int { return m.Positions/2 + 1 }

// Vacant returns the position without a disk, or 0.
func (m Members) Vacant() int { return 1 + slices.IndexFunc(m.Disks[:m.Positions], UUID.IsZero) }

// Count returns the number of disks.
func (m Members) Count() (n int) {
	for _, id := range m.Disks {
		if !id.IsZero() {
			n++
		}
	}
	return n
}

// First returns the first position that has a disk.
func (m Members) First() int {
	return 1 + slices.IndexFunc(m.Disks[:], func(id UUID) bool { return !id.IsZero() })
}

// PositionOf returns the position of a disk, or 0 if it is no member.
func (m Members) PositionOf(disk UUID) int { return 1 + slices.Index(m.Disks[:m.Positions], disk) }

// Has reports whether a disk is the member at a position.
func (m Members) Has(position int, disk UUID) bool {
	return !disk.IsZero() && m.PositionOf(disk) == position
}

// has reports whether a position has a disk.
func (m Members) has(position int) bool {
	return position >= 1 && position <= MaxPositions && !m.Disks[position-1].IsZero()
}

func (m Members) validate() error {
	if m.Positions != 3 && m.Positions != 5 {
		return fmt.Errorf("%d positions of member disks, want 3 or 5: %w", m.Positions, ErrField)
	}
	vacant := 0
	for i, id := range m.Disks {
		switch {
		case id.IsZero() && i < m.Positions:
			vacant++
		case id.IsZero():
		case i >= m.Positions:
			return fmt.Errorf("member disk at position %d of %d: %w", i+1, m.Positions, ErrField)
		case slices.Contains(m.Disks[:i], id):
			return fmt.Errorf("two member disks with uuid %v: %w", id, ErrField)
		}
	}
	if vacant > 1 {
		return fmt.Errorf("%d positions without a member disk, want at most 1: %w", vacant, ErrField)
	}
	return checkNotZero("epoch", m.Epoch)
}

// members passes the member disks, and the position of the one that has the superblock.
func (sb *Superblock) members(c *codec) {
	c.zero(headerGeneration, headerAddress)
	m := &sb.Members
	if !c.several {
		c.absent("position", 144, 256, sb.Position == 0)
		return
	}
	number(c, headerPosition, 1, "position", &sb.Position, 1, MaxPositions)
	word(c, 144, &m.Epoch)
	number(c, 152, 1, "number of positions", &m.Positions, 0, MaxPositions)
	c.zero(153, 160)
	for i := range m.Disks {
		c.id(160+16*i, (*[16]byte)(&m.Disks[i]))
	}
	c.zero(240, 256)
	if c.check(m.validate()); !m.has(sb.Position) {
		c.check(fmt.Errorf("position %d has no member disk: %w", sb.Position, ErrField))
	}
}

// CopyVersion orders the contents of a record on several disks: by the epoch, then by the counter. The
// zero CopyVersion is that of a record that was never written.
type CopyVersion struct{ Epoch, Counter uint64 }

// CopyVersion returns the version of a record that was read at a place of the member at a position. It
// returns the errors of decoding it, and ErrIdentity for the copy of another position.
func (s Space) CopyVersion(block []byte, off int64, position int) (CopyVersion, error) {
	v, err := s.copyVersion(block, off, position)
	if err != nil {
		return CopyVersion{}, fmt.Errorf("copy of the record at byte %d: %w", off, err)
	}
	return v, nil
}

func (s Space) copyVersion(block []byte, off int64, position int) (v CopyVersion, err error) {
	if err := checkSize(block); err != nil {
		return v, err
	}
	record := block[:RecordSize]
	if isZero(record) {
		return v, nil
	}
	var magic string
	switch found := record[headerMagic:headerVersion]; string(found) {
	case magicHost:
		magic, v = magicHost, CopyVersion{uint64(le.Uint32(record[headerGeneration:])), le.Uint64(record[56:])}
	case magicSlot:
		magic, v = magicSlot, CopyVersion{uint64(le.Uint32(record[headerGeneration:])), le.Uint64(record[64:])}
	case magicEntry:
		magic, v = magicEntry, CopyVersion{le.Uint64(record[184:]), le.Uint64(record[192:])}
	case magicSuperblock:
		magic, v = magicSuperblock, CopyVersion{Epoch: le.Uint64(record[144:])}
	default:
		return v, fmt.Errorf("magic %q: %w", found, ErrMagic)
	}
	err = firstError(unseal(record, magic, true), s.isOf(record, off),
		isNumber("format version", int(le.Uint16(record[headerVersion:])), VersionSeveral),
		isNumber("position", int(record[headerPosition]), position))
	if err == nil && v == (CopyVersion{}) {
		err = fmt.Errorf("version 0: %w", ErrField)
	}
	return v, err
}

// PlaceCopy makes an encoded record the copy for the member at a position, 1 to MaxPositions. It leaves
// blank records as they are.
func PlaceCopy(block []byte, position int) {
	mustBeWithin("position", position, 1, MaxPositions)
	if record := block[:RecordSize]; !isZero(record) {
		record[headerPosition] = byte(position)
		le.PutUint32(record[headerChecksum:], checksum(record))
	}
}

// CopyPosition returns the position of the member for which a valid copy of a record was written.
func CopyPosition(block []byte) int { return int(block[headerPosition]) }
