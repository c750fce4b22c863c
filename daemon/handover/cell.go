package handover

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// A handover file is a sequence of cells of cellSize bytes. Cell 0 is the term, every other cell is
// a session or free. A cell has room for two texts, and a seal that names the valid one:
//
//	bytes      content
//	0-7        the seal, in the byte order of the host; by its bits:
//	           0-31   CRC32C of the bits 32-63 and the text
//	           32-47  length of the text; 0 if the cell is free
//	           48     number of the text: 0 or 1
//	           49     set if the session has released the lock that the text says is granted
//	           56     1
//	8-2051     text 0: one JSON object as encoding/json writes it, then any bytes
//	2052-4095  text 1
//
// A record is written into the text that is not valid. Then one store of 8 bytes, which is atomic,
// makes it the valid one. Therefore a reader after the writer was killed finds the earlier record or
// the later one, whatever the writer had written of it: the stores of a goroutine are there in their
// order up to one of them, and a mutex orders those of different goroutines. All bytes that a reader
// uses are under the checksum.
const (
	cellSize   = 4096
	sealSize   = 8
	cellText   = (cellSize - sealSize) / 2 // the longest text
	MaxCells   = 65536                     // the term and the sessions of a file
	fileFormat = 2
)

const (
	sealLength   = 32      // number of the first bit
	sealNumber   = 1 << 48 // set for text 1
	sealReleased = 1 << 49
	sealIs       = 1 << 56
)

// voidSeal is that of cell 0 in a file that is not complete.
const voidSeal = math.MaxUint64

// Term is the incarnation of a bakeryd and the start of its lease. New members must be omitted if
// they are zero: otherwise a newer process takes the record of an older one for damaged.
type Term struct {
	Format      int           `json:"format"` // set by PutTerm
	UUID        layout.UUID   `json:"uuid"`
	Boot        BootText      `json:"boot"`
	HostID      int           `json:"host_id"`
	Incarnation uint64        `json:"incarnation"`
	T0          time.Duration `json:"t0_ns"` // on CLOCK_BOOTTIME
	Ready       bool          `json:"ready,omitzero"`
	// Clean reports whether no write of the host record failed or is in flight.
	Clean bool   `json:"clean,omitzero"`
	PRKey uint64 `json:"pr_key,omitzero"`
	// ReadHorizon is the greatest that any write of the host record has shown, with several disks.
	ReadHorizon int `json:"read_horizon,omitzero"`
	// Epoch is the newest of the list of member disks that any write of the host record has shown.
	Epoch uint64 `json:"epoch,omitzero"`
}

// BootText is a boot id; its text is 32 hexadecimal digits.
type BootText [16]byte

// MarshalText implements encoding.TextMarshaler.
func (b BootText) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, b[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *BootText) UnmarshalText(text []byte) error { return decodeHex(b[:], text) }

// State is the state of a session.
type State string

// The states.
const (
	Waiting  State = "waiting"
	Granted  State = "granted"
	Released State = "released"
)

// Session is the request of a client and its grant. New members must be omitted if they are zero,
// as in Term.
type Session struct {
	ID       string      `json:"id"` // 32 lower-case hexadecimal digits
	Nth      uint64      `json:"nth"`
	State    State       `json:"state"`
	Name     string      `json:"name"`
	Lock     int         `json:"lock,omitzero"` // set with Creation, as soon as it is known
	Creation uint64      `json:"creation,omitzero"`
	Mode     layout.Mode `json:"mode"`
	Permits  int         `json:"permits,omitzero"`
	// LockPermits are the permits of the lock, Permits those of the request.
	LockPermits int           `json:"lock_permits,omitzero"`
	PID         int           `json:"pid,omitzero"`
	Command     string        `json:"command,omitzero"`
	Peer        int           `json:"peer,omitzero"` // pid of the client
	PeerStarted uint64        `json:"peer_started,omitzero"`
	PeerUID     int           `json:"peer_uid,omitzero"`
	Token       layout.Ticket `json:"token,omitzero"` // of a grant
	Since       time.Time     `json:"since,omitzero"`
	Witness     bool          `json:"witness,omitzero"`
	Cgroup      string        `json:"cgroup,omitzero"`      // directory of the command's cgroup
	Unconfirmed bool          `json:"unconfirmed,omitzero"` // whether no command runs under the grant yet
}

