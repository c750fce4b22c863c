// Package layout is the on-disk format: it knows the records, where on the device each of them lies, and
// how they are identified and summed. FORMAT.md beside this file states the same for readers in any language.
//
// It never does IO, never reads a clock, never draws a random number, and never decides what a record means
// for a lock or a lease: that is the business of packages bakery and daemon.
//
// Begin reading with [Geometry], which gives every record its address; header.go holds what all records
// share; [Slot] is the record that the lock protocol lives in. A [Space] encodes and decodes the records of
// one lockspace; it comes from its [Superblock], which [FindSuperblock] finds on a device.
package layout

import "errors"

const (
	// RecordSize is the length of every record. It occupies the first bytes of its stride; what follows
	// is written as zero and ignored when read, so that a torn tail cannot matter.
	RecordSize = 512

	// Version is the format version that this package writes, and the only one that it reads.
	Version = 1
)

var (
	// ErrShort is returned when a buffer is too short to hold a record.
	ErrShort = errors.New("buffer too short")

	// ErrVirgin is returned when a superblock is looked for on a device that holds nothing but zeroes.
	ErrVirgin = errors.New("never formatted")

	// ErrMagic is returned when a sector holds something else than the type of record looked for.
	ErrMagic = errors.New("not such a record")

	// ErrVersion is returned when a record has a format version that this package does not know.
	ErrVersion = errors.New("unknown format version")

	// ErrChecksum is returned when a record is damaged: torn, half written, or with flipped bits.
	ErrChecksum = errors.New("damaged record")

	// ErrIdentity is returned when a record is sound but belongs elsewhere: to another lockspace, another
	// address, another host or another lock.
	ErrIdentity = errors.New("record belongs elsewhere")

	// ErrField is returned when a field has a value that the format does not allow, by encoding and
	// decoding alike.
	ErrField = errors.New("value not allowed")
)
