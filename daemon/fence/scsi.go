package fence

import (
	"encoding/binary"
	"fmt"
)

// Byte ranges of the SCSI commands, parameter lists and answers used here, by SPC-4. All numbers
// are big-endian.
//
//	PERSISTENT RESERVE OUT                 READ KEYS                 READ RESERVATION
//	    0     5f                               0..3   generation         0..3   generation
//	    1     service action                   4..7   bytes of keys      4..7   16 if held, else 0
//	    2     scope (0) and type               8..    8 bytes a key      8..15  key (0: all registrants)
//	    5..8  parameter list length, 24                                  21     scope and type
//	  parameter list:
//	    0..7  reservation key, own         PERSISTENT RESERVE IN
//	    8..15 service action key               0     5e
//	    20    bit 0: persist through           1     service action
//	          power loss                       7..8  allocation length
const (
	opPersistentReserveIn  = 0x5e
	opPersistentReserveOut = 0x5f

	inReadKeys        = 0x00
	inReadReservation = 0x01

	outListLen = 24
	cdbLen     = 10

	statusGood            = 0x00
	statusCheckCondition  = 0x02
	statusBusy            = 0x08
	statusConflict        = 0x18
	statusTaskSetFull     = 0x28
	statusTaskAborted     = 0x40
	senseNotReady         = 0x2
	senseIllegalRequest   = 0x5
	senseUnitAttention    = 0x6
	senseAbortedCommand   = 0xb
	ascNoRegistrationRoom = 0x5504
)

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// scsiDevice carries SCSI commands.
type scsiDevice interface {
	// send sends a command with data to the device (out) or from it. It returns the device's
	// result and the number of bytes of data that were moved. It returns errRefused or errAgain,
	// or wraps an errno, if the command could not be sent.
	send(cdb, data []byte, out bool) (scsiResult, error)
}

type scsiResult struct {
	status byte
	sense  []byte
	moved  int
}

// scsi is the transport of PERSISTENT RESERVE commands. It uses no optional features. In
// particular it does not require keys that survive the target's loss of power, as Linux's own
// interface does.
type scsi struct{ dev scsiDevice }

// String implements transport.
func (s scsi) String() string { return "SG_IO" }

// change implements transport.
func (s scsi) change(a action, own, other uint64) error {
	cdb, list := make([]byte, cdbLen), make([]byte, outListLen)
	cdb[0], cdb[1] = opPersistentReserveOut, byte(a)
	switch a {
	case register:
	case registerIgnore:
		own = 0 // SPC-4 has it ignored, but Linux's target refuses another one from a host that is not registered
	default:
		cdb[2] = byte(WriteExclusiveAllRegistrants)
	}
	be.PutUint32(cdb[5:], outListLen)
	be.PutUint64(list, own)
	be.PutUint64(list[8:], other)
	_, err := s.send(cdb, list, true)
	return err
}

// state reads the state. The keys are read after the reservation: a key that is missing then
// was missing, or was removed, under it.
func (s scsi) state() (State, error) {
	var state State
	held, err := s.in(inReadReservation, 256)
	if err != nil {
		return State{}, err
	}
	if len(held) > 0 {
		if len(held) < 14 {
			return State{}, fmt.Errorf("reservation described in %d bytes, want 16", len(held))
		}
		state.Held, state.Type = true, Type(held[13]&0x0f)
	}
	keys, err := s.in(inReadKeys, 8<<10)
	if err != nil {
		return State{}, err
	}
	for ; len(keys) >= 8; keys = keys[8:] {
		state.Keys = append(state.Keys, be.Uint64(keys))
	}
	return state, nil
}

// in returns the complete answer after its head.
func (s scsi) in(action byte, room int) ([]byte, error) {
	for {
		buf, err := s.receive(action, room)
		if err != nil {
			return nil, err
		}
		if len(buf) < 8 {
			return nil, fmt.Errorf("persistent reserve in: %d bytes, want 8 or more", len(buf))
		}
		const most = 0xfff8
		switch want := int64(be.Uint32(buf[4:])) + 8; {
		case want <= int64(len(buf)):
			return buf[8:want], nil
		case want > most:
			return nil, fmt.Errorf("persistent reserve in: answer of %d bytes, want at most %d", want, most)
		case int(want) <= room:
			return nil, fmt.Errorf("persistent reserve in: %d bytes of %d came", len(buf), want)
		default:
			room = most
		}
	}
}

// receive returns at most room bytes of an answer: excess bytes of a target are cut off.
func (s scsi) receive(action byte, room int) ([]byte, error) {
	cdb := make([]byte, cdbLen)
	cdb[0], cdb[1] = opPersistentReserveIn, action
	be.PutUint16(cdb[7:], uint16(room))
	buf := make([]byte, room)
	result, err := s.send(cdb, buf, false)
	return buf[:min(result.moved, room)], err
}

// send returns an error unless the device carried the command out.
func (s scsi) send(cdb, data []byte, out bool) (scsiResult, error) {
	result, err := s.dev.send(cdb, data, out)
	if err == nil {
		err = result.err()
	}
	return result, err
}

// err is nil if the command was carried out.
func (r scsiResult) err() error {
	switch r.status {
	case statusGood:
		return nil
	case statusConflict:
		return errConflict
	case statusBusy, statusTaskSetFull, statusTaskAborted:
		return fmt.Errorf("%w: SCSI status %02x", errAgain, r.status)
	case statusCheckCondition:
		return parseSense(r.sense).err()
	}
	return fmt.Errorf("SCSI status %02x", r.status)
}

// sense is the reason for which a device did not carry out a command.
type sense struct {
	key  byte
	code uint16 // additional sense code and its qualifier
	ok   bool
}

// parseSense reads sense data in fixed (70, 71) or in descriptor format (72, 73).
func parseSense(b []byte) sense {
	var s [14]byte
	switch n := copy(s[:], b); {
	case n >= 3 && s[0]&0x7e == 0x70:
		return sense{key: s[2] & 0x0f, code: be.Uint16(s[12:]), ok: true}
	case n >= 4 && s[0]&0x7e == 0x72:
		return sense{key: s[1] & 0x0f, code: be.Uint16(s[2:]), ok: true}
	}
	return sense{}
}

var senseTexts = map[uint16]string{
	0x2000: "invalid command operation code",
	0x2400: "invalid field in CDB",
	0x2500: "logical unit not supported",
	0x2600: "invalid field in parameter list",
	0x2601: "parameter not supported",
	0x2602: "parameter value invalid",
	0x2604: "invalid release of persistent reservation",
	0x2900: "power on or reset",
	0x2a03: "reservations preempted",
	0x2a04: "reservations released",
	0x2a05: "registrations preempted",
	0x5504: "insufficient registration resources",
}

func (s sense) String() string {
	if !s.ok {
		return "no sense data"
	}
	text := fmt.Sprintf("sense key %x, code %02x/%02x", s.key, s.code>>8, s.code&0xff)
	if t := senseTexts[s.code]; t != "" {
		text += " (" + t + ")"
	}
	return text
}

func (s sense) err() error {
	switch {
	case s.key == senseUnitAttention, s.key == senseAbortedCommand, s.key == senseNotReady:
		return fmt.Errorf("%w: %s", errAgain, s)
	case s.key == senseIllegalRequest && s.code != ascNoRegistrationRoom:
		return fmt.Errorf("%w: %s", errRefused, s)
	}
	return fmt.Errorf("check condition: %s", s)
}
