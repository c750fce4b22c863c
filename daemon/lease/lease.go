// Package lease is a host's membership in a lockspace, as a pure state machine: how it joins, keeps its lease,
// learns that it has lost it, and leaves. It knows the rules of the host table. It never knows IO, a clock,
// goroutines, randomness or locks: its inputs are events (table read, record written, time passed), its outputs
// are actions (read the table, write my record, wake me, you are live, your lease is lost). The daemon drives it
// on a device; the tests drive the same code through every interleaving.
//
// All times are of one monotonic clock that goes on through suspend (CLOCK_BOOTTIME), given with every event.
// A read or write counts from the event that asked for it: earlier than any driver can submit it, so that a slow
// driver loses time and never gains any.
//
// Begin with [Machine.Start] and [Machine.TableRead] in event.go; how an id is chosen is in join.go, how it is claimed in
// claim.go, the lease in renew.go, how far reads go in reach.go, what is known of the other hosts in hosts.go; how they
// are found dead in death.go, what is said of them in verdict.go, fence.go and evict.go, what is asked of them in
// complain.go; how a new process goes on with a lease in resume.go.
//
// # Short and long claim
//
// A claim writes {joining, new incarnation}, waits, reads, and if the record still stands writes {live}. Two
// claims that are both short (each write returned within c of the asking for the read before it, and 3c between
// them) see each other: B read the record free, so it did before A's write returned; so B's write returns
// less than c after A's, and A looks 3c later. But
// a record may also have been overwritten behind its owner's back: by a claim slower than that, or by a write that
// hung. Its owner finds out by its next renewal, or at the end of its lease if its reads hang. So whoever meets a
// record that may have overwritten a live host's takes the long claim: L + margin between its write and the look.
//
//	A (short)             B (slow)              record
//	read: free            read: free            virgin
//	write joining                               A joining
//	look, write live                            A live
//	                      write lands           B joining
//	(reads hang)          waits L + margin
//	lease over            look, write live      B live
//
// Any write by which A keeps its lease beyond that landed on top of B's, and before B looked: B gives way.
// A virgin record has overwritten nothing. One that says left may: its write may have been seen while still under
// way, taken for free, and landed again or at last after that. Only what this machine itself
// saw finished in time ([Config.Left]) cannot; see below. One that says joining is no proof that the one who wrote it
// cannot go on, however long it stood. One that says live and stood still for L + margin (+ watchdog) can not, and whom
// it had overwritten is over too.
//
// # Ended cleanly
//
// A lease that ran out, all of its writes acknowledged, none failed and the last one in time, leaves a record live that
// is no obstacle to its own machine ([Lost], given back as [Config.Left]): as long as it shows that incarnation nobody
// has been live since, and the short claim will do. For whoever else takes the id writes over it, and nothing of it is
// left that could land on top of that and show it again.
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
// Both are short claims of a record that both have read: they see each other, as ever. Had C been live before A came
// back, the record would not show x. The last renewal of x cannot have landed on top of C's: C wrote over what it saw
// stand still for L + margin, or after a verdict waits for as long, and that renewal had returned within L. A write
// that failed or hangs, or was late, breaks this; then x is not named, and the id is taken as that of any dead host.
// That holders are over is part of it: only a lease that expired is named, not one that a verdict ended before the
// deadline that they know.
//
// # Invariants
//
//   - SINGLE: two hosts given one id are never both live, whatever IO takes and whoever pauses.
//   - KEEP-OUT: the id of a host that has not left is taken only by its own machine, and only when it is dead:
//     its record stood still for L + margin (+ watchdog), a verdict on it was read, or this machine saw it end cleanly.
//     A reboot, which another boot id tells of, is no proof: the machine ids may be copies of one another. Anybody may
//     take, the long way, what an operator has forgotten. An abandoned id is taken by a machine that had it, under policy
//     lease, or by an operator's word.
//   - BUDGET: a claim's writes count only if they return within the budget of the claim.
//   - ONE-WRITE: the own record is never written while a write of it is under way.
//   - T0-FIRST: the lease runs from before its write was submitted.
//   - FINAL: a lease that ended stays ended, whatever is acknowledged later.
//   - LAST-CALL: nothing is written once less than d is left of the lease.
//   - OWN: a lease is renewed only after a read that showed no foreign record in the own place and no verdict on
//     the own incarnation.
//   - COVERED: of two hosts that take tickets, each one's reads cover the other, even if one is hidden by a claim
//     that has overwritten its record.
//   - RAISED: reads cover what is published before it is published.
//   - FOUND: what is published as highest is at most headroom above an id whose record was read and is not virgin. So
//     who looks later finds as much. Reads also cover a record that could not be read, which may be virgin: that is not
//     published.
//   - UNREAD: nothing is concluded of a record that a read did not cover: not that it stands still, nor that it is virgin.
//   - HEARD: nobody says anything of other hosts before all who are live read its record with every renewal.
//   - DEAD: a verdict by timing is published on a live record only, which stood still from a read that had returned
//     to one begun L + margin (+ watchdog) later: its lease is over, and no later write revives it (FINAL).
//   - JOINERS: no time proves a joiner dead, for its claim may go on whenever its process does. It does not go live
//     under a verdict that it can read.
//   - PUBLISHED: nobody acts on a death of its own finding before its verdict is durable, within its own lease. The
//     verdict stands until the record that it speaks of shows another incarnation or left, or until all who were live
//     have read it and the room is needed.
//   - WISH: a host that still renews is only asked to leave, and nobody but that host acts on it.
//   - RESUMED: an incarnation goes on in a new process only on a live record of it, with no verdict, within the lease
//     that the old one is known to have had. That the old one has ended, its write with it, is the driver's to see to.
//   - OWN-READABLE: a term counts only if the own record was readable in the read before its write, or in one after it.
//     It begins within a budget of the read before. So an owner whose record stays unreadable loses its lease.
//   - ABANDONED: nobody is live behind a record that was unreadable in every read for budget + L + margin + the longest
//     watchdog. By OWN-READABLE its last term began within a budget of the damage. Reads more than Alive apart are no
//     such span, for the owner may have repaired the record between them.
//   - QUIET: a long claim that failed is repeated only when every other host has seen its record settled. Else a device
//     that is too slow for claims shows one incarnation after another, and all wait for the slots of that id.
//   - VOID: an incarnation of a host is taken for over only by left or a verdict that names it, or when another
//     incarnation of the same id is settled: seen to keep its lease, or to stand still for L + margin. That a record
//     merely shows another incarnation proves nothing: a claim may have overwritten a live host's.
package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// The reasons of [Lost] and [Refused]; compare with errors.Is.
var (
	// ErrInUse is returned when the host id belongs to a host that is up, or about to be.
	ErrInUse = errors.New("the host id is in use")
	// ErrNotLeft is returned when the host id belongs to a host that is silent but has not left.
	ErrNotLeft = errors.New("the host id belongs to a host that has not left")
	// ErrUnreadable is returned when the record of the host id stays unreadable.
	ErrUnreadable = errors.New("the host record cannot be read")
	// ErrFull is returned when there is no free host id.
	ErrFull = errors.New("no host id is free")
	// ErrExpired is returned when the lease ran out unrenewed.
	ErrExpired = errors.New("the lease ran out")
	// ErrForeign is returned when the own record was not what this host last wrote.
	ErrForeign = errors.New("the own host record was overwritten")
	// ErrVerdict is returned when another host declared this one dead.
	ErrVerdict = errors.New("another host declared this one dead")
	// ErrSlowClaim is the reason of [Delayed] when the claim must be made the long way.
	ErrSlowClaim = errors.New("the host id is claimed the long way")
	// ErrSlowDevice is the reason of [Delayed] when the claim failed because an IO took too long or failed.
	ErrSlowDevice = errors.New("the device was too slow for the claim of the host id")
	// ErrFar is the reason of [Delayed] when the host id is beyond all that other hosts read.
	ErrFar = errors.New("the host id is far above those in use, where other hosts look once a lease")
)