func (r *Term) check() error {
	switch {
	case r.Format != fileFormat && r.Format != oldFormat:
		return fmt.Errorf("format %d, want %d", r.Format, fileFormat)
	case r.UUID.IsZero():
		return errors.New("no uuid")
	case r.Boot == BootText{}:
		return errors.New("no boot id")
	case r.HostID < 1 || r.HostID > layout.MaxHosts:
		return fmt.Errorf("host id %d, want 1 to %d", r.HostID, layout.MaxHosts)
	case r.Incarnation == 0:
		return errors.New("incarnation 0")
	case r.T0 < 0:
		return fmt.Errorf("lease since %v, want 0 or more", r.T0)
	case r.ReadHorizon < 0 || r.ReadHorizon > layout.MaxHosts:
		return fmt.Errorf("read horizon %d, want 0 to %d", r.ReadHorizon, layout.MaxHosts)
	}
	return nil
}

// check returns an error unless the session is valid in the handover file of a host.
func (r *Session) check(host int) error {
	if err := CheckSessionID(r.ID); err != nil {
		return err
	}
	if err := layout.ValidateLockName(r.Name); err != nil {
		return err
	}
	switch {
	case r.State != Waiting && r.State != Granted && r.State != Released:
		return fmt.Errorf("state %q", r.State)
	case r.Lock < 0 || r.Lock > layout.MaxLocks:
		return fmt.Errorf("lock %d, want 0 to %d", r.Lock, layout.MaxLocks)
	case r.Mode > layout.Shared:
		return fmt.Errorf("%v", r.Mode)
	case r.Permits < 0 || r.Permits > layout.MaxHosts:
		return fmt.Errorf("permits %d, want 0 to %d", r.Permits, layout.MaxHosts)
	case r.PID < 0 || r.PID > math.MaxInt32:
		return fmt.Errorf("pid %d, want 0 to %d", r.PID, math.MaxInt32)
	case r.Peer < 0 || r.Peer > math.MaxInt32:
		return fmt.Errorf("peer %d, want 0 to %d", r.Peer, math.MaxInt32)
	case r.Command != layout.TruncateCommand(r.Command):
		return fmt.Errorf("command %q, want at most %d bytes without control characters", r.Command, layout.MaxCommand)
	case r.Cgroup != "" && !r.hasOwnCgroup():
		return fmt.Errorf("cgroup %q, want that of the command of process %d", r.Cgroup, r.Peer)
	case r.State == Granted && (r.Lock == 0 || r.Token == 0):
		return fmt.Errorf("granted lock %d with token %v", r.Lock, r.Token)
	case r.State == Waiting && r.Token != 0:
		return fmt.Errorf("waiting with token %v", r.Token)
	case r.Token != 0 && r.Token.Host() != host:
		return fmt.Errorf("token %v of host %d, want %d", r.Token, r.Token.Host(), host)
	}
	return nil
}

// hasOwnCgroup reports whether the cgroup can be that of the client's command. All processes in it
// are killed when the lock is lost.
func (r *Session) hasOwnCgroup() bool {
	w, ok := cgroup.Named(filepath.Base(r.Cgroup))
	return ok && w.Started == r.PeerStarted && w.Session != "" && strings.HasPrefix(r.ID, w.Session) && CheckCgroup(r.Cgroup) == nil
}

// CheckSessionID returns an error unless id is a session id. A session id is valid in a file name.
func CheckSessionID(id string) error {
	var b [16]byte
	if err := decodeHex(b[:], []byte(id)); err != nil {
		return fmt.Errorf("session %.40q: %w", id, err)
	}
	return nil
}

