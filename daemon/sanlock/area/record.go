package area

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// A record is at the beginning of its area, and the rest of its sector is zero. Its numbers are little-endian. The
// header is that of the records of package layout, so that a tool for those recognizes this one.
//
//	bytes   | field
//	--------|------------------------------------------------------------------------------
//	  0 - 3 | magic: BKAR
//	  4 - 5 | format version: 1
//	  6     | kind: 1 lockspace, 2 resource
//	  7     | reserved, zero
//	  8 -11 | checksum: CRC-32C of bytes 0-511, with these four taken as zero
//	 12 -15 | flags: one ALIGN flag and one SECTOR flag of sanlock
//	 16 -23 | address: the offset of the area on its device or in its file
//	 24 -39 | uuid of the bakery lockspace, in the order in which it is printed
//	 40 -47 | nonce
//	 48 -51 | io_timeout in seconds, as the caller gave it
//	 52 -99 | name of sanlock's lockspace, with zeroes after it
//	100-147 | name of the resource, with zeroes after it
//	148-155 | lver of a resource, 0 while it is not kept
//	156-511 | reserved, zero
const (
	atVersion   = 4
	atKind      = 6
	atChecksum  = 8
	atFlags     = 12
	atAddress   = 16
	atUUID      = 24
	atNonce     = 40
	atTimeout   = 48
	atLockspace = 52
	atName      = 100
	atLver      = 148
	atReserved  = 156
	recordSize  = 512

	magic   = "BKAR"
	version = 1
	maxName = atName - atLockspace
)

// The numbers with which records of a real sanlock begin.
const (
	sanlockLockspace = 0x12212010
	sanlockResource  = 0x06152010
	sanlockIndex     = 0x01042018
	sanlockCleared   = 0x11282016 // a resource that was cleared
)

var le = binary.LittleEndian

// encode writes a record to buf, and zeroes the rest of it.
func encode(buf []byte, r Record, address uint64) {
	clear(buf)
	copy(buf, magic)
	le.PutUint16(buf[atVersion:], version)
	buf[atKind] = byte(r.Kind)
	le.PutUint32(buf[atFlags:], r.Flags)
	le.PutUint64(buf[atAddress:], address)
	copy(buf[atUUID:], r.UUID[:])
	le.PutUint64(buf[atNonce:], r.Nonce)
	le.PutUint32(buf[atTimeout:], r.IOTimeout)
	copy(buf[atLockspace:atName], r.Lockspace)
	copy(buf[atName:atLver], r.Name)
	le.PutUint64(buf[atLver:], r.Lver)
	le.PutUint32(buf[atChecksum:], checksum(buf))
}

// decode returns the record of an area. It compares neither names nor the uuid.
func decode(buf []byte, kind Kind, address uint64) (Record, error) {
	if err := recognize(buf); err != nil {
		return Record{}, err
	}
	r := Record{
		Kind: Kind(buf[atKind]), Flags: le.Uint32(buf[atFlags:]), IOTimeout: le.Uint32(buf[atTimeout:]),
		UUID: layout.UUID(buf[atUUID:atNonce]), Nonce: le.Uint64(buf[atNonce:]),
		Lockspace: name(buf[atLockspace:atName]), Name: name(buf[atName:atLver]), Lver: le.Uint64(buf[atLver:]),
	}
	if found := le.Uint64(buf[atAddress:]); found != address {
		return Record{}, failure(codeChecksum, "the record was written for offset %d; write it again", found)
	}
	if flags, err := valid(r.Flags); err != nil || flags == 0 || flags != r.Flags {
		return Record{}, failure(codeSectorSize, "the record has flags %#x, want one ALIGN flag and one SECTOR flag; write it again", r.Flags)
	}
	again := make([]byte, recordSize)
	if encode(again, r, address); !bytes.Equal(again, buf[:recordSize]) || r.check() != nil {
		return Record{}, failure(codeChecksum, "the record has an invalid field; write it again")
	}
	if r.Kind != kind {
		return Record{}, failure(codeMagic, "it is of %v, want a %v; check the path and the offset", r, kind)
	}
	return r, nil
}

