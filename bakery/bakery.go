// Package bakery is the lock protocol: Lamport's bakery algorithm over the slots of one lock, as
// a pure state machine. It knows the rules by which a host enters, leaves, changes the mode of
// and removes a lock. It never knows IO, time, goroutines or processes: its inputs are events
// (slots read, write done, hosts read), its outputs are actions (write my slot, read the slots,
// granted, poll again). The daemon drives it on a device; the tests drive the same code through
// every interleaving.
//
// Begin with [Machine.Acquire] in acquire.go and follow the steps. survey.go decides which hosts
// stand ahead, peers.go which slots count, grants.go which local clients one hold serves. A driver that
// replaces an earlier one begins with [Machine.Resume]. PROTOCOL.md states the protocol in full, with its proofs.
//
// # Invariants
//
//   - EXCLUSION: at no time do more than k exclusive holders exist, nor an
//     exclusive and a shared holder together.
//   - ORDER: a host that finished its doorway before another began its own is
//     never passed by it: the later one enters only when the earlier one has
//     entered or could enter.
//   - TOKENS: the token of an exclusive grant is greater than that of every
//     exclusive grant that ended before it was requested; with one permit,
//     than that of every earlier exclusive grant. (PROTOCOL.md says how far this
//     holds when slots are lost.)
//   - BOUND: while a host that has finished its doorway waits, the holder serves a
//     bounded number of further clients of its own from one ticket.
//   - CLAIM-FIRST: every slot is read after the own claim is durable.
//   - READABLE-LOOK: a number is taken only when every slot that is not dead
//     was readable.
//   - TICKET-FIRST: a ticket is in the slot no later than the phase that stops
//     others from waiting for it.
//   - RESERVED: the number that a doorway ends with is not below the number in its
//     claim. Other hosts may pass this one by the claim before the number is drawn.
//   - VOID: a slot is passed over only if its incarnation is known to be over,
//     from a host record read after the slot.
//   - NEWEST: no host enters by a directory entry older than one that any slot
//     shows.
package bakery

import (
	"fmt"
	"slices"

	"github.com/bakeryd/bakeryd/layout"
)

// Slot holds the fields of a slot's sector that the protocol uses.
type Slot struct {
	Incarnation uint64
	Creation    uint64 // of the directory entry by which the host takes part
	Ticket      layout.Ticket
	Phase       layout.Phase
	Mode        layout.Mode
}

// View is the result of one read of one slot. The zero View is an unreadable slot: a read error,
// a bad checksum, a foreign record.
type View struct {
	Slot     Slot
	Readable bool
}

// Host is the result of one read of one host record. If the record is not readable, the other
// fields come from an earlier read.
type Host struct {
	Readable    bool
	Incarnation uint64 // 0 for a record never written
	Gone        bool   // left, never joined, or under a verdict
	Joining     bool   // the incarnation had written no slot when the record was read
	Unsettled   bool   // an earlier incarnation may not know yet that its record was overwritten

	// Ended lists incarnations of this host that are over, whether or not the record can be read.
	Ended []uint64
}

// Config describes one host's part in one lock.
type Config struct {
	Host        int    // own host id, from 1
	Incarnation uint64 // of this host's join, not 0
	Creation    uint64 // of the directory entry, read by this incarnation; numbers begin above it
	Permits     int    // maximum number of exclusive holders, at least 1
	Clock       uint64 // a number from the wall clock ([ClockNumber]) at the time of New, or 0
}

// Kind is the operation that an [Action] requests from the driver.
type Kind uint8

// The actions. After an action the driver calls the method named with it.
const (
	Write          Kind = iota + 1 // write Action.Slot durably: [Machine.Written]
	Read                           // read all slots: [Machine.SlotsRead]
	Poll                           // wait, read the slot of Action.Host (0: all): [Machine.Polled], [Machine.SlotsRead]
	ReadHosts                      // read the host table again: [Machine.HostsRead]
	ReadDirectory                  // read the lock's directory entry: [Machine.DirectoryRead]
	ClearDirectory                 // clear the entry under the directory lock, leaving Action.Slot.Creation in it: [Machine.DirectoryCleared], [Machine.DirectoryKept]
	Granted                        // the lock is held: Release, Settle, Upgrade, Downgrade or Remove may follow
	Done                           // the attempt is over, with Action.Outcome, and the slot idle
)

// Outcome is how an attempt ended without a hold, or how a hold ended.
type Outcome uint8

// The outcomes of [Done].
const (
	Released   Outcome = iota + 1 // the hold ended by [Machine.Release]
	Cancelled                     // ended by [Machine.Cancel]
	Busy                          // the request had Try set, and other hosts are ahead
	Superseded                    // the machine was made for a directory entry that is no longer current
	Exhausted                     // the lock's numbers are used up
	Removed                       // the hold ended by removing the lock; the machine cannot be used again
	Attached                      // the own slot is readable and its ticket known
)

