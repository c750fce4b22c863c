// Package bakery is the lock protocol: Lamport's bakery algorithm over the
// slots of one lock, as a pure state machine. It knows the rules by which a
// host enters, leaves, changes the mode of and removes a lock. It never knows
// IO, time, goroutines or processes: its inputs are events (slots read, write
// done, hosts read), its outputs are actions (write my slot, read the slots,
// granted, poll again). The daemon drives it on a device; the tests drive the
// same code through every interleaving.
//
// Begin with [Machine.Acquire] in acquire.go and follow the steps; who stands
// ahead of whom is judged in survey.go, whose slot counts in peers.go. A driver
// that takes over from one that ended begins with [Machine.Resume].
// PROTOCOL.md states the protocol in full, with its proofs.
//
// # Invariants
//
//   - EXCLUSION: at no time do more than k exclusive holders exist, nor an
//     exclusive and a shared holder together.
//   - ORDER: a host that finished its doorway before another began its own is
//     never passed by it: the later one enters only when the earlier one has
//     entered or could enter.
//   - TOKENS: the token of an exclusive grant is greater than that of every
//     exclusive grant that ended before it was asked for; with one permit,
//     than that of every earlier exclusive grant. (How far over slots that are
//     lost: PROTOCOL.md.)
//   - CLAIM-FIRST: every slot is read after the own claim is durable.
//   - READABLE-LOOK: a number is taken only when every slot that is not dead
//     was readable.
//   - TICKET-FIRST: a ticket is in the slot no later than the phase that stops
//     others from waiting for it.
//   - RESERVED: the number of a doorway is not below the one that its claim
//     shows, by which others may pass it before it is drawn.
//   - VOID: a slot is passed over only if its incarnation is known to be over,
//     from a host record read after the slot.
//   - NEWEST: nobody enters by a directory entry older than one that any slot
//     tells of.
package bakery

import (
	"fmt"

	"github.com/bakeryd/bakeryd/layout"
)

// Slot is what the protocol reads and writes of a slot's sector.
type Slot struct {
	Incarnation uint64
	Creation    uint64 // of the directory entry by which the host takes part
	Ticket      layout.Ticket
	Phase       layout.Phase
	Mode        layout.Mode
}

// View is what one read of one slot told. The zero View is an unreadable
// slot: a read error, a bad checksum, a foreign record.
type View struct {
	Slot     Slot
	Readable bool
}

// Host is what one read of one host record told; of one that is not readable,
// what an earlier read did.
type Host struct {
	Readable    bool
	Incarnation uint64 // 0 for a record never written
	Gone        bool   // left, never joined, or under a verdict
	Joining     bool   // the incarnation had written no slot when the record was read
	Unsettled   bool   // an earlier incarnation may not know yet that its record was taken over

	// Ended are incarnations of this host that are over, whether or not the record can be read.
	Ended []uint64
}

// Config is what a machine is made for: one host's part in one lock.
type Config struct {
	Host        int    // own host id, from 1
	Incarnation uint64 // of this host's join, not 0
	Creation    uint64 // of the directory entry, read by this incarnation; numbers begin above it
	Permits     int    // exclusive holders at most, at least 1
	Clock       uint64 // a number from the wall clock ([ClockNumber]) as the machine is made, or 0
}

// Kind says what an [Action] asks of the driver.
type Kind uint8

// The actions. After carrying one out the driver reports by the method named.
const (
	Write          Kind = iota + 1 // write Action.Slot durably: [Machine.Written]
	Read                           // read all slots: [Machine.SlotsRead]
	Poll                           // wait, read the slot of Action.Host (0: all): [Machine.Polled], [Machine.SlotsRead]
	ReadHosts                      // read the host table anew: [Machine.HostsRead]
	ReadDirectory                  // read the lock's directory entry: [Machine.DirectoryRead]
	ClearDirectory                 // clear the entry under the directory lock, leaving Action.Slot.Creation in it: [Machine.DirectoryCleared], [Machine.DirectoryKept]
	Granted                        // the lock is held: Release, Settle, Upgrade, Downgrade or Remove when wanted
	Done                           // the attempt is over, with Action.Outcome, and the slot idle
)

// Outcome is how an attempt ended without a hold, or a hold by removal.
type Outcome uint8

// The outcomes of [Done].
const (
	Released   Outcome = iota + 1 // the hold was let go
	Cancelled                     // given up by [Machine.Cancel]
	Busy                          // tried without waiting, and others are ahead
	Superseded                    // the directory entry is not the one this machine was made for
	Exhausted                     // the lock's numbers are used up
	Removed                       // the hold ended by removing the lock; the machine is of no more use
	Attached                      // the own slot is readable and its ticket known
)

