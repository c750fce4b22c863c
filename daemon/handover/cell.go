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
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// A journal is cells of cellSize bytes. Cell 0 is the term, every other one a
// session or free. A cell is
//
//	bytes    what
//	0-3      CRC32C of bytes 4-2047, little-endian
//	4-2047   one JSON object as encoding/json writes it, then zeroes
//
// and a free cell is all zeroes. Cells do not cross pages, so each is written
// at once or not at all for whoever reads after the writer was killed.
const (
	cellSize      = 2048
	cellText      = 4 // where the object begins
	Cells         = 65536
	journalFormat = 1
)

const _ = uint(0 - 4096%cellSize) // cells do not cross pages

// Term says under which incarnation a bakeryd goes on, and since when
// its lease runs. New members must be omitted where they are zero: else the
// successor takes what its older version wrote for damaged.
type Term struct {
	UUID        layout.UUID   `json:"uuid"`
	Boot        BootText      `json:"boot"`
	HostID      int           `json:"host_id"`
	Incarnation uint64        `json:"incarnation"`
	T0          time.Duration `json:"t0_ns"` // on CLOCK_BOOTTIME
	Ready       bool          `json:"ready,omitzero"`
	Clean       bool          `json:"clean,omitzero"` // no write of the host record has failed, or is under way
	PRKey       uint64        `json:"pr_key,omitzero"`
}

// BootText is a boot id; its text is 32 hexadecimal digits.
type BootText [16]byte

func (b BootText) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, b[:]), nil }

func (b *BootText) UnmarshalText(text []byte) error { return unhex(b[:], text) }

// State is where a session stands.
type State string

const (
	Waiting  State = "waiting"
	Granted  State = "granted"
	Released State = "released"
)

// Session is what a client asked for and what it was given. The rule
// for new members is Term's.
type Session struct {
	ID          string        `json:"id"` // 32 lower-case hexadecimal digits
	Nth         uint64        `json:"nth"`
	State       State         `json:"state"`
	Name        string        `json:"name"`
	Lock        int           `json:"lock,omitzero"` // with Creation: only once it is known
	Creation    uint64        `json:"creation,omitzero"`
	Mode        layout.Mode   `json:"mode"`
	Permits     int           `json:"permits,omitzero"`
	LockPermits int           `json:"lock_permits,omitzero"` // those that the lock has; Permits: asked for
	PID         int           `json:"pid,omitzero"`
	Command     string        `json:"command,omitzero"`
	Peer        int           `json:"peer,omitzero"` // pid of the client
	PeerStarted uint64        `json:"peer_started,omitzero"`
	PeerUID     int           `json:"peer_uid,omitzero"`
	Token       layout.Ticket `json:"token,omitzero"` // of a grant
	Since       time.Time     `json:"since,omitzero"`
	Deadline    time.Duration `json:"deadline_ns,omitzero"` // until when it waits, on CLOCK_BOOTTIME; 0: for ever
	Witness     bool          `json:"witness,omitzero"`
	Try         bool          `json:"try,omitzero"`
	Cgroup      string        `json:"cgroup,omitzero"`      // directory of the command's cgroup
	Unconfirmed bool          `json:"unconfirmed,omitzero"` // a grant under which nothing runs yet
}

func (r *Term) check() error {
	switch {
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

// check accepts what the journal of a host may hold.
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
	case r.Cgroup != "" && !r.isGroup():
		return fmt.Errorf("cgroup %q, want that of the command of process %d", r.Cgroup, r.Peer)
	case r.Deadline < 0:
		return fmt.Errorf("deadline %v, want 0 or more", r.Deadline)
	case r.State == Granted && (r.Lock == 0 || r.Token == 0):
		return fmt.Errorf("granted lock %d with token %v", r.Lock, r.Token)
	case r.State == Waiting && r.Token != 0:
		return fmt.Errorf("waiting with token %v", r.Token)
	case r.Token != 0 && r.Token.Host() != host:
		return fmt.Errorf("token %v of host %d, want %d", r.Token, r.Token.Host(), host)
	}
	return nil
}

// isGroup reports whether the cgroup is one that the client's command can have. All in it is killed
// when the lock is lost.
func (r *Session) isGroup() bool {
	w, ok := cgroup.Named(filepath.Base(r.Cgroup))
	return ok && w.Started == r.PeerStarted && w.Session != "" && strings.HasPrefix(r.ID, w.Session) && CheckCgroup(r.Cgroup) == nil
}

// CheckSessionID accepts what can also be part of a file's name.
func CheckSessionID(id string) error {
	var b [16]byte
	if err := unhex(b[:], []byte(id)); err != nil {
		return fmt.Errorf("session %.40q: %w", id, err)
	}
	return nil
}

// unhex takes lower-case digits only: a text has one form.
func unhex(into, text []byte) error {
	if len(text) != hex.EncodedLen(len(into)) || bytes.ContainsAny(text, "ABCDEF") {
		return fmt.Errorf("want %d lower-case hexadecimal digits", hex.EncodedLen(len(into)))
	}
	_, err := hex.Decode(into, text)
	return err
}

// termCell is what stands in cell 0.
type termCell struct {
	Format int `json:"format"`
	Term
}

// encodeCell writes a record into a cell.
func encodeCell(cell []byte, record any) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return sealCell(cell, text)
}

