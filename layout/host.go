package layout

import (
	"fmt"
	"math"
)

// MaxVerdicts is the maximum number of verdicts in a host record.
const MaxVerdicts = 16

// HostState is the stage of a host's membership.
type HostState uint8

// The states of a host.
const (
	StateBlank   HostState = iota // never joined: the record is all zeroes
	StateJoining                  // is claiming its id
	StateLive                     // holds its id by a lease
	StateLeft                     // has released everything
)

var hostStates = enum{"host state", []string{"virgin", "joining", "live", "left"}}

func (s HostState) String() string { return hostStates.name(uint8(s)) }

// MarshalText returns the state's name.
func (s HostState) MarshalText() ([]byte, error) { return hostStates.marshal(uint8(s)) }

// UnmarshalText reads the state's name.
func (s *HostState) UnmarshalText(text []byte) error { return unmarshal(hostStates, s, text) }

// VerdictKind is the claim that a verdict makes about an incarnation.
type VerdictKind uint8

// The kinds of verdicts.
const (
	VerdictDead      VerdictKind = iota // it is dead
	VerdictWish                         // it is asked to leave; only the host itself acts on that
	VerdictForgotten                    // it is dead, and its host id may be given to another machine
)

var verdictKinds = enum{"verdict", []string{"dead", "wish", "forgotten"}}

// Dead reports whether a verdict of this kind declares a host dead.
func (k VerdictKind) Dead() bool { return k == VerdictDead || k == VerdictForgotten }

func (k VerdictKind) String() string { return verdictKinds.name(uint8(k)) }

// MarshalText returns the kind's name.
func (k VerdictKind) MarshalText() ([]byte, error) { return verdictKinds.marshal(uint8(k)) }

// UnmarshalText reads the kind's name.
func (k *VerdictKind) UnmarshalText(text []byte) error { return unmarshal(verdictKinds, k, text) }

// Verdict is published by one host about an incarnation of another.
type Verdict struct {
	Host        int
	Incarnation uint64
	Kind        VerdictKind
}

// MaxComplaints is the maximum number of complaints in a host record.
const MaxComplaints = 8

// Complaint names an unreadable record that blocks the complaining host: the slot of a host in a
// lock, or, if Host is 0, the directory entry of a lock. It requests that a host that may write
// the record repairs it.
type Complaint struct {
	Host int
	Lock int
}

// HostRecord is published by a host: its own state, the deaths that it has observed, and the
// records that block it. Only its host writes it.
//
//	 bytes  | field
//	--------|---------------------------------------------------------------------
//	  0- 39 | header; magic "BKHR"
//	 40- 41 | host id
//	 42     | state: 1 joining, 2 live, 3 left
//	 43     | watchdog armed: 0 or 1
//	 44- 45 | watchdog time-out in seconds
//	 46- 47 | highest (the read horizon)
//	 48- 55 | incarnation, not zero
//	 56- 63 | sequence
//	 64- 79 | machine id
//	 80- 95 | boot id
//	 96-103 | persistent reservation key
//	104-105 | number of verdicts
//	106-107 | length of the name
//	108-109 | number of complaints
//	110-111 | reserved, zero
//	112-175 | name, UTF-8, then zeroes
//	176-431 | 16 verdicts, zeroes after those in use, each:
//	        |    0- 1 host id
//	        |    2    kind: 0 dead, 1 wish, 2 forgotten
//	        |    3- 7 reserved, zero
//	        |    8-15 incarnation, not zero
//	432-495 | 8 complaints, zeroes after those in use, each:
//	        |    0- 1 host id of the unreadable slot; 0: the directory entry of the lock
//	        |    2- 3 reserved, zero
//	        |    4- 7 lock
//	496-503 | epoch of the member disks that the host uses; 0 with one disk
//	504-511 | reserved, zero
type HostRecord struct {
	ID              int
	Incarnation     uint64 // random, of one join; never zero, never reused
	State           HostState
	Generation      uint32 // of the host id, with several disks; grows with every claim of it
	Sequence        uint64 // grows with every renewal
	Name            string // at most MaxName bytes, may be empty
	MachineID       [16]byte
	BootID          [16]byte
	ReadHorizon     int // highest host id whose slots the host reads; 0 if not known yet
	WatchdogArmed   bool
	WatchdogSeconds uint16
	PRKey           uint64
	Verdicts        []Verdict   // at most MaxVerdicts
	Complaints      []Complaint // at most MaxComplaints
	Epoch           uint64      // of the members that the host uses, with several disks
}

