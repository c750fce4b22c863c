package layout

import "fmt"

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
//	496-511 | reserved, zero
type HostRecord struct {
	ID              int
	Incarnation     uint64 // random, of one join; never zero, never reused
	State           HostState
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
}

const (
	_ = uint(176-112-MaxName) + uint(112+MaxName-176) // the areas are as long as what they hold
	_ = uint(432-176-16*MaxVerdicts) + uint(176+16*MaxVerdicts-432)
	_ = uint(496-432-8*MaxComplaints) + uint(432+8*MaxComplaints-496)
)

func (r *HostRecord) fields(c *codec) {
	u16(c, 40, &r.ID)
	u8(c, 42, &r.State)
	c.flag(43, "watchdog armed", &r.WatchdogArmed)
	u16(c, 44, &r.WatchdogSeconds)
	u16(c, 46, &r.ReadHorizon)
	u64(c, 48, &r.Incarnation)
	u64(c, 56, &r.Sequence)
	c.id(64, &r.MachineID)
	c.id(80, &r.BootID)
	u64(c, 96, &r.PRKey)
	c.zero(110, 112)
	c.text(106, 112, 176, "host name", &r.Name)
	list(c, 104, 176, 432, MaxVerdicts, "number of verdicts", &r.Verdicts, func(at int, v *Verdict) {
		u16(c, at, &v.Host)
		u8(c, at+2, &v.Kind)
		c.zero(at+3, at+8)
		u64(c, at+8, &v.Incarnation)
	})
	list(c, 108, 432, 496, MaxComplaints, "number of complaints", &r.Complaints, func(at int, v *Complaint) {
		u16(c, at, &v.Host)
		c.zero(at+2, at+4)
		u32(c, at+4, &v.Lock)
	})
	c.zero(496, RecordSize)
}

// Blank reports whether the host id was never used: the record on disk is all zeroes.
func (r HostRecord) Blank() bool { return r.State == StateBlank }

func (r *HostRecord) check(g Geometry) error {
	err := firstError(
		within("host", r.ID, 1, g.Hosts),
		within("host state", int(r.State), int(StateJoining), int(StateLeft)),
		checkNotZero("incarnation", r.Incarnation),
		within("highest host", r.ReadHorizon, 0, g.Hosts),
		ValidateHostName(r.Name),
		within("number of verdicts", len(r.Verdicts), 0, MaxVerdicts),
	)
	if err != nil {
		return err
	}
	for i, v := range r.Verdicts {
		err := firstError(
			within("host", v.Host, 1, g.Hosts),
			checkNotZero("incarnation", v.Incarnation),
			within("kind", int(v.Kind), 0, int(VerdictForgotten)),
		)
		if err != nil {
			return fmt.Errorf("verdict %d: %w", i+1, err)
		}
	}
	if err := within("number of complaints", len(r.Complaints), 0, MaxComplaints); err != nil {
		return err
	}
	for i, c := range r.Complaints {
		if err := c.check(g); err != nil {
			return fmt.Errorf("complaint %d: %w", i+1, err)
		}
	}
	return nil
}

// check returns an error if a number is out of range. Lock 0 has slots, but no entry.
func (c Complaint) check(g Geometry) error {
	first := 0
	if c.Host == 0 {
		first = 1
	}
	return firstError(within("host", c.Host, 0, g.Hosts), within("lock", c.Lock, first, g.Locks))
}

// EncodeHost writes a host record into buf, and zeroes into the rest of buf.
func (s Space) EncodeHost(buf []byte, r HostRecord) error {
	if err := firstError(checkSize(buf), checkUUID(s.UUID), r.check(s.Geometry)); err != nil {
		return fmt.Errorf("record of host %d: %w", r.ID, err)
	}
	c := writer(buf)
	r.fields(&c)
	seal(buf, magicHost, s.UUID, s.Geometry.Host(r.ID))
	return nil
}

// DecodeHost decodes the record of a host. All zeroes are a blank record.
func (s Space) DecodeHost(buf []byte, id int) (HostRecord, error) {
	address := s.Geometry.Host(id)
	r := HostRecord{ID: id}
	c, blank, err := open(buf, magicHost)
	if err == nil && !blank {
		r.fields(&c)
		err = firstError(s.isOf(c.record, address), isNumber("host", r.ID, id), c.err, r.check(s.Geometry))
	}
	if err != nil {
		return HostRecord{}, fmt.Errorf("record of host %d at byte %d: %w", id, address, err)
	}
	return r, nil
}