// recognize checks that buf begins with an intact record, and names what it has instead.
func recognize(buf []byte) error {
	const write = "write the area first (bakeryd does, when a client asks for it)"
	switch number := le.Uint32(buf); {
	case string(buf[:atVersion]) == magic:
	case number == sanlockLockspace, number == sanlockResource, number == sanlockIndex:
		return failure(codeMagic, "it belongs to sanlock, and both must never serve one area: "+
			"stop sanlock on all hosts that use it, then write the area by bakeryd")
	case number == sanlockCleared || isZero(buf[:recordSize]):
		return failure(codeMagic, "it has no record: %s", write)
	default:
		return failure(codeMagic, "it begins with %q, which neither bakeryd nor sanlock writes: check the path and the offset, or %s",
			buf[:8], write)
	}
	if found := le.Uint16(buf[atVersion:]); found != version {
		return failure(codeVersion, "the record has format version %d, want %d: run the same release of bakeryd on all hosts", found, version)
	}
	if found, want := le.Uint32(buf[atChecksum:]), checksum(buf); found != want {
		return failure(codeChecksum, "the record is damaged (checksum %#08x, want %#08x); write it again", found, want)
	}
	return nil
}

// check returns an error for a record that cannot be written.
func (r Record) check() error {
	if r.Kind != Resource && (r.Kind != Lockspace || r.Name != "") {
		return failure(codeFlags, "kind %d with name %q, want 1 without a name, or 2", r.Kind, r.Name)
	}
	for _, text := range []string{r.Lockspace, r.Name} {
		if len(text) > maxName || bytes.IndexByte([]byte(text), 0) >= 0 {
			return failure(codeFlags, "name %q, want at most %d bytes, none of them zero", text, maxName)
		}
	}
	return nil
}

func name(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(record []byte) uint32 {
	sum := crc32.Update(0, castagnoli, record[:atChecksum])
	sum = crc32.Update(sum, castagnoli, make([]byte, atFlags-atChecksum))
	return crc32.Update(sum, castagnoli, record[atFlags:recordSize])
}

// String returns the names of a record for a message.
func (r Record) String() string {
	if r.Kind == Lockspace {
		return "lockspace " + text.Printable(r.Lockspace)
	}
	return "resource " + text.Printable(r.Name) + " of lockspace " + text.Printable(r.Lockspace)
}

// The ALIGN and SECTOR flags of sanlock are the same for lockspaces and resources.
const (
	align1M, align8M    = 0x10, 0x80
	sector512, sector4K = 0x100, 0x200
)

// valid returns the ALIGN and SECTOR flags among flags: the smallest of each, as for sanlock, or neither.
func valid(flags uint32) (uint32, error) {
	lowest := func(flags uint32) uint32 { return flags & -flags }
	align, sector := lowest(flags&(align8M|align8M/2|align8M/4|align1M)), lowest(flags&(sector512|sector4K))
	if both := align | sector; both == 0 || both == align1M|sector512 || align != 0 && sector == sector4K {
		return both, nil
	}
	return 0, failure(codeFlags, "ALIGN and SECTOR flags %#x: set neither, 1M with 512, or 1M, 2M, 4M or 8M with 4K", flags)
}

// defaultFlags returns the flags for a device by the size of its sectors.
func defaultFlags(sector int) (uint32, error) {
	switch sector {
	case 512:
		return align1M | sector512, nil
	case 4096:
		return align8M | sector4K, nil
	}
	return 0, failure(codeFlags, "it has sectors of %d bytes; use a device with 512 or 4096", sector)
}

func alignOf(flags uint32) int { return int(flags&(align8M|align8M/2|align8M/4|align1M)) << 16 }

// sectorOf returns 4096 if flags are 0: a read of both sizes of sectors has the record.
func sectorOf(flags uint32) int {
	if flags&sector512 != 0 {
		return 512
	}
	return 4096
}
