package layout

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxCommand is the length of a holder's command in a slot, in bytes.
	MaxCommand = 80

	// MaxValue is the longest value of a lock, in bytes.
	MaxValue = 256

	// MaxRequest is the longest message of a request, in bytes.
	MaxRequest = 54
)

// Phase is the step of the lock protocol that a host has reached.
type Phase uint8

// The phases of a slot.
const (
	Idle     Phase = iota // does not take part; the ticket is its last one
	Choosing              // is drawing a number, or has entered by the fast path
	Waiting               // has drawn its number
	Held                  // holds the lock; ordered as Waiting is
)

var phases = enum{"phase", []string{"idle", "choosing", "waiting", "held"}}

func (p Phase) String() string { return phases.name(uint8(p)) }

// MarshalText returns the phase's name.
func (p Phase) MarshalText() ([]byte, error) { return phases.marshal(uint8(p)) }

// UnmarshalText reads the phase's name.
func (p *Phase) UnmarshalText(text []byte) error { return unmarshal(phases, p, text) }

// Mode is the mode of a request or hold.
type Mode uint8

// The modes of a lock.
const (
	Exclusive Mode = iota
	Shared
)

var modes = enum{"mode", []string{"exclusive", "shared"}}

func (m Mode) String() string { return modes.name(uint8(m)) }

// MarshalText returns the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return modes.marshal(uint8(m)) }

// UnmarshalText reads the mode's name.
func (m *Mode) UnmarshalText(text []byte) error { return unmarshal(modes, m, text) }

// Holder describes the holder of the lock for people. The protocol does not use it.
type Holder struct {
	PID     int       // as TruncateCommand returns it
	Since   time.Time // UTC; microseconds are kept; the zero time if unknown
	Command string    // as TruncateCommand returns it
}

// Request notifies the holders that a client of the slot's host wants the lock. The protocol does
// not use it. The zero Request is none.
type Request struct {
	Ticket  Ticket    // every hold with this ticket or a smaller one is asked
	At      time.Time // UTC; microseconds are kept; the zero time if unknown
	Message string    // as ValidateRequest accepts it; may be empty
}

// Slot is the record of one host in one lock: Lamport's choosing[i] and number[i], in a sector
// that only host i writes.
//
//	 bytes  | field
//	--------|---------------------------------------------------------------------
//	  0- 39 | header; magic "BKSL"
//	 40- 43 | lock
//	 44- 45 | host id
//	 46     | phase: 0 idle, 1 choosing, 2 waiting, 3 held
//	 47     | mode: 0 exclusive, 1 shared
//	 48- 55 | incarnation of the host, not zero
//	 56- 63 | creation of the lock, at most 2^44
//	 64- 71 | sequence
//	 72- 79 | ticket; its host bits are the host id and its grant bits zero, or, if idle, all of it is zero
//	 80- 87 | value token: the token under which the value was written, or zero
//	 88- 95 | holder: since when, in microseconds since 1970, 0 if unknown
//	 96- 99 | holder: process id, 0 if unknown
//	100-101 | holder: length of the command
//	102-103 | length of the value
//	104-183 | holder: command, UTF-8, then zeroes
//	184-439 | value, any bytes, then zeroes
//	440-447 | request: ticket, its grant bits zero; 0 if there is none, and then all up to the end is zero
//	448-455 | request: since when, in microseconds since 1970, 0 if unknown
//	456-457 | request: length of the message
//	458-511 | request: message, UTF-8, then zeroes
type Slot struct {
	Lock, Host  int
	Incarnation uint64 // of the host when it wrote the slot; void once the host has another
	Creation    uint64 // of the lock: as in the directory's entry, or above it after a removal
	Generation  uint32 // of the host id, with several disks; grows with every claim of it
	Sequence    uint64 // grows with every write of the slot
	Phase       Phase
	Mode        Mode
	Ticket      Ticket
	Holder      Holder
	Value       []byte // at most MaxValue bytes; nil and empty are the same
	ValueToken  Ticket
	Request     Request // for the lock with this Creation; later writes of the slot repeat it
}

const (
	_ = uint(184-104-MaxCommand) + uint(104+MaxCommand-184) // the areas are as long as what they hold
	_ = uint(440-184-MaxValue) + uint(184+MaxValue-440)
	_ = uint(512-458-MaxRequest) + uint(458+MaxRequest-512)
)