// Conflict names the host that has the id asked for. It wraps ErrInUse or ErrNotLeft.
type Conflict struct {
	ID     int
	Name   string
	Reason error
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("host id %d, host %q: %v: wait for that host to leave, or choose another id", c.ID, c.Name, c.Reason)
}

// Unwrap returns the sentinel.
func (c *Conflict) Unwrap() error { return c.Reason }

// Config is what a machine is made for: one join of one host.
type Config struct {
	ID    int   // the host id, or 0 to choose a free one
	Hosts int   // host ids are 1..Hosts
	Times Times // from the superblock

	// Self is what this host publishes of itself: name, machine id, boot id, watchdog, PR key. The other members
	// are the machine's.
	Self layout.HostRecord

	// Incarnation returns a number not used before by any host: random in the daemon.
	Incarnation func() uint64

	// Left are the incarnations that [Left] and [Lost] named on this machine and lockspace, as far as known: of each
	// id the last one.
	Left []uint64

	Had     []int // host ids that this machine had before
	Reclaim bool  // an operator allows to take the id if its record is abandoned, whichever machine had it

	Policy layout.Policy // from the superblock: what it takes to declare a silent host dead
	Resume *Term         // go on with this, if it still stands; nil: join anew
}

// Record is what one read told of one host record.
type Record struct {
	layout.HostRecord
	Err error // why the record is unreadable; the rest then counts for nothing
}

// phase is how far a machine has come.
type phase uint8

const (
	idle     phase = iota // before Start
	looking               // for an id, or at the id given
	claiming              // joining was or is being written; the claim waits, then looks
	entering              // live is being written
	live
	leaving
	over
)

// mutation breaks one rule, so that tests can show that they would notice.
type mutation uint8

