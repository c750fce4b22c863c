// Package counter is the data that a lock guards in the lab: a counter on a disk, which each
// critical section increments, and each host's notes of its sections on the same disk. From both
// [Check] determines whether sections overlapped.
//
// It knows nothing of locks, hosts or time; it reads and writes sectors of 512 bytes. Begin with
// [Section], which runs under the lock, and with [Check].
package counter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// The layout:
//
//	0              the counter, one sector
//	h * NotesSize  notes of host h, from 1: one sector each, in order
const (
	SectorSize = 512
	NotesSize  = 1 << 20
	mostNotes  = NotesSize / SectorSize
)

// Counter is the content of the counter's sector. All zeroes: never written.
//
//	0..7    magic       16..23  count         32..35  host
//	8..15   token       24..31  1: a section is under way
//	508..511 CRC32C of what is before
type Counter struct {
	Token uint64 // of the section that wrote it
	Count uint64
	Open  bool // the section runs, and has not incremented it yet
	Host  int
}

// note is a host's note of a section: one at its begin, and one at its end or when it was not
// alone.
//
//	0..7    magic            24..31  count that it found, or left
//	8..15   token            32..35  host
//	16..23  token found      36..39  kind
//	508..511 CRC32C of what is before
type note struct {
	token, found, count uint64
	host                int
	kind                kind
}

type kind uint32

const (
	began    kind = iota
	ended         // and left the counter so
	intruded      // and found its mark on the counter changed
)

const (
	counterMagic = 0x746e756f636d76 // "vmcount"
	noteMagic    = 0x65746f6e6d76   // "vmnote"
	sumAt        = SectorSize - 4
)

var (
	errBlank   = errors.New("never written")
	errDamaged = errors.New("neither a record nor empty")

	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	zeroes     = make([]byte, SectorSize)
)

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func (c Counter) encode(p []byte) {
	clear(p)
	le.PutUint64(p, counterMagic)
	le.PutUint64(p[8:], c.Token)
	le.PutUint64(p[16:], c.Count)
	le.PutUint64(p[24:], flag(c.Open))
	le.PutUint32(p[32:], uint32(c.Host))
	seal(p)
}

func (n note) encode(p []byte) {
	clear(p)
	le.PutUint64(p, noteMagic)
	le.PutUint64(p[8:], n.token)
	le.PutUint64(p[16:], n.found)
	le.PutUint64(p[24:], n.count)
	le.PutUint32(p[32:], uint32(n.host))
	le.PutUint32(p[36:], uint32(n.kind))
	seal(p)
}

func seal(p []byte) { le.PutUint32(p[sumAt:], crc32.Checksum(p[:sumAt], castagnoli)) }

// open returns errBlank or errDamaged if p has no record.
func open(p []byte, magic uint64) error {
	switch {
	case bytes.Equal(p, zeroes):
		return errBlank
	case le.Uint64(p) != magic, le.Uint32(p[sumAt:]) != crc32.Checksum(p[:sumAt], castagnoli):
		return errDamaged
	}
	return nil
}

func decodeCounter(p []byte) (Counter, error) {
	switch err := open(p, counterMagic); err {
	case errBlank:
		return Counter{}, nil
	case nil:
		return Counter{Token: le.Uint64(p[8:]), Count: le.Uint64(p[16:]), Open: le.Uint64(p[24:]) == 1, Host: int(le.Uint32(p[32:]))}, nil
	default:
		return Counter{}, err
	}
}

func decodeNote(p []byte) (note, error) {
	if err := open(p, noteMagic); err != nil {
		return note{}, err
	}
	return note{token: le.Uint64(p[8:]), found: le.Uint64(p[16:]), count: le.Uint64(p[24:]),
		host: int(le.Uint32(p[32:])), kind: kind(le.Uint32(p[36:]))}, nil
}