// sealCell writes a record's text into a cell. It may be there already.
func sealCell(cell, text []byte) error {
	if len(text) > cellSize-cellText {
		return fmt.Errorf("record of %d bytes, want at most %d", len(text), cellSize-cellText)
	}
	clear(cell[cellText+copy(cell[cellText:], text):])
	binary.LittleEndian.PutUint32(cell, cellCRC(cell))
	return nil
}

// cellCRC sums what follows the checksum.
func cellCRC(cell []byte) uint32 {
	return crc32.Checksum(cell[cellText:], crc32.MakeTable(crc32.Castagnoli))
}

// append adds the record as encoding/json writes it, which takes longer than a
// grant has time for. The record is one that was checked.
func (r *Session) append(to []byte) []byte {
	to = line.AppendString(append(to, `{"id":`...), r.ID)
	to = strconv.AppendUint(append(to, `,"nth":`...), r.Nth, 10)
	to = line.AppendString(append(to, `,"state":`...), string(r.State))
	to = line.AppendString(append(to, `,"name":`...), r.Name)
	to = line.AppendNumber(to, `,"lock":`, int64(r.Lock))
	if r.Creation != 0 {
		to = strconv.AppendUint(append(to, `,"creation":`...), r.Creation, 10)
	}
	to = line.AppendString(append(to, `,"mode":`...), r.Mode.String())
	to = line.AppendNumber(to, `,"permits":`, int64(r.Permits))
	to = line.AppendNumber(to, `,"lock_permits":`, int64(r.LockPermits))
	to = line.AppendNumber(to, `,"pid":`, int64(r.PID))
	to = line.AppendText(to, `,"command":`, r.Command)
	to = line.AppendNumber(to, `,"peer":`, int64(r.Peer))
	if r.PeerStarted != 0 {
		to = strconv.AppendUint(append(to, `,"peer_started":`...), r.PeerStarted, 10)
	}
	to = line.AppendNumber(to, `,"peer_uid":`, int64(r.PeerUID))
	if r.Token != 0 {
		to = append(strconv.AppendUint(append(to, `,"token":"`...), uint64(r.Token), 10), '"')
	}
	if !r.Since.IsZero() {
		to = append(r.Since.AppendFormat(append(to, `,"since":"`...), time.RFC3339Nano), '"')
	}
	to = line.AppendNumber(to, `,"deadline_ns":`, int64(r.Deadline))
	if r.Witness {
		to = append(to, `,"witness":true`...)
	}
	if r.Try {
		to = append(to, `,"try":true`...)
	}
	to = line.AppendText(to, `,"cgroup":`, r.Cgroup)
	if r.Unconfirmed {
		to = append(to, `,"unconfirmed":true`...)
	}
	return append(to, '}')
}

// decodeCell reads a record. It accepts only what encodeCell makes of it:
// members that nobody knows, given twice or spelled otherwise are damage.
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

func isFree(cell []byte) bool {
	return len(bytes.TrimLeft(cell, "\x00")) == 0
}

// journalContent is a journal as it was read.
type journalContent struct {
	term     Term
	sessions []Session
	cells    map[string]int
	free     []int
	end      int
}

// decodeJournal reads a whole journal, of which it believes nothing.
func decodeJournal(r io.Reader, size int64, want Owner, now time.Duration) (*journalContent, error) {
	if size < cellSize || size%cellSize != 0 || size > Cells*cellSize {
		return nil, fmt.Errorf("%v, want 1 to %d cells of %d bytes", text.Bytes(size), Cells, cellSize)
	}
	c := &journalContent{cells: make(map[string]int), end: int(size / cellSize)}
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

func (c *journalContent) add(i int, cell []byte, want Owner, now time.Duration) error {
	if i == 0 {
		var tc termCell
		if err := decodeCell(cell, &tc); err != nil {
			return err
		}
		c.term = tc.Term
		return tc.checkAgainst(want, now)
	}
	if isFree(cell) {
		c.free = append(c.free, i)
		return nil
	}
	var s Session
	if err := decodeCell(cell, &s); err != nil {
		return err
	}
	if err := s.check(want.Host); err != nil {
		return err
	}
	if first, ok := c.cells[s.ID]; ok {
		return fmt.Errorf("session %s is in cell %d as well", s.ID, first)
	}
	c.cells[s.ID] = i
	c.sessions = append(c.sessions, s)
	return nil
}

func (tc *termCell) checkAgainst(want Owner, now time.Duration) error {
	if tc.Format != journalFormat {
		return fmt.Errorf("format %d, want %d", tc.Format, journalFormat)
	}
	if err := tc.check(); err != nil {
		return err
	}
	switch {
	case tc.UUID != want.UUID:
		return fmt.Errorf("of lockspace %s, want %s", tc.UUID, want.UUID)
	case tc.HostID != want.Host:
		return fmt.Errorf("of host id %d, want %d", tc.HostID, want.Host)
	case tc.Boot != want.boot:
		return fmt.Errorf("of boot %x, want %x", tc.Boot, want.boot)
	case tc.T0 > now:
		return fmt.Errorf("lease since %v after boot, and now it is %v", tc.T0, now)
	}
	return nil
}

// maxCgroup is the longest path of a cgroup that is kept, in bytes as they stand in the state file:
// what a record has room for.
const maxCgroup = 320

// CheckCgroup returns an error for a path that the state file cannot keep. A user may give cgroups
// any name, and a record that cannot be kept makes the state of all users void.
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

// Ticket is the one that the session's token is a grant of; 0: it has none.
func (r Session) Ticket() layout.Ticket {
	if r.Token == 0 {
		return 0
	}
	return layout.MakeTicket(r.Token.Number(), r.Token.Host())
}
