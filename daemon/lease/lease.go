// Package lease is a host's membership in a lockspace, as a pure state machine: how a host joins,
// keeps its lease, detects its loss, and leaves. It knows the rules of the host table. It never
// knows IO, a clock, goroutines, randomness or locks. Its inputs are events (table read, record
// written, time passed). Its outputs are actions (read the table, write my record, wake me, you
// are live, your lease is lost). The daemon drives it on a device; the tests drive the same code
// through every interleaving.
//
// All times are of one monotonic clock that continues during suspend (CLOCK_BOOTTIME), given with
// every event. A read or write counts from the event that requested it, which is before any
// driver can submit it. A slow driver therefore loses time and never gains any.
//
// Begin with [Machine.Start] and [Machine.TableRead] in event.go. The other files are:
//
//   - own id: join.go (choice), claim.go (claim), leave.go, resume.go (a new process continues a
//     lease)
//   - own lease: renew.go
//   - other hosts: reach.go (which are read), hosts.go (their state), death.go (detection of
//     deaths)
//   - statements about them: verdict.go, fence.go, evict.go; requests to them: package complaints
//
// # Short and long claim
//
// A claim writes {joining, new incarnation}, waits, reads, and if the record still stands writes
// {live}. Two short claims see each other. Short means that each write returned within c of the
// request for the read before it, with 3c between the writes. B read the record free, so it did
// before A's write returned. B's write therefore returns less than c after A's, and A looks 3c
// later. But a record may also have been overwritten without its owner's knowledge: by a claim
// slower than that, or by a write that hung. Its owner finds out by its next renewal, or at the
// end of its lease if its reads hang. A host that claims a record which may have overwritten a
// live host's record therefore takes the long claim: L + margin between its write and the look.
//
//	A (short)             B (slow)              record
//	read: free            read: free            blank
//	write joining                               A joining
//	look, write live                            A live
//	                      write lands           B joining
//	(reads hang)          waits L + margin
//	lease over            look, write live      B live
//
// Any write by which A keeps its lease beyond that landed over B's, and before B looked: B gives
// way.
//
// Which records may have overwritten a live host's?
//
//   - Blank: none was overwritten.
//   - Left: possible. Its write may have been seen while still under way and taken for free, and
//     may have landed again, or finally, after that. The exception is an incarnation that this
//     machine itself saw finished in time ([Config.Left]); see below.
//   - Joining: possible. No time proves that its author cannot continue.
//   - Live, standing still for L + margin (+ watchdog): not any more. Each host that it overwrote
//     is over too.
//
// # Ended cleanly
//
// An incarnation ended cleanly if its lease ran out, all of its writes were acknowledged, none
// failed and the last one was in time. Its record stays live but does not keep out its own
// machine ([Lost], passed as [Config.Left]). As long as the record shows that incarnation no
// other has been live since, and the short claim suffices. Any other host that takes the id
// overwrites it, and no earlier write is left that could land over that and show it again.
//
//	A, incarnation x      C, a copy of A's machine     A again                  record
//	renewal returns                                                             x.7
//	(reads hang)          sees x.7
//	lease over: Lost x
//	                                                   read: x.7, known
//	                      L + margin: read x.7
//	                      write joining                                         C joining
//	                                                   write joining (in c)     A' joining
//	                      look after 3c: gives way
//	                                                   look after 3c, live      A' live
//
// Both are short claims of a record that both have read: they see each other, as always. If C had
// been live before A returned, the record would not show x. The last renewal of x cannot have
// landed over C's. C wrote over a record that it saw stand still for L + margin, or that had a
// verdict and then waits for as long, and that renewal had returned within L. A write that
// failed, hangs or was late breaks this. Then x is not named, and the id is taken like that of
// any dead host. The holders must be over too: only a lease that expired is named, not one that a
// verdict ended before the deadline that they know.
//
// # Invariants
//
//   - SINGLE: two hosts with one id are never both live, whatever IO takes and whichever host
//     pauses.
//   - KEEP-OUT: the id of a host that has not left is taken only by its own machine, and only
//     when it is dead: its record stood still for L + margin (+ watchdog), a verdict on it was
//     read, or this machine saw it end cleanly. A reboot, which another boot id shows, is no
//     proof: the machine ids may be copies of one another. Any machine may take, the long way, an
//     id that an operator has forgotten. An abandoned id is taken by a machine that had it, under
//     policy lease, or by an operator's command.
//   - BUDGET: a claim's writes count only if they return within the budget of the claim.
//   - ONE-WRITE: the own record is never written while a write of it is under way.
//   - T0-FIRST: the lease runs from before its write was submitted.
//   - FINAL: a lease that ended stays ended, whatever is acknowledged later.
//   - LAST-CALL: no write begins once less than d is left of the lease.
//   - OWN: a lease is renewed only after a read that showed no foreign record in the own place
//     and no verdict on the own incarnation.
//   - COVERED: of two hosts that take tickets, each one's reads cover the other, even if one is
//     hidden by a claim that has overwritten its record.
//   - RAISED: reads cover a read horizon before it is published.
//   - FOUND: a published read horizon is at most headroom above an id whose record was read and
//     is not blank. Later joiners therefore find as much. Reads also cover a record that could
//     not be read, which may be blank: that is not published.
//   - UNREAD: a record that a read did not cover is not taken to stand still, or to be blank.
//   - HEARD: a host publishes verdicts only once all live hosts read its record with every renewal.
//   - DEAD: a verdict by timing is published only on a live record that stood still from a read
//     that had returned to one begun L + margin (+ watchdog) later: its lease is over, and no
//     later write revives it (FINAL). With fence-after it is F later: NOTIFICATION weakens, because
//     its holders may continue to the end of its lease (bakery/PROTOCOL.md).
//   - CUT-OFF: with policy fence, that read follows the confirmation that no write of it lands.
//   - SURE: with fence-after, a host grants locks for F - F/5 after its last renewal began.
//   - STEADY: with fence-after, no silence counts from before own IO that failed or was late.
//   - JOINERS: no time proves a joiner dead, because its claim may continue whenever its process
//     does. It does not go live under a verdict that it can read.
//   - PUBLISHED: a host acts on a death that it found only once its verdict is durable, within
//     its own lease. The verdict stands until the record of that host shows another incarnation
//     or left, or until all hosts that were live have read it and the room is needed.
//   - WISH: a host that still renews is only asked to leave, and only that host acts on it.
//   - RESUMED: an incarnation continues in a new process only on a live record of it, with no
//     verdict, within the lease that the old process is known to have had. The driver ensures
//     that the old process and its write have ended.
//   - OWN-READABLE: a term counts only if the own record was readable in the read before its
//     write, or in one after it. It begins within a budget of the read before. An owner whose
//     record stays unreadable therefore loses its lease.
//   - ABANDONED: no host is live behind a record that was unreadable in every read for the sum of
//     budget, L, margin and the longest watchdog. By OWN-READABLE its last term began within a
//     budget of the damage. Reads more than Alive apart are no such span, because the owner may
//     have repaired the record between them.
//   - QUIET: a long claim that failed is repeated only when every other host has seen its record
//     settled. Otherwise a device that is too slow for claims shows one incarnation after
//     another, and all wait for the slots of that id.
//   - VOID: an incarnation of a host is taken for over only by left or a verdict that names it,
//     or when another incarnation of the same id is settled: seen to keep its lease, or to stand
//     still for L + margin. A record that only shows another incarnation proves nothing: a claim
//     may have overwritten a live host's.
//
// With several member disks each record has a copy on each. Package members has the rules for that.
package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease/complaints"
	"github.com/bakeryd/bakeryd/daemon/lease/members"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