// decodeHex decodes lower-case digits only, so that a value has one text.
func decodeHex(into, text []byte) error {
	if len(text) != hex.EncodedLen(len(into)) || bytes.ContainsAny(text, "ABCDEF") {
		return fmt.Errorf("want %d lower-case hexadecimal digits", hex.EncodedLen(len(into)))
	}
	_, err := hex.Decode(into, text)
	return err
}

// store makes a text the valid one of a cell. write appends it to a slice of the cell's memory.
func store(cell []byte, write func(to []byte) []byte) error {
	number := ^sealOf(cell).Load() & sealNumber
	to := textAt(cell, number)
	text := write(to[:0])
	if len(text) > cellText {
		return fmt.Errorf("record of %d bytes, want at most %d", len(text), cellText)
	}
	copy(to, text) // nothing, unless write has allocated memory
	sealOf(cell).Store(seal(number, text))
	return nil
}

// release marks the session of a cell as released, which needs no other text.
func release(cell []byte) {
	number := sealOf(cell).Load() & sealNumber
	length := sealOf(cell).Load() >> sealLength & math.MaxUint16
	sealOf(cell).Store(seal(number|sealReleased, textAt(cell, number)[:length]))
}

// erase makes a cell free.
func erase(cell []byte) { sealOf(cell).Store(seal(0, nil)) }

func sealOf(cell []byte) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&cell[:cellSize][0])) // cells begin at pages
}

// textAt returns the memory of the text with a number, which is 0 or sealNumber.
func textAt(cell []byte, number uint64) []byte {
	if number == 0 {
		return cell[sealSize:][:cellText:cellText]
	}
	return cell[sealSize+cellText:][:cellText:cellText]
}

// seal returns the seal of a text, with some of its upper bits.
func seal(bits uint64, text []byte) uint64 {
	s := sealIs | bits | uint64(len(text))<<sealLength
	var upper [4]byte
	binary.NativeEndian.PutUint32(upper[:], uint32(s>>32))
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	return s | uint64(crc32.Update(crc32.Checksum(upper[:], castagnoli), castagnoli, text))
}

// validText returns the text of a cell, empty if the cell is free, and whether its session is marked as
// released.
func validText(cell []byte) (text []byte, released bool, err error) {
	is := binary.NativeEndian.Uint64(cell)
	number, mark, length := is&sealNumber, is&sealReleased, is>>sealLength&math.MaxUint16
	if is == voidSeal {
		return nil, false, errors.New("the previous bakeryd could not write a record")
	}
	if length > cellText || is != seal(number|mark, textAt(cell, number)[:length]) {
		return nil, false, errors.New("checksum does not match")
	}
	return textAt(cell, number)[:length], mark != 0, nil
}

// append appends the JSON of the record, as encoding/json writes it, but faster: it runs before
// every grant. The record is valid by check.
func (r *Session) append(to []byte) []byte {
	state := string(r.State)
	o := line.Write(to)
	o.Text(`"id":`, &r.ID)
	line.Number(&o, `"nth":`, &r.Nth, true)
	o.Text(`"state":`, &state)
	o.Text(`"name":`, &r.Name)
	line.Number(&o, `"lock":`, &r.Lock, false)
	line.Number(&o, `"creation":`, &r.Creation, false)
	line.Quoted(&o, `"mode":`, &r.Mode, true)
	line.Number(&o, `"permits":`, &r.Permits, false)
	line.Number(&o, `"lock_permits":`, &r.LockPermits, false)
	line.Number(&o, `"pid":`, &r.PID, false)
	o.Text(`"command":`, &r.Command)
	line.Number(&o, `"peer":`, &r.Peer, false)
	line.Number(&o, `"peer_started":`, &r.PeerStarted, false)
	line.Number(&o, `"peer_uid":`, &r.PeerUID, false)
	o.Digits(`"token":`, uint64(r.Token), false)
	if !r.Since.IsZero() {
		o.Time(`"since":`, r.Since)
	}
	o.Flag(`"witness":`, &r.Witness)
	o.Text(`"cgroup":`, &r.Cgroup)
	o.Flag(`"unconfirmed":`, &r.Unconfirmed)
	return o.End()
}

