// Package mirror makes one device of 3 or 5 member disks. It works while a majority of them does.
//
// It knows records: blocks of one size, the stride, each with one writer at a time and a version
// that only grows. It never knows what else is in a record (see [Codec]), or which host may write
// it. A lockspace on one disk does not use it.
//
// Begin with [Open]. register.go and poll.go decide, without goroutines and IO. read.go, write.go
// and member.go carry that out.
//
// # Invariants
//
// A record is a regular register: a read returns the last version whose write had returned when
// the read began, or a later one. This rests on:
//
//   - MAJORITY: a write returns nil once a majority of the members acknowledged its version or a
//     later one. It returns an error once that is impossible.
//   - VALID: a read takes the greatest version of a majority of valid copies. A damaged copy is no
//     copy. The majority is counted for each record, not for each disk.
//   - FIFO: a record has one write in flight on each member. A copy waits for the one before it, also
//     for that of an earlier process of the host, or of an earlier term of this one (see [Member]).
//   - NEWEST: of the contents that wait for a member, only the newest is kept. A write that failed
//     is not repeated over newer content.
//   - UNKNOWN: after a write failed, the copy there counts as not acknowledged until a later write
//     returned.
//   - IDENTITY: a member is read and written only after its check passed. After an error, and after a look
//     that did not pass, it is checked again. An answer to a read from before that check counts for nothing. If
//     the check does not pass, a read that counted an answer from before it, and has not returned, is repeated.
//   - HUNG: an answer that ends a silence of more than [Options.Hung] counts only after the check of its member
//     passed again, and so does each answer that returns before that: a target that restarts with an empty
//     disk answers the requests that hung, without an error.
//   - SAME-DISK: no disk is two members. A replaced disk is none until its requests returned.
//   - REPLACED: after [Set.Replace] nothing that the disk before returned or returns counts. A write that has
//     not returned loses its acknowledgement, and a read that has not returned is repeated. The new disk gets
//     the newest content of a record that any member lacks, as the caller may not have found that.
//   - VACANT: while a position is vacant, a copy in flight to the disk before counts as in flight. Another host may
//     not know yet that it is no member.
//
// Assumed of each member: a write that failed does not land after a later write of the same
// host to the same record has returned, also if that is one of its next process. Assumed of the
// caller: a record gets another writer only when the one before has no copy of it in flight (see
// [Set.Drop]). A new disk has what [Set.Replace] says, and when it is the member, no host uses the
// one before.
package mirror

import (
	"errors"
	"math/bits"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
)

// maxMembers is the greatest number of member disks.
const maxMembers = 5

// Version orders the contents of a record. The zero Version is that of a block of zeroes that was
// never written.
type Version struct{ Epoch, Counter uint64 }

// Less reports whether v is older than w.
func (v Version) Less(w Version) bool {
	return v.Epoch < w.Epoch || v.Epoch == w.Epoch && v.Counter < w.Counter
}

// Codec knows the records. Its methods may be called concurrently.
type Codec interface {
	// Version returns the version of the record in a block that was read at off from the member
	// at a position. It returns an error if that is no valid record of this set, address and
	// position. A block of zeroes is valid, and has the zero Version. A read of the set returns
	// the block of any position.
	Version(block []byte, off int64, position int) (Version, error)

	// Place makes a record the copy for the member at a position.
	Place(block []byte, position int)
}

// Member is one of the disks.
type Member struct {
	Name string // for errors, usually the path

	// Open opens the disk, and locks what the caller writes there (blockdev.Disk.Lock): FIFO
	// includes the requests of an earlier process, and of an earlier set of this one. It is called
	// again, with pauses, after the disk was missing or failed.
	Open func() (blockdev.Device, error)

	ID [16]byte // of the disk, for Status; zero if the position is vacant: Open returns an error
}

// Options configure Open.
type Options struct {
	Stride int   // size of a record, a multiple of the logical block of every member
	Size   int64 // size of the set, a multiple of Stride; no member may be smaller
	Codec  Codec

	ReadOnly bool // the members are opened for reading only

	// Check returns an error if dev is not the disk at the position: if its superblock does not
	// name the set and the position, or if it lost what this process had written there. It must
	// not use the set, except for Set.Kept. It may still run for a disk that was replaced.
	Check func(position int, dev blockdev.Device) error

	// Look is the part of Check that costs little. It is called every lookEvery for a member that is up: a disk
	// that was overwritten returns no error, and reads may never wait for it. It may use what Check may use.
	// nil if not needed.
	Look func(position int, dev blockdev.Device) error

	// Changed is called, in a goroutine, after members changed or their state; nil if not needed.
	Changed func()

	// Timeout limits how long Open and Close wait for members that the majority can do without.
	Timeout time.Duration

	// Patience limits how long a read waits for members beyond a majority.
	Patience time.Duration

	// RecordPatience is the same for a record without a majority of valid copies among those that were read.
	// Such a record may be damaged on one disk, and fine on the slowest. Not below Patience.
	RecordPatience time.Duration

	// Hung is how long a member may give no answer, while a request is in flight there, before it is checked
	// again: HUNG. 0: any time.
	Hung time.Duration

	// Retry is the pause before a failed disk is opened again, and before a failed copy is
	// written again.
	Retry time.Duration
}

var (
	// ErrNoMajority is returned when the members that did not fail are no majority. It comes with
	// the errors of the others.
	ErrNoMajority = errors.New("no majority of the member disks")

	// ErrSameDisk is returned when two members are the same disk.
	ErrSameDisk = errors.New("two members are the same disk")

	// ErrOlder is returned by a write of a version below one that was written before.
	ErrOlder = errors.New("older than the version that was written before")

	// ErrInFlight is returned by Close when a member hangs.
	ErrInFlight = errors.New("requests are in flight")

	// ErrDropped is returned when the copies of a write were dropped before they were begun.
	ErrDropped = errors.New("dropped before it was begun")
)

// Positions is a set of members. Bit i is the member at position i.
type Positions uint8

// At returns the set of the member at a position.
func At(position int) Positions { return 1 << position }

// Has reports whether the member at a position is in the set.
func (ps Positions) Has(position int) bool { return ps&At(position) != 0 }

// Count returns the number of members.
func (ps Positions) Count() int { return bits.OnesCount8(uint8(ps)) }