// Action is what the driver has to do next.
type Action struct {
	Kind    Kind
	Slot    Slot    // for Write
	Host    int     // for Poll: whose slot; 0 is all
	Rank    int     // for Poll: how many stand ahead, at least 1
	Enters  bool    // for Poll: a read of all slots may let the host in
	Outcome Outcome // for Done
}

// step is where a machine stands between two events.
type step uint8

const (
	stepIdle       step = iota
	stepAttach          // first read, for the own last ticket
	stepClaim           // choosing is being written
	stepLook            // all slots are being read in the doorway
	stepNumber          // waiting is being written
	stepWait            // the slots are being read, or polled, for our turn
	stepEntered         // held
	stepSettle          // held is being written
	stepWithdraw        // idle is being written without having entered
	stepRelease         // idle is being written after a hold
	stepSuperseded      // a newer creation was met: is the entry still ours?
	stepDowngrade       // shared is being written under a hold
	stepUpgrade         // choosing, exclusive is being written under a shared hold
	stepAlone           // the slots are being read: is nobody else there?
	stepBack            // the failed upgrade is being taken back
	stepMark            // the newer creation is being written under a hold
	stepDrain           // waiting for everybody of the old creation to go
	stepClear           // the directory entry is being cleared
	stepUnmark          // idle with the newer creation is being written
	stepReturn          // resumed in a removal: is the entry still ours?
	stepRemoved         // the end
)

// Machine is one host's part in one lock. It is not safe for concurrent use:
// one driver carries out one action at a time. Only [Machine.Cancel] may come
// while an action is under way.
type Machine struct {
	cfg      Config
	step     step
	request  Request
	attached bool // the own last ticket is known
	torn     bool // or only guessed, from what could be read; the next look guesses better
	healing  bool // stepAttach: for Attach, not for Acquire
	cancel   bool
	unsure   bool    // the views wait for a read of the host table
	after    Outcome // what a withdrawal ends in
	mine     Slot    // what the own slot shows, once a write under way has landed
	last     uint64  // highest number seen on this lock
	met      int     // stepSuperseded: the host whose slot told of a newer entry
	lost     int     // a dead host whose unreadable slot may tell of a newer entry, or 0
	clear    bool    // the entry was read since, and is ours
	hosts    []Host  // the host table as last read
	metOver  uint64  // what was known to be over of it when its entry's read was asked for
	polling  Action  // the last Poll
	doubt    bool    // polling: something could not be told that the polled slot will not tell
	views    []View  // the last read, by host id - 1
	peers    []peer  // what is known of the hosts, by host id - 1
}

// New returns the machine of an idle host. It panics on a Config that no
// directory or host record can hold: a programmer's error.
func New(cfg Config) *Machine {
	if cfg.Host < 1 || cfg.Host > layout.MaxHosts || cfg.Incarnation == 0 || cfg.Permits < 1 {
		panic(fmt.Sprintf("bakery: impossible config %+v", cfg))
	}
	return &Machine{cfg: cfg, last: max(cfg.Creation, cfg.Clock), mine: Slot{Incarnation: cfg.Incarnation, Creation: cfg.Creation}}
}

// Mine is what the own slot shows, or will show once the write under way has
// landed. Rewriting it as it is, with no write under way, is always allowed
// once the first attempt or [Machine.Attach] has learned the own last ticket.
func (m *Machine) Mine() Slot { return m.mine }

// Holding tells whether the host is inside, in any mode.
func (m *Machine) Holding() bool {
	switch m.step {
	case stepEntered, stepSettle, stepDowngrade, stepUpgrade, stepAlone, stepBack, stepMark, stepDrain, stepClear:
		return true
	}
	return false
}

// Token is the fencing token of the current hold's first grant; the driver
// gives the k-th local grant of the same hold [layout.Ticket.Grant] of k, and
// goes on counting over changes of mode.
func (m *Machine) Token() layout.Ticket { return m.mine.Ticket }

// Mode is the mode of the attempt or hold.
func (m *Machine) Mode() layout.Mode { return m.mine.Mode }

// write writes all of the slot at once: ticket and phase together (TICKET-FIRST).
func (m *Machine) write(s step, phase layout.Phase) Action {
	m.step = s
	m.mine.Phase = phase
	return Action{Kind: Write, Slot: m.mine}
}

func (m *Machine) read(s step) Action {
	m.step = s
	return Action{Kind: Read}
}

func (m *Machine) done(o Outcome) Action {
	m.step, m.cancel = stepIdle, false
	return Action{Kind: Done, Outcome: o}
}

// expect panics when an event comes that the last action did not ask for.
func (m *Machine) expect(event string, steps ...step) {
	for _, s := range steps {
		if m.step == s {
			return
		}
	}
	panic(fmt.Sprintf("bakery: %s in step %d", event, m.step))
}
