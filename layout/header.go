package layout

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

// Every record begins with this header; its bytes mean the same in every format version.
//
//	bytes  | field
//	-------|----------------------------------------------------------------------
//	 0 - 3 | magic: four ASCII letters, different for each type of record
//	 4 - 5 | format version
//	 6     | position of the member disk for which the record was written, 1 to 6; 0 with one disk
//	 7     | reserved, zero
//	 8 -11 | checksum: CRC-32C of bytes 0-511, with these four taken as zero
//	12 -15 | generation of the writer's host id; 0 with one disk, in entries and in superblocks
//	16 -23 | address: the record's own byte offset on the device
//	24 -39 | uuid of the lockspace, in the order in which it is printed
//	40-511 | the body
const (
	headerMagic      = 0
	headerVersion    = 4
	headerPosition   = 6
	headerReserved   = 7
	headerChecksum   = 8
	headerGeneration = 12
	headerAddress    = 16
	headerUUID       = 24
	headerEnd        = 40
)

const (
	magicSuperblock = "BKSB"
	magicHost       = "BKHR"
	magicEntry      = "BKDE"
	magicSlot       = "BKSL"
)

var noChecksum [headerGeneration - headerChecksum]byte

var le = binary.LittleEndian

// checksum does not modify the record: other readers may share it.
func checksum(record []byte) uint32 {
	castagnoli := crc32.MakeTable(crc32.Castagnoli) // made on first use: not every program reads records
	sum := crc32.Update(0, castagnoli, record[:headerChecksum])
	sum = crc32.Update(sum, castagnoli, noChecksum[:])
	return crc32.Update(sum, castagnoli, record[headerGeneration:RecordSize])
}

// seal copies a record to buf, zeroes the rest of buf, and writes the header, with the checksum last. A
// record on several disks is the copy of the one at position 1: see PlaceCopy.
func (c *codec) seal(buf []byte, magic string, id UUID, address int64) {
	clear(buf[copy(buf, c.record):])
	copy(buf[headerMagic:headerVersion], magic)
	le.PutUint16(buf[headerVersion:], Version)
	if c.several {
		le.PutUint16(buf[headerVersion:], VersionSeveral)
		buf[headerPosition] = max(buf[headerPosition], 1)
	}
	le.PutUint64(buf[headerAddress:], uint64(address))
	copy(buf[headerUUID:headerEnd], id[:])
	le.PutUint32(buf[headerChecksum:], checksum(buf))
}

// unseal checks that the record is intact and has the expected type. A superblock may be of either version.
func unseal(record []byte, magic string, several bool) error {
	if found := record[headerMagic:headerVersion]; string(found) != magic {
		return fmt.Errorf("magic %q, want %q: %w", found, magic, ErrMagic)
	}
	want := uint16(Version)
	if several {
		want = VersionSeveral
	}
	switch version := le.Uint16(record[headerVersion:]); {
	case magic == magicSuperblock && (version == Version || version == VersionSeveral):
	case magic == magicSuperblock:
		return fmt.Errorf("format version %d, want %d or %d: %w", version, Version, VersionSeveral, ErrVersion)
	case version != want:
		return fmt.Errorf("format version %d, want %d: %w", version, want, ErrVersion)
	}
	if found, want := le.Uint32(record[headerChecksum:]), checksum(record); found != want {
		return fmt.Errorf("checksum %#08x, want %#08x: %w", found, want, ErrChecksum)
	}
	return nil
}

// open checks that the record in buf is intact and has the expected type. It returns nil if the record
// is blank.
func open(buf []byte, magic string, several bool) (record []byte, err error) {
	if err := checkSize(buf); err != nil {
		return nil, err
	}
	record = buf[:RecordSize]
	if isZero(record) {
		return nil, nil
	}
	return record, unseal(record, magic, several)
}

// isOf checks that a record belongs to the lockspace and to its place.
func (s Space) isOf(record []byte, address int64) error {
	if found := UUID(record[headerUUID:headerEnd]); found != s.UUID {
		return fmt.Errorf("uuid %v, want %v: %w", found, s.UUID, ErrIdentity)
	}
	return isAt(record, address)
}

func isAt(record []byte, address int64) error {
	if found := le.Uint64(record[headerAddress:]); found != uint64(address) {
		return fmt.Errorf("written for byte %d, found at byte %d: %w", found, address, ErrIdentity)
	}
	return nil
}

// isNumber compares a lock or host number in a record with the number that its place implies.
func isNumber(field string, found, want int) error {
	if found != want {
		return fmt.Errorf("%s %d, want %d: %w", field, found, want, ErrIdentity)
	}
	return nil
}

func checkSize(buf []byte) error {
	if len(buf) < RecordSize {
		return fmt.Errorf("%d bytes, want at least %d: %w", len(buf), RecordSize, ErrShort)
	}
	return nil
}

// firstError returns the first of some errors that is not nil. With cmp.Or, which compares both words
// of an interface, decoding a slot takes a fifth longer.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// isZero reports whether all bytes are zero: the first one is, and every other equals the one before it.
func isZero(b []byte) bool { return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1]) }

// checkNotZero rejects a number that only blank records have.
func checkNotZero(field string, number uint64) error {
	if number == 0 {
		return fmt.Errorf("%s 0, want another: %w", field, ErrField)
	}
	return nil
}

// checkUUID prevents a zero Space from writing records that every other zero Space accepts.
func checkUUID(id UUID) error {
	if id.IsZero() {
		return fmt.Errorf("uuid %v, want one that is not zero: %w", id, ErrField)
	}
	return nil
}

func checkTime(field string, t time.Time) error {
	if !t.IsZero() && (t.Unix() < 0 || t.Unix() > maxMicros/1_000_000) {
		return fmt.Errorf("%s %v, want a time from 1970 to 9999: %w", field, t, ErrField)
	}
	return nil
}