// The reasons of [Lost] and [Refused]; compare with errors.Is.
var (
	// ErrInUse is returned when the host id belongs to a host that is live or joining.
	ErrInUse = errors.New("the host id is in use")
	// ErrNotLeft is returned when the host id belongs to a host that is silent but has not left.
	ErrNotLeft = errors.New("the host id belongs to a host that has not left")
	// ErrUnreadable is returned when the record of the host id stays unreadable.
	ErrUnreadable = errors.New("the host record cannot be read")
	// ErrFull is returned when there is no free host id.
	ErrFull = errors.New("no host id is free")
	// ErrExpired is returned when the lease ran out unrenewed.
	ErrExpired = errors.New("the lease ran out")
	// ErrForeign is returned when the own record is not the one that this host last wrote.
	ErrForeign = errors.New("the own host record was overwritten")
	// ErrVerdict is returned when another host declared this one dead.
	ErrVerdict = errors.New("another host declared this one dead")
	// ErrSlowClaim is the reason of [Delayed] when the claim must be made the long way.
	ErrSlowClaim = errors.New("the host id is claimed the long way")
	// ErrSlowDevice is the reason of [Delayed] when IO of the claim took too long or failed.
	ErrSlowDevice = errors.New("the device was too slow for the claim of the host id")
	// ErrFar is the reason of [Delayed] when the host id is above other hosts' read horizons.
	ErrFar = errors.New("the host id is far above those in use, where other hosts look once a lease")
	// ErrOldList is the reason of [Delayed] when there is a newer list of member disks than the one in use.
	ErrOldList = errors.New("the list of member disks in use is an old one")
)

