package area

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
)

// onDisk is the record at the beginning of an area; zeroes follow it in its sector. Its numbers are
// little-endian. The header is that of the records of package layout, so that a tool for those
// recognizes this one.
type onDisk struct {
	Magic     [4]byte   //   0-3    BKAR
	Version   uint16    //   4-5    format version: 1
	Kind      Kind      //   6      1 lockspace, 2 resource
	_         uint8     //   7      zero
	Checksum  uint32    //   8-11   CRC-32C of bytes 0-511, with these four taken as zero
	Flags     uint32    //  12-15   one ALIGN flag and one SECTOR flag of sanlock
	Address   uint64    //  16-23   offset of the area on its device or in its file
	UUID      [16]byte  //  24-39   of the bakery lockspace, in the order in which it is printed
	Nonce     uint64    //  40-47   random
	IOTimeout uint32    //  48-51   in seconds, as the caller gave it
	Lockspace [48]byte  //  52-99   name of sanlock's lockspace, with zeroes after it
	Name      [48]byte  // 100-147  name of the resource, with zeroes after it
	Lver      uint64    // 148-155  version of a resource, 0 while it is not kept
	_         [356]byte // 156-511  zero
}

const (
	sectorSize = 512
	maxName    = len(onDisk{}.Name)
	version    = 1
	checksumAt = 8
)

// The numbers with which records of a real sanlock begin.
const (
	sanlockLockspace = 0x12212010
	sanlockResource  = 0x06152010
	sanlockIndex     = 0x01042018
	sanlockCleared   = 0x11282016 // a resource that was cleared
)

var (
	le    = binary.LittleEndian
	magic = [4]byte{'B', 'K', 'A', 'R'}
)

// encode writes a record to buf, and zeroes the rest of it.
func encode(buf []byte, r Record, address uint64) error {
	switch {
	case r.Kind != Resource && (r.Kind != Lockspace || r.Name != ""):
		return failure(codeFlags, "kind %d with name %q, want 1 without a name, or 2", r.Kind, r.Name)
	case max(len(r.Lockspace), len(r.Name)) > maxName || strings.Contains(r.Lockspace+r.Name, "\x00"):
		return failure(codeFlags, "names %q and %q, want at most %d bytes each, none of them zero", r.Lockspace, r.Name, maxName)
	}
	s := onDisk{Magic: magic, Version: version, Kind: r.Kind, Flags: r.Flags, Address: address, UUID: r.UUID,
		Nonce: r.Nonce, IOTimeout: r.IOTimeout, Lver: r.Lver}
	copy(s.Lockspace[:], r.Lockspace)
	copy(s.Name[:], r.Name)
	clear(buf)
	_, err := binary.Encode(buf, le, s)
	le.PutUint32(buf[checksumAt:], checksum(buf))
	return err
}

// decode returns the record of an area. It compares neither names nor the uuid.
func decode(buf []byte, kind Kind, address uint64) (r Record, err error) {
	var s onDisk
	if _, err := binary.Decode(buf, le, &s); err != nil {
		return r, err
	}
	switch sum := checksum(buf); {
	case s.Magic != magic:
		return r, foreign(buf)
	case s.Version != version:
		return r, failure(codeVersion, "the record has format version %d, want %d: run the same release of bakeryd on all hosts", s.Version, version)
	case s.Checksum != sum:
		return r, failure(codeChecksum, "the record is damaged (checksum %#08x, want %#08x); write it again", s.Checksum, sum)
	case s.Address != address:
		return r, failure(codeChecksum, "the record was written for offset %d; write it again", s.Address)
	}
	if flags, err := valid(s.Flags); err != nil || flags == 0 || flags != s.Flags {
		return r, failure(codeSectorSize, "the record has flags %#x, want one ALIGN flag and one SECTOR flag; write it again", s.Flags)
	}
	r = Record{Kind: s.Kind, Flags: s.Flags, IOTimeout: s.IOTimeout, UUID: s.UUID, Nonce: s.Nonce, Lver: s.Lver,
		Lockspace: untilZero(s.Lockspace[:]), Name: untilZero(s.Name[:])}
	again := make([]byte, sectorSize)
	if err := encode(again, r, address); err != nil || !bytes.Equal(again, buf[:sectorSize]) {
		return Record{}, failure(codeChecksum, "the record has an invalid field; write it again")
	}
	if r.Kind != kind {
		return Record{}, failure(codeMagic, "it has a record of kind %d (lockspace %q, resource %q), want kind %d; check the path and the offset",
			r.Kind, r.Lockspace, r.Name, kind)
	}
	return r, nil
}

// foreign returns an error that names what an area has instead of a record.
func foreign(buf []byte) error {
	switch number := le.Uint32(buf); {
	case number == sanlockLockspace, number == sanlockResource, number == sanlockIndex:
		return failure(codeMagic, "it belongs to sanlock, and both must never serve one area: "+
			"stop sanlock on all hosts that use it, then initialize the area with bakeryd")
	case number == sanlockCleared, len(bytes.Trim(buf[:sectorSize], "\x00")) == 0:
		return failure(codeMagic, "it has no record; initialize it first")
	}
	return failure(codeMagic, "it begins with %q, which is of neither bakeryd nor sanlock: check the path and the offset, or initialize it", buf[:8])
}

func untilZero(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

func checksum(record []byte) uint32 {
	castagnoli := crc32.MakeTable(crc32.Castagnoli) // made once, on first use
	sum := crc32.Update(0, castagnoli, record[:checksumAt])
	sum = crc32.Update(sum, castagnoli, make([]byte, 4))
	return crc32.Update(sum, castagnoli, record[checksumAt+4:sectorSize])
}

// The flags of sanlock are the same for lockspaces and resources.
const (
	aligns, align1M, align8M     = 0x0f0, 0x010, 0x080
	sectors, sector512, sector4K = 0x300, 0x100, 0x200
)

// valid returns the ALIGN and SECTOR flags among flags: the smallest of each, as for sanlock, or
// neither.
func valid(flags uint32) (uint32, error) {
	align, size := flags&aligns, flags&sectors
	both := align&-align | size&-size
	if both == 0 || both == align1M|sector512 || align != 0 && both&sectors == sector4K {
		return both, nil
	}
	return 0, failure(codeFlags, "ALIGN and SECTOR flags %#x: set neither, 1M with 512, or 1M, 2M, 4M or 8M with 4K", flags)
}

// defaultFlags returns the flags for a device by the size of its sectors.
func defaultFlags(size int) (uint32, error) {
	switch size {
	case 512:
		return align1M | sector512, nil
	case 4096:
		return align8M | sector4K, nil
	}
	return 0, failure(codeFlags, "it has sectors of %d bytes; use a device with 512 or 4096", size)
}

func alignOf(flags uint32) int64 { return int64(flags&aligns) << 16 }

// sectorOf returns 4096 if flags are 0: a read of that size has the record also of a smaller
// sector.
func sectorOf(flags uint32) int {
	if flags&sector512 != 0 {
		return 512
	}
	return 4096
}