// decode decodes a record. It accepts only what encoding/json writes: unknown members, duplicate
// ones and other spellings are damage.
func decode(text []byte, record any) error {
	if err := json.Unmarshal(text, record); err != nil {
		return err
	}
	again, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, text) {
		return errors.New("object is not as bakeryd writes it")
	}
	return nil
}

// content is the content of a handover file.
type content struct {
	term     Term
	sessions []Session      // as read; nil in a File
	cells    map[string]int // cells of the sessions, by session id
	free     []int          // free cells
}

// decodeFile reads and validates a handover file of the lockspace, boot and host id in want.
func decodeFile(r io.Reader, size int64, want Term, now time.Duration) (*content, error) {
	in := bufio.NewReader(r)
	bytesOf, textOf := int64(cellSize), validText
	if isOld(in) {
		bytesOf, textOf = oldCellSize, oldText
	}
	if size < bytesOf || size%bytesOf != 0 || size > MaxCells*bytesOf {
		return nil, fmt.Errorf("%v, want 1 to %d cells of %d bytes", text.Bytes(size), MaxCells, bytesOf)
	}
	c := &content{cells: make(map[string]int)}
	cell := make([]byte, bytesOf)
	for i := range int(size / bytesOf) {
		_, err := io.ReadFull(in, cell)
		var record []byte
		var released bool
		if err == nil {
			record, released, err = textOf(cell)
		}
		if err == nil {
			err = c.add(i, record, released, want, now)
		}
		if err != nil {
			return nil, fmt.Errorf("cell %d: %w", i, err)
		}
	}
	return c, nil
}

func (c *content) add(i int, record []byte, released bool, want Term, now time.Duration) error {
	if i == 0 {
		if err := decode(record, &c.term); err != nil {
			return err
		}
		return c.term.checkAgainst(want, now)
	}
	if len(record) == 0 {
		c.free = append(c.free, i)
		return nil
	}
	var s Session
	if err := decode(record, &s); err != nil {
		return err
	}
	if err := s.check(want.HostID); err != nil {
		return err
	}
	if released {
		s.State, s.Unconfirmed = Released, false
	}
	if first, ok := c.cells[s.ID]; ok {
		return fmt.Errorf("session %s is in cell %d as well", s.ID, first)
	}
	c.cells[s.ID] = i
	c.sessions = append(c.sessions, s)
	return nil
}

func (r *Term) checkAgainst(want Term, now time.Duration) error {
	if err := r.check(); err != nil {
		return err
	}
	switch {
	case r.UUID != want.UUID:
		return fmt.Errorf("of lockspace %s, want %s", r.UUID, want.UUID)
	case r.HostID != want.HostID:
		return fmt.Errorf("of host id %d, want %d", r.HostID, want.HostID)
	case r.Boot != want.Boot:
		return fmt.Errorf("of boot %x, want %x", r.Boot, want.Boot)
	case r.T0 > now:
		return fmt.Errorf("lease since %v after boot, and now it is %v", r.T0, now)
	}
	return nil
}

// maxCgroup is the length in bytes of the longest cgroup path that fits into a record, as escaped
// in the file.
const maxCgroup = 320

// CheckCgroup returns an error for a path that a record cannot have. Users choose names of cgroups,
// and an invalid record makes the handover file of all users void.
func CheckCgroup(dir string) error {
	switch n := len(line.AppendString(nil, dir)) - len(`""`); {
	case !utf8.ValidString(dir):
		return fmt.Errorf("the path of cgroup %.40q... is not UTF-8", dir)
	case n > maxCgroup:
		return fmt.Errorf("the path of cgroup %.40q... is too long: %d bytes, want at most %d", dir, n, maxCgroup)
	case !filepath.IsAbs(dir) || filepath.Clean(dir) != dir:
		return fmt.Errorf("cgroup %.40q... is not an absolute path", dir)
	}
	return nil
}

// Ticket returns the ticket of the session's token, 0 if it has none.
func (r Session) Ticket() layout.Ticket {
	return r.Token - r.Token%layout.MaxGrants
}