func (r *Slot) fields(c *codec, g Geometry) {
	c.generation(&r.Generation)
	number(c, 40, 4, "lock", &r.Lock, 0, g.Locks)
	number(c, 44, 2, "host", &r.Host, 1, g.Hosts)
	number(c, 46, 1, "phase", &r.Phase, Idle, Held)
	number(c, 47, 1, "mode", &r.Mode, Exclusive, Shared)
	word(c, 48, &r.Incarnation)
	word(c, 56, &r.Creation)
	word(c, 64, &r.Sequence)
	word(c, 72, &r.Ticket)
	word(c, 80, &r.ValueToken)
	c.time(88, "since", &r.Holder.Since)
	number(c, 96, 4, "process id", &r.Holder.PID, 0, math.MaxInt32)
	c.text(100, 104, 184, "command", &r.Holder.Command)
	c.bytes(102, 184, 440, "value", &r.Value)
	word(c, 440, &r.Request.Ticket)
	c.time(448, "request since", &r.Request.At)
	c.text(456, 458, 512, "request message", &r.Request.Message)
	c.check(firstError(
		checkNotZero("incarnation", r.Incarnation),
		r.Ticket.check("ticket", g.Hosts),
		r.checkTicket(),
		checkCreation(r.Creation),
		r.Ticket.checkGrant("ticket"),
		r.ValueToken.check("value token", g.Hosts),
		ValidateValue(r.Value),
		checkText("command", r.Holder.Command, 0, MaxCommand),
		r.Request.check(g),
	))
}

// ValidateValue checks the value of a lock.
func ValidateValue(value []byte) error { return within("bytes of value", len(value), 0, MaxValue) }

// ValueOf reports whether the slot has a value, or the fact that it was cleared, of the lock with
// that creation id. The token decides: numbers begin above the creation id, and later creation
// ids are above all numbers. A slot with a greater creation id belongs to a removal that did not
// take effect.
func (r Slot) ValueOf(creation uint64) bool {
	return r.ValueToken != 0 && r.ValueToken.Number() > creation && r.Creation >= creation
}

// Blank reports whether the slot was never used: the record on disk is all zeroes.
func (r Slot) Blank() bool { return r.Incarnation == 0 }

// TruncateCommand makes a command line fit for [Holder]: at most MaxCommand bytes, cut between
// two characters, with '?' for every control character and every byte that is not UTF-8.
func TruncateCommand(command string) string {
	// A character shrinks from at most three bytes to one, so the bytes cut off here would be cut
	// off below.
	command = command[:min(len(command), 4*MaxCommand)]
	command = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return '?'
		}
		return r
	}, command)
	end := min(len(command), MaxCommand)
	for end < len(command) && !utf8.RuneStart(command[end]) {
		end--
	}
	return command[:end]
}

func (r *Slot) checkTicket() error {
	switch {
	case r.Ticket != 0 && r.Ticket.Host() != r.Host:
		return fmt.Errorf("ticket %v is of host %d, want %d: %w", r.Ticket, r.Ticket.Host(), r.Host, ErrField)
	case r.Ticket == 0 && r.Phase != Idle:
		return fmt.Errorf("%v without a ticket: %w", r.Phase, ErrField)
	}
	return nil
}

func (r *Request) check(g Geometry) error {
	err := firstError(r.Ticket.check("request ticket", g.Hosts), r.Ticket.checkGrant("request ticket"))
	if err == nil && r.Ticket == 0 && (micros(r.At) != 0 || r.Message != "") {
		err = fmt.Errorf("request without a ticket, want no time and no message: %w", ErrField)
	}
	return firstError(err, ValidateRequest(r.Message))
}

// EncodeSlot writes a slot into buf, and zeroes into the rest of buf.
func (s Space) EncodeSlot(buf []byte, r Slot) error {
	var err error
	c := writer(s.Several, &err)
	r.fields(&c, s.Geometry)
	if err := firstError(checkSize(buf), checkUUID(s.UUID), err); err != nil {
		return fmt.Errorf("slot of host %d in lock %d: %w", r.Host, r.Lock, err)
	}
	c.seal(buf, magicSlot, s.UUID, s.Geometry.Slot(r.Lock, r.Host))
	return nil
}

// DecodeSlot decodes the slot of a host in a lock. All zeroes are a blank slot. It allocates
// memory only for a command, a value or a message. The caller owns the value.
func (s Space) DecodeSlot(buf []byte, lock, host int) (Slot, error) {
	return s.RedecodeSlot(Slot{}, buf, lock, host)
}

// RedecodeSlot is DecodeSlot with fewer allocations, for frequent reads. It shares unchanged
// texts with r, an earlier result, and reuses the memory of its value. The caller must not use r
// afterwards.
func (s Space) RedecodeSlot(r Slot, buf []byte, lock, host int) (Slot, error) {
	address := s.Geometry.Slot(lock, host)
	record, err := open(buf, magicSlot, s.Several)
	if err == nil && record == nil {
		return Slot{Lock: lock, Host: host}, nil
	}
	if err == nil {
		c := reader(record, &err)
		r.fields(&c, s.Geometry)
		err = firstError(s.isOf(record, address), isNumber("lock", r.Lock, lock), isNumber("host", r.Host, host), err)
	}
	if err != nil {
		return Slot{}, fmt.Errorf("slot of host %d in lock %d at byte %d: %w", host, lock, address, err)
	}
	return r, nil
}