// Action is the driver's next operation.
type Action struct {
	Kind    Kind
	Slot    Slot    // for Write
	Host    int     // for Poll: the host whose slot is read; 0: all hosts
	Rank    int     // for Poll: the number of hosts ahead, at least 1
	Enters  bool    // for Poll: a read of all slots may admit the host
	Outcome Outcome // for Done
}

// step is the state of a machine between two events.
type step uint8

const (
	stepIdle       step = iota
	stepAttach          // first read, for the last ticket in the own slot
	stepClaim           // choosing is being written
	stepLook            // all slots are being read in the doorway
	stepNumber          // waiting is being written
	stepWait            // the slots are being read, or polled, until the hosts ahead admit this one
	stepWithdraw        // idle is being written without having entered
	stepRelease         // idle is being written after a hold
	stepSuperseded      // a newer creation was seen: is the entry still this lock's?
	stepEntered         // held, as in all steps up to stepClear
	stepSettle          // held is being written
	stepDowngrade       // shared is being written under a hold
	stepUpgrade         // choosing, exclusive is being written under a shared hold
	stepAlone           // the slots are being read: does any other host take part?
	stepBack            // the failed upgrade is being undone
	stepMark            // the newer creation is being written under a hold
	stepDrain           // waiting until no host of the old creation takes part
	stepClear           // the directory entry is being cleared
	stepUnmark          // idle with the newer creation is being written
	stepReturn          // resumed in a removal: is the entry still this lock's?
	stepRemoved         // the lock is removed
)

// Machine is one host's part in one lock. It is not safe for concurrent use: one driver carries
// out one action at a time. Only [Machine.Cancel] may be called while an action is under way.
type Machine struct {
	cfg        Config
	step       step
	request    Request
	attached   bool // the last ticket in the own slot is known
	torn       bool // that ticket was guessed from the readable slots; the next look guesses better
	attachOnly bool // stepAttach: for Attach, not for Acquire
	cancel     bool
	unsure     bool    // the views wait for a read of the host table
	after      Outcome // the outcome of the withdrawal under way
	ownSlot    Slot    // contents of the own slot, once a write under way has landed
	last       uint64  // highest number seen on this lock
	met        int     // stepSuperseded: the host whose slot showed a newer entry
	lost       int     // a dead host whose unreadable slot may hide a newer entry, or 0
	clear      bool    // the entry was read since, and is this lock's
	hosts      []Host  // the host table as last read
	metOver    uint64  // the incarnation of met known to be over when the read of the entry was requested
	polling    Action  // the last Poll
	doubt      bool    // polling: a fact is missing that the polled slot will not show
	views      []View  // the last read, by host id - 1
	peers      []peer  // other hosts, by host id - 1
}

// New returns the machine of an idle host. It panics on a Config that no directory or host record
// can hold: a programmer's error.
func New(cfg Config) *Machine {
	if cfg.Host < 1 || cfg.Host > layout.MaxHosts || cfg.Incarnation == 0 || cfg.Permits < 1 {
		panic(fmt.Sprintf("bakery: impossible config %+v", cfg))
	}
	return &Machine{cfg: cfg, last: max(cfg.Creation, cfg.Clock), ownSlot: Slot{Incarnation: cfg.Incarnation, Creation: cfg.Creation}}
}

// OwnSlot returns the contents of the own slot, including a write under way. Rewriting the slot
// unchanged, with no write under way, is always allowed after the first attempt or
// [Machine.Attach] has read the last ticket.
func (m *Machine) OwnSlot() Slot { return m.ownSlot }

// Holding reports whether the host holds the lock, in any mode.
func (m *Machine) Holding() bool { return m.step >= stepEntered && m.step <= stepClear }

// Token returns the fencing token of the current hold's first grant. The driver gives the k-th
// local grant of the same hold [layout.Ticket.Grant] of k, and continues to count across changes
// of mode.
func (m *Machine) Token() layout.Ticket { return m.ownSlot.Ticket }

// Mode returns the mode of the attempt or hold.
func (m *Machine) Mode() layout.Mode { return m.ownSlot.Mode }

// write requests a write of the whole slot: ticket and phase together (TICKET-FIRST).
func (m *Machine) write(s step, phase layout.Phase) Action {
	m.step = s
	m.ownSlot.Phase = phase
	return Action{Kind: Write, Slot: m.ownSlot}
}

func (m *Machine) read(s step) Action {
	m.step = s
	return Action{Kind: Read}
}

func (m *Machine) done(o Outcome) Action {
	m.step, m.cancel = stepIdle, false
	return Action{Kind: Done, Outcome: o}
}

// expect panics on an event that the last action did not request.
func (m *Machine) expect(event string, steps ...step) {
	if !slices.Contains(steps, m.step) {
		panic(fmt.Sprintf("bakery: %s in step %d", event, m.step))
	}
}