const (
	sound          mutation = iota
	noBudget                // a claim does not measure its steps
	noWait                  // a claim looks at once
	lateT0                  // the lease runs from the acknowledgement
	revive                  // an acknowledgement after the end of the lease renews it
	earlyCover              // highest is not raised by what is read after the own record was written
	shortLeft               // every record that says left is claimed the short way
	rebooted                // another boot id is proof of death
	shortStill              // a joining record that stood still is claimed the short way
	hidden                  // a record is believed to show whoever is live
	judgeEarly              // a host is declared dead after half a lease
	judgeJoining            // a joining record that stood still is declared dead
	actEarly                // a verdict is acted on before it is durable
	sinceAsked              // a record stands since the read was asked for that first showed it
	noWatchdog              // watchdogs are not waited for
	wishKills               // a wish is taken for a verdict
	resumeBlind             // an incarnation under a verdict is resumed
	resumeLate              // a resumed lease runs from the resumption
	nameUnclean             // an incarnation is said to have ended cleanly whatever became of its writes
	deaf                    // a claim goes live under a verdict on itself
	coverSoon               // a joining record is not waited for
	narrowLook              // a claim looks at as much as it found before
	nearsighted             // a live host reads up to its own record
	noSweep                 // nobody looks for hosts beyond
	unheeded                // what others have found does not count
	assumed                 // what was not read counts as read, and unchanged
	unheard                 // a host speaks before it is ready
	sparse                  // reads that lie far apart make an unbroken span
	abandonedEarly          // a record is abandoned after half of the span
	endedJoiner             // a joiner that was overwritten is remembered as ended
	ownBlind                // a lease is renewed whether or not the own record can be read
	lateRead                // a renewal's term does not depend on how long its read took
	coverDamaged            // a joiner passes every unreadable record
	foundAlways             // an unreadable record is passed without waiting for the look of a joiner behind it
	judgeDamaged            // the span of a damaged record counts from the last change seen
	evictTorn               // an operator's word on a host takes one unreadable read for silence
	shortDamaged            // a claim of an abandoned record is short
	hadSuffices             // a machine takes an id that it had whatever the policy
	noBackoff               // a long claim that failed is made again immediately
)

// Machine is one join of one host. It is not safe for concurrent use.
type Machine struct {
	cfg      Config
	t        Times
	mutation mutation

	now   time.Duration
	out   []Action
	phase phase
	timer time.Duration // when to read next, or when the claim's wait is over

	reading   bool
	readAt    time.Duration // when the last read was asked for
	extent    int           // how many records it covers
	sweptAt   time.Duration // when the last whole read that returned was asked for
	newsUntil time.Duration // until when others are expected to join
	floor     uint64        // the own sequence at least to be seen by it
	again     bool          // Refresh came while a read was under way
	writing   bool
	writeAt   time.Duration // when the last write was asked for
	own       layout.HostRecord
	acked     uint64 // the sequence of the last write acknowledged
	spent     []uint64
	clean     bool          // no write of this incarnation has failed, or was acknowledged too late
	takenOver bool          // resumed, and not renewed yet: holders may have been told a later deadline
	stands    time.Duration // since when a record of this incarnation is known to be on the disk; -1: not yet

	// Joining.
	id      int
	long    bool          // claim the long way
	watch   time.Duration // since when the id is looked at; -1: not yet
	blind   time.Duration // since when its record is unreadable; -1: it is not
	looked  time.Duration // when the read was asked for that a claim's write follows
	tried   []bool        // ids lost to others
	delayed bool          // Delayed was told
	wrote   time.Duration // when the last write of a claim of this id returned; -1: none has
	rewrote bool          // this machine has claimed an abandoned record of this id
	trodden bool          // an earlier host with this id took tickets: all reads cover it since

	// Live.
	t0      time.Duration
	term0   time.Duration // from when the term runs that the last write starts
	unseen  bool          // that write followed a read of an unreadable own record, and no read has shown the record since
	held    bool          // there was a lease
	ready   bool
	highest int
	proven  int // of that, what is published: found by a record that was read (FOUND)
	shown   int // of that, what is known to be on the disk
	hosts   []Host

	// Others.
	verdicts    []verdict // in the own record, or to be
	unpublished bool      // they are not durable as they are now
	words       []word    // verdicts to be published after a fresh read
	asked       bool      // Asked was told
	term        *Term     // to go on with

	complaints []complaint        // of this host
	heeded     []layout.Complaint // of others, to be told
	heedAt     time.Duration      // not before then

	// Leaving.
	giveUp time.Duration // when leaving without a lease ends
}

// New returns a machine that waits for [Machine.Start].
func New(cfg Config) (*Machine, error) {
	if err := cfg.Times.Validate(); err != nil {
		return nil, err
	}
	if cfg.Hosts < 1 || cfg.ID < 0 || cfg.ID > cfg.Hosts {
		return nil, fmt.Errorf("host id %d, want from 1 to %d, or 0 to choose one: %w", cfg.ID, cfg.Hosts, layout.ErrField)
	}
	if cfg.Policy > layout.PolicyManual {
		return nil, fmt.Errorf("%v, want lease, fence or manual: %w", cfg.Policy, layout.ErrField)
	}
	return &Machine{
		cfg: cfg, t: cfg.Times, id: cfg.ID,
		watch: -1, blind: -1, stands: -1, wrote: -1, term: cfg.Resume,
		tried: make([]bool, cfg.Hosts),
		hosts: make([]Host, cfg.Hosts),
	}, nil
}