// Config configures one join of one host.
type Config struct {
	ID    int          // the host id, or 0 to choose a free one
	Hosts int          // host ids are 1..Hosts
	Times timing.Times // from the superblock

	// Self has the published fields of this host: name, machine id, boot id, watchdog, PR key.
	// With several members also the epoch of their list in use: see [Machine.Lists]. The machine sets the
	// others.
	Self layout.HostRecord

	// Incarnation returns a number that no host has used before: random in the daemon.
	Incarnation func() uint64

	// Left has the incarnations that [Left] and [Lost] named on this machine and lockspace, as
	// far as known: the last one of each id.
	Left []uint64

	Had     []int // host ids that this machine has had
	Reclaim bool  // an operator allows this machine to take the id if its record is abandoned

	Members int // number of member disks; 0 or 1: one disk, whose records have no copies

	Policy layout.Policy // from the superblock: the condition for declaring a silent host dead
	Resume *Term         // continue this lease, if it still stands; nil: join with a new incarnation
}

// Copy is what one member disk returned for a host record.
type Copy = members.Copy

// Record is the result of one read of one host record.
type Record struct {
	layout.HostRecord
	Err    error  // why the record is unreadable; the other fields then have no meaning
	Copies []Copy // with several members the driver gives only these, one of each
}

// phase is the stage of a machine.
type phase uint8

const (
	idle     phase = iota // before Start
	looking               // searching for an id, or checking the given one
	claiming              // joining was or is being written; the claim waits, then looks
	entering              // live is being written
	live
	leaving
	over
)

// Machine is one join of one host. It is not safe for concurrent use.
type Machine struct {
	cfg Config
	t   timing.Times

	now   time.Duration
	out   []Action
	phase phase
	timer time.Duration // when to read next, or when the claim's wait is over

	reading      bool
	readAt       time.Duration // time of the request for the last read
	extent       int           // number of records in that read
	listed       uint64        // with several members, the newest epoch of their list that was read
	sweptAt      time.Duration // time of the request for the last whole read that returned
	joinersUntil time.Duration // end of the time in which other hosts are expected to join
	floor        uint64        // the read must show at least this own sequence
	again        bool          // Refresh came while a read was under way
	failed       bool          // IO has failed since the last read that returned
	writing      bool
	writeAt      time.Duration // time of the request for the last write
	own          layout.HostRecord
	acked        uint64 // sequence of the last acknowledged write
	spent        []uint64
	clean        bool          // no write of this incarnation has failed or was acknowledged too late
	takenOver    bool          // resumed, and not renewed yet: holders may know a later deadline
	stands       time.Duration // time since which a record of this incarnation is known to be on the disk; -1: not yet

	// Joining.
	id      int
	long    bool          // claim the long way
	watch   time.Duration // start of the watch on the id; -1: not yet
	blind   time.Duration // time since which its record is unreadable; -1: readable
	looked  time.Duration // time of the request for the read before the claim's write
	tried   []bool        // ids lost to other hosts
	delayed bool          // Delayed was returned
	wrote   time.Duration // when the last write of a claim of this id returned; -1: none
	rewrote bool          // this machine has claimed an abandoned record of this id
	counted []int         // members that had acknowledged the claim when it was complete
	stirred bool          // one change of the record since watch was not taken for a renewal
	trodden bool          // an earlier host with this id took tickets: all reads cover the id since

	// Live.
	t0          time.Duration
	term0       time.Duration // start of the term that the last write will begin
	unseen      bool          // the last write followed a read of an unreadable own record, and no later read has shown the record
	held        bool          // there was a lease
	ready       bool
	readHorizon int
	proven      int // the part of it to publish: above a record that was read (FOUND)
	shown       int // the part of it that is known to be on the disk
	hosts       []Host

	// Others.
	verdicts    []verdict   // in the own record, or waiting for its next write
	unpublished bool        // they differ from those that are durable
	statements  []statement // verdicts to publish after a fresh read
	asked       bool        // Asked was returned
	term        *Term       // lease to continue

	members *members.Table // nil with one disk

	complaints complaints.List

	// Leaving.
	giveUp time.Duration // end of leaving without a lease
}

// New returns a machine that waits for [Machine.Start]. It panics on a Config that no superblock can
// cause: a programmer's error.
func New(cfg Config) *Machine {
	if cfg.ID < 0 || cfg.ID > cfg.Hosts || !cfg.Times.Valid(cfg.Policy) {
		panic(fmt.Sprintf("lease: impossible config %+v", cfg))
	}
	return &Machine{
		cfg: cfg, t: cfg.Times, id: cfg.ID,
		watch: -1, blind: -1, stands: -1, wrote: -1, term: cfg.Resume,
		tried:   make([]bool, cfg.Hosts),
		hosts:   make([]Host, cfg.Hosts),
		members: members.New(cfg.Hosts, cfg.Members),
	}
}
