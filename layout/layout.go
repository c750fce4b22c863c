// Package layout is the on-disk format. It knows the records, their addresses on the device,
// their identities and their checksums. FORMAT.md in this directory specifies the same for
// readers in any language.
//
// It never does IO, reads a clock or draws a random number. It never decides what a record means
// for a lock or a lease: packages bakery and daemon do.
//
// Begin with [Geometry], which gives every record its address. header.go has the fields that all
// records share; codec.go reads and writes the others. [Slot] is the record of the lock protocol. A
// [Space] encodes and decodes the records of one lockspace. It comes from its [Superblock], which
// [FindSuperblock] finds on a device.
package layout

import "errors"

const (
	// RecordSize is the length of every record. A record occupies the first bytes of its stride.
	// The rest is written as zero and ignored when read, so that a torn tail has no effect.
	RecordSize = 512

	// Version is the format version of a lockspace on one disk, VersionSeveral that of one on several.
	// This package reads and writes both, and no other.
	Version        = 1
	VersionSeveral = 2
)

var (
	// ErrShort is returned when a buffer is too short to hold a record.
	ErrShort = errors.New("buffer too short")

	// ErrBlank is returned when the place of a superblock is all zeroes.
	ErrBlank = errors.New("never formatted")

	// ErrMagic is returned when a sector does not hold the expected type of record.
	ErrMagic = errors.New("not such a record")

	// ErrVersion is returned when a record has a format version that this package does not know.
	ErrVersion = errors.New("unknown format version")

	// ErrChecksum is returned when a record is damaged: torn, half written, or with flipped bits.
	ErrChecksum = errors.New("damaged record")

	// ErrIdentity is returned when a record is intact but belongs to another lockspace, address,
	// host or lock.
	ErrIdentity = errors.New("record belongs elsewhere")

	// ErrField is returned when a field has a value that the format does not allow, by encoding
	// and decoding alike.
	ErrField = errors.New("value not allowed")
)