const (
	_ = uint(176-112-MaxName) + uint(112+MaxName-176) // the areas are as long as what they hold
	_ = uint(432-176-16*MaxVerdicts) + uint(176+16*MaxVerdicts-432)
	_ = uint(496-432-8*MaxComplaints) + uint(432+8*MaxComplaints-496)
)

func (r *HostRecord) fields(c *codec, g Geometry) {
	c.generation(&r.Generation)
	number(c, 40, 2, "host", &r.ID, 1, g.Hosts)
	number(c, 42, 1, "host state", &r.State, StateJoining, StateLeft)
	c.flag(43, "watchdog armed", &r.WatchdogArmed)
	number(c, 44, 2, "watchdog time-out", &r.WatchdogSeconds, 0, math.MaxUint16)
	number(c, 46, 2, "highest host", &r.ReadHorizon, 0, g.Hosts)
	word(c, 48, &r.Incarnation)
	c.check(checkNotZero("incarnation", r.Incarnation))
	word(c, 56, &r.Sequence)
	c.id(64, &r.MachineID)
	c.id(80, &r.BootID)
	word(c, 96, &r.PRKey)
	c.zero(110, 112)
	c.text(106, 112, 176, "host name", &r.Name)
	c.check(ValidateHostName(r.Name))
	list(c, 104, 176, 432, MaxVerdicts, "verdict", &r.Verdicts, func(at int, v *Verdict) {
		number(c, at, 2, "host", &v.Host, 1, g.Hosts)
		number(c, at+2, 1, "kind", &v.Kind, VerdictDead, VerdictForgotten)
		c.zero(at+3, at+8)
		word(c, at+8, &v.Incarnation)
		c.check(checkNotZero("incarnation", v.Incarnation))
	})
	list(c, 108, 432, 496, MaxComplaints, "complaint", &r.Complaints, func(at int, v *Complaint) {
		number(c, at, 2, "host", &v.Host, 0, g.Hosts)
		c.zero(at+2, at+4)
		first := 0 // lock 0 has slots, but no entry
		if v.Host == 0 {
			first = 1
		}
		number(c, at+4, 4, "lock", &v.Lock, first, g.Locks)
	})
	if c.several {
		word(c, 496, &r.Epoch)
	} else {
		c.absent("epoch", 496, 504, r.Epoch == 0)
	}
	c.zero(504, RecordSize)
}

// Blank reports whether the host id was never used: the record on disk is all zeroes.
func (r HostRecord) Blank() bool { return r.State == StateBlank }

// EncodeHost writes a host record into buf, and zeroes into the rest of buf.
func (s Space) EncodeHost(buf []byte, r HostRecord) error {
	var err error
	c := writer(s.Several, &err)
	r.fields(&c, s.Geometry)
	if err := firstError(checkSize(buf), checkUUID(s.UUID), err); err != nil {
		return fmt.Errorf("record of host %d: %w", r.ID, err)
	}
	c.seal(buf, magicHost, s.UUID, s.Geometry.Host(r.ID))
	return nil
}

// DecodeHost decodes the record of a host. All zeroes are a blank record.
func (s Space) DecodeHost(buf []byte, id int) (HostRecord, error) {
	address := s.Geometry.Host(id)
	r := HostRecord{ID: id}
	record, err := open(buf, magicHost, s.Several)
	if err == nil && record != nil {
		c := reader(record, &err)
		r.fields(&c, s.Geometry)
		err = firstError(s.isOf(record, address), isNumber("host", r.ID, id), err)
	}
	if err != nil {
		return HostRecord{}, fmt.Errorf("record of host %d at byte %d: %w", id, address, err)
	}
	return r, nil
}
