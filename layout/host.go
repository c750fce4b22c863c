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
	hostID              = 40
	hostState           = 42
	hostWatchdogArmed   = 43
	hostWatchdogSeconds = 44
	hostReadHorizon     = 46
	hostIncarnation     = 48
	hostSequence        = 56
	hostMachineID       = 64
	hostBootID          = 80
	hostPRKey           = 96
	hostVerdictCount    = 104
	hostNameLength      = 106
	hostComplaintCount  = 108
	hostReserved        = 110
	hostName            = 112
	hostVerdicts        = hostName + MaxName
	hostComplaints      = hostVerdicts + MaxVerdicts*verdictSize
	hostEnd             = hostComplaints + MaxComplaints*complaintSize

	verdictHost        = 0
	verdictKind        = 2
	verdictReserved    = 3
	verdictIncarnation = 8
	verdictSize        = 16

	complaintHost     = 0
	complaintReserved = 2
	complaintLock     = 4
	complaintSize     = 8
)

const _ = uint(hostEnd-496) + uint(496-hostEnd) // hostEnd is 496

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
	clear(buf)
	le.PutUint16(buf[hostID:], uint16(r.ID))
	buf[hostState] = byte(r.State)
	if r.WatchdogArmed {
		buf[hostWatchdogArmed] = 1
	}
	le.PutUint16(buf[hostWatchdogSeconds:], r.WatchdogSeconds)
	le.PutUint16(buf[hostReadHorizon:], uint16(r.ReadHorizon))
	le.PutUint64(buf[hostIncarnation:], r.Incarnation)
	le.PutUint64(buf[hostSequence:], r.Sequence)
	copy(buf[hostMachineID:hostBootID], r.MachineID[:])
	copy(buf[hostBootID:hostPRKey], r.BootID[:])
	le.PutUint64(buf[hostPRKey:], r.PRKey)
	le.PutUint16(buf[hostVerdictCount:], uint16(len(r.Verdicts)))
	le.PutUint16(buf[hostNameLength:], uint16(len(r.Name)))
	copy(buf[hostName:hostVerdicts], r.Name)
	for i, v := range r.Verdicts {
		at := buf[hostVerdicts+i*verdictSize:]
		le.PutUint16(at[verdictHost:], uint16(v.Host))
		at[verdictKind] = byte(v.Kind)
		le.PutUint64(at[verdictIncarnation:], v.Incarnation)
	}
	le.PutUint16(buf[hostComplaintCount:], uint16(len(r.Complaints)))
	for i, c := range r.Complaints {
		at := buf[hostComplaints+i*complaintSize:]
		le.PutUint16(at[complaintHost:], uint16(c.Host))
		le.PutUint32(at[complaintLock:], uint32(c.Lock))
	}
	seal(buf, magicHost, s.UUID, s.Geometry.Host(r.ID))
	return nil
}

// DecodeHost decodes the record of a host. All zeroes are a blank record.
func (s Space) DecodeHost(buf []byte, id int) (HostRecord, error) {
	address := s.Geometry.Host(id)
	r, err := s.decodeHost(buf, id, address)
	if err != nil {
		return HostRecord{}, fmt.Errorf("record of host %d at byte %d: %w", id, address, err)
	}
	return r, nil
}

func (s Space) decodeHost(buf []byte, id int, address int64) (r HostRecord, err error) {
	r.ID = id
	buf, err = s.open(buf, magicHost, address)
	if err != nil || buf == nil {
		return r, err
	}
	err = firstError(
		isNumber("host", int(le.Uint16(buf[hostID:])), id),
		checkReserved(buf, hostEnd),
		checkZero(buf, hostReserved, hostName),
		within("watchdog armed", int(buf[hostWatchdogArmed]), 0, 1),
	)
	if err != nil {
		return r, err
	}
	r.State = HostState(buf[hostState])
	r.WatchdogArmed = buf[hostWatchdogArmed] == 1
	r.WatchdogSeconds = le.Uint16(buf[hostWatchdogSeconds:])
	r.ReadHorizon = int(le.Uint16(buf[hostReadHorizon:]))
	r.Incarnation = le.Uint64(buf[hostIncarnation:])
	r.Sequence = le.Uint64(buf[hostSequence:])
	r.MachineID = [16]byte(buf[hostMachineID:hostBootID])
	r.BootID = [16]byte(buf[hostBootID:hostPRKey])
	r.PRKey = le.Uint64(buf[hostPRKey:])
	if r.Name, err = decodeText("", "host name", buf[hostName:hostVerdicts], le.Uint16(buf[hostNameLength:])); err != nil {
		return r, err
	}
	if r.Verdicts, err = decodeVerdicts(buf); err != nil {
		return r, err
	}
	r.Complaints, err = decodeComplaints(buf)
	return r, firstError(err, r.check(s.Geometry))
}

func decodeVerdicts(record []byte) ([]Verdict, error) {
	count := int(le.Uint16(record[hostVerdictCount:]))
	return decodeList(record, "number of verdicts", count, MaxVerdicts, hostVerdicts, hostComplaints, func(at int) (Verdict, error) {
		v := Verdict{
			Host:        int(le.Uint16(record[at+verdictHost:])),
			Kind:        VerdictKind(record[at+verdictKind]),
			Incarnation: le.Uint64(record[at+verdictIncarnation:]),
		}
		return v, checkZero(record, at+verdictReserved, at+verdictIncarnation)
	})
}

func decodeComplaints(record []byte) ([]Complaint, error) {
	count := int(le.Uint16(record[hostComplaintCount:]))
	return decodeList(record, "number of complaints", count, MaxComplaints, hostComplaints, hostEnd, func(at int) (Complaint, error) {
		c := Complaint{Host: int(le.Uint16(record[at+complaintHost:])), Lock: int(le.Uint32(record[at+complaintLock:]))}
		return c, checkZero(record, at+complaintReserved, at+complaintLock)
	})
}

// decodeList decodes the first count elements of a list that has room for most of them, from byte
// from of a record to byte end. The rest must be zero.
func decodeList[T any](record []byte, field string, count, most, from, end int, decode func(at int) (T, error)) ([]T, error) {
	if err := within(field, count, 0, most); err != nil {
		return nil, err
	}
	size := (end - from) / most
	if err := checkZero(record, from+count*size, end); err != nil || count == 0 {
		return nil, err
	}
	list := make([]T, count)
	for i := range list {
		var err error
		if list[i], err = decode(from + i*size); err != nil {
			return nil, err
		}
	}
	return list, nil
}
