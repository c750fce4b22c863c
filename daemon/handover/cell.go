package handover

import (
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
	"time"
	"unicode/utf8"

	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// A handover file is a sequence of cells of cellSize bytes. Cell 0 is the term, every other cell is
// a session or free. A cell is
//
//	bytes    content
//	0-3      CRC32C of bytes 4-2047, little-endian
//	4-2047   one JSON object as encoding/json writes it, then zeroes
//
// and a free cell is all zeroes. Cells do not cross pages, so that a reader after the writer was
// killed finds each of them either complete or not written.
const (
	cellSize   = 2048
	cellText   = 4     // offset of the object
	MaxCells   = 65536 // the term and the sessions of a file
	fileFormat = 1
)

const _ = uint(0 - 4096%cellSize) // cells do not cross pages

// Term is the incarnation of a bakeryd and the start of its lease. New members must be omitted if
// they are zero: otherwise a newer process takes the record of an older one for damaged.
type Term struct {
	Format      int           `json:"format"` // set by QueueTerm
	UUID        layout.UUID   `json:"uuid"`
	Boot        BootText      `json:"boot"`
	HostID      int           `json:"host_id"`
	Incarnation uint64        `json:"incarnation"`
	T0          time.Duration `json:"t0_ns"` // on CLOCK_BOOTTIME
	Ready       bool          `json:"ready,omitzero"`
	// Clean reports whether no write of the host record failed or is in flight.
	Clean bool   `json:"clean,omitzero"`
	PRKey uint64 `json:"pr_key,omitzero"`
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
	case r.Format != fileFormat:
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

// encodeCell writes a record into a cell.
func encodeCell(cell []byte, record any) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return sealCell(cell, text)
}

// sealCell completes a cell with the text of a record, which may be in the cell already.
func sealCell(cell, text []byte) error {
	if len(text) > cellSize-cellText {
		return fmt.Errorf("record of %d bytes, want at most %d", len(text), cellSize-cellText)
	}
	clear(cell[cellText+copy(cell[cellText:], text):])
	binary.LittleEndian.PutUint32(cell, cellCRC(cell))
	return nil
}

// cellCRC returns the checksum of a cell.
func cellCRC(cell []byte) uint32 {
	return crc32.Checksum(cell[cellText:], crc32.MakeTable(crc32.Castagnoli))
}

// append appends the JSON of the record, as encoding/json writes it, but faster: it runs before
// every grant. The record is valid by check.
func (r *Session) append(to []byte) []byte {
	state, since := string(r.State), ""
	if !r.Since.IsZero() {
		since = r.Since.Format(time.RFC3339Nano)
	}
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
	line.Quoted(&o, `"token":`, &r.Token, false)
	o.Text(`"since":`, &since)
	o.Flag(`"witness":`, &r.Witness)
	o.Text(`"cgroup":`, &r.Cgroup)
	o.Flag(`"unconfirmed":`, &r.Unconfirmed)
	return o.End()
}

// decodeCell decodes a record. It accepts only the output of encodeCell: unknown members, duplicate
// ones and other spellings are damage.
func decodeCell(cell []byte, record any) error {
	if sum := binary.LittleEndian.Uint32(cell); sum != cellCRC(cell) {
		return errors.New("checksum does not match")
	}
	text := bytes.TrimRight(cell[cellText:], "\x00")
	if err := json.Unmarshal(text, record); err != nil {
		return err
	}
	var again [cellSize]byte
	if err := encodeCell(again[:], record); err != nil {
		return err
	}
	if !bytes.Equal(again[:], cell) {
		return errors.New("object is not as bakeryd writes it")
	}
	return nil
}

// content is the content of a handover file.
type content struct {
	term     Term
	sessions []Session      // as read; nil in a File
	cells    map[string]int // cells of the sessions, by session id
	free     []int          // free cells below end
	end      int            // number of cells in the file
}

// decodeFile reads and validates a handover file of the lockspace, boot and host id in want.
func decodeFile(r io.Reader, size int64, want Term, now time.Duration) (*content, error) {
	if size < cellSize || size%cellSize != 0 || size > MaxCells*cellSize {
		return nil, fmt.Errorf("%v, want 1 to %d cells of %d bytes", text.Bytes(size), MaxCells, cellSize)
	}
	c := &content{cells: make(map[string]int), end: int(size / cellSize)}
	cell := make([]byte, cellSize)
	for i := range c.end {
		if _, err := io.ReadFull(r, cell); err != nil {
			return nil, fmt.Errorf("cell %d: %w", i, err)
		}
		if err := c.add(i, cell, want, now); err != nil {
			return nil, fmt.Errorf("cell %d: %w", i, err)
		}
	}
	return c, nil
}

func (c *content) add(i int, cell []byte, want Term, now time.Duration) error {
	if i == 0 {
		if err := decodeCell(cell, &c.term); err != nil {
			return err
		}
		return c.term.checkAgainst(want, now)
	}
	if len(bytes.TrimLeft(cell, "\x00")) == 0 {
		c.free = append(c.free, i)
		return nil
	}
	var s Session
	if err := decodeCell(cell, &s); err != nil {
		return err
	}
	if err := s.check(want.HostID); err != nil {
		return err
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
