package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// recordJSON is a record of a device in JSON. 64-bit numbers are strings, because many readers keep only 53 bits.
type recordJSON struct {
	Offset int64                `json:"offset"`
	Kind   lockspace.RecordKind `json:"kind"`
	Lock   *int                 `json:"lock_number,omitempty"`
	Host   int                  `json:"host,omitempty"`
	// Position is that of the member disk; omitted if the lockspace is on one disk.
	Position int    `json:"disk,omitempty"`
	Error    string `json:"error,omitempty"`
	// Record is the record, by its kind. It is omitted if it could not be read.
	Record any `json:"record,omitempty" jsonschema:"anyof_ref=#/$defs/Superblock;#/$defs/Host;#/$defs/Entry;#/$defs/Slot"`
}

// membersJSON are the disks of a lockspace on several.
type membersJSON struct {
	Epoch     uint64       `json:"epoch,string"`
	Positions int          `json:"positions"` // number of positions
	Disks     []memberJSON `json:"disks"`     // without vacant positions
}

// memberJSON is a member disk.
type memberJSON struct {
	Position int         `json:"position"`
	UUID     layout.UUID `json:"uuid"`
}

func membersOf(m layout.Members) *membersJSON {
	if !m.Several() {
		return nil
	}
	members := &membersJSON{Epoch: m.Epoch, Positions: m.Positions}
	for i, id := range m.Disks {
		if !id.IsZero() {
			members.Disks = append(members.Disks, memberJSON{i + 1, id})
		}
	}
	return members
}

// superblockJSON is the superblock or its copy.
type superblockJSON struct {
	UUID      layout.UUID   `json:"uuid"`
	Name      string        `json:"name"` // name of the lockspace, at most 64 bytes; may be empty
	Stride    int           `json:"stride"`
	Hosts     int           `json:"hosts"` // greatest number of hosts
	Locks     int           `json:"locks"` // greatest number of locks
	LeaseUS   int64         `json:"lease_us"`
	Policy    layout.Policy `json:"policy"`
	FenceUS   int64         `json:"fence_after_us,omitzero"`
	Formatted time.Time     `json:"formatted,omitzero"`
	Members   *membersJSON  `json:"members,omitempty"` // nil if the lockspace is on one disk
}

// hostJSON is the record of a host.
type hostJSON struct {
	State         layout.HostState `json:"state"`
	Name          string           `json:"name"` // name of the host, at most 64 bytes; may be empty
	Incarnation   text.Hex         `json:"incarnation"`
	Sequence      uint64           `json:"sequence,string"`
	Highest       int              `json:"read_horizon"`
	MachineID     string           `json:"machine_id"`
	BootID        string           `json:"boot_id"`
	WatchdogArmed bool             `json:"watchdog_armed"`
	WatchdogMS    int64            `json:"watchdog_ms"`
	PRKey         text.Hex         `json:"pr_key"`                // 0 if none
	Verdicts      []report.Verdict `json:"verdicts"`              // those on other hosts
	CannotRead    []complaintJSON  `json:"cannot_read,omitempty"` // records that block the host
	Generation    uint32           `json:"generation,omitempty"`
	Epoch         uint64           `json:"epoch,string,omitempty"`
}

// complaintJSON is an unreadable record that blocks a host: a slot or, if the host
// is 0, the entry of a lock.
type complaintJSON struct {
	Host int `json:"host,omitempty"`
	Lock int `json:"lock_number"`
}

// entryJSON is an entry of the lock directory.
type entryJSON struct {
	Name     string        `json:"name"` // empty: free
	Permits  int           `json:"permits"`
	Creation uint64        `json:"creation,string"`
	Token    layout.Ticket `json:"token,omitzero"`
	Number   *uint64       `json:"token_number,string,omitempty"` // of the ticket that the token is; nil if there is no token
}

// slotJSON is the slot of a host in a lock.
type slotJSON struct {
	Phase       layout.Phase  `json:"phase"`
	Mode        layout.Mode   `json:"mode"`
	Ticket      layout.Ticket `json:"ticket"`
	Incarnation text.Hex      `json:"incarnation"`
	Creation    uint64        `json:"creation,string"`
	Sequence    uint64        `json:"sequence,string"`
	PID         int           `json:"pid"`
	Since       time.Time     `json:"since,omitzero"`
	Command     string        `json:"command"`
	Value       []byte        `json:"value"`            // value that the host left
	ValueToken  layout.Ticket `json:"value_token"`      // token under which it was set
	Request     requestJSON   `json:"request,omitzero"` // a request to the holders
	Generation  uint32        `json:"generation,omitempty"`
}

// requestJSON is a request to the holders of a lock.
type requestJSON struct {
	Ticket  layout.Ticket `json:"ticket"`
	At      time.Time     `json:"at,omitzero"` // when the request was made
	Message string        `json:"message"`
}

// RecordJSON writes a record of a device as one line of JSON.
func RecordJSON(w io.Writer, r lockspace.Record) error {
	d := recordJSON{Offset: r.Offset, Kind: r.Kind, Host: r.Host, Position: r.Position}
	if r.Kind == lockspace.KindEntry || r.Kind == lockspace.KindSlot {
		d.Lock = &r.Lock
	}
	switch {
	case r.Err != nil:
		d.Error = r.Err.Error()
	case r.Superblock != nil:
		sb := r.Superblock
		d.Record = superblockJSON{sb.UUID, sb.Name, sb.Geometry.Stride, sb.Geometry.Hosts, sb.Geometry.Locks,
			sb.Lease.Microseconds(), sb.Policy, sb.FenceAfter.Microseconds(), sb.Formatted, membersOf(sb.Members)}
	case r.HostRecord != nil:
		h := r.HostRecord
		host := hostJSON{State: h.State, Name: h.Name, Incarnation: text.Hex(h.Incarnation), Sequence: h.Sequence,
			Highest: h.ReadHorizon, MachineID: fmt.Sprintf("%x", h.MachineID), BootID: fmt.Sprintf("%x", h.BootID),
			WatchdogArmed: h.WatchdogArmed, WatchdogMS: int64(h.WatchdogSeconds) * 1000, PRKey: text.Hex(h.PRKey),
			Verdicts: []report.Verdict{}, Generation: h.Generation, Epoch: h.Epoch}
		for _, v := range h.Verdicts {
			host.Verdicts = append(host.Verdicts, report.Verdict{Host: v.Host, Incarnation: text.Hex(v.Incarnation), Kind: v.Kind})
		}
		for _, c := range h.Complaints {
			host.CannotRead = append(host.CannotRead, complaintJSON(c))
		}
		d.Record = host
	case r.Entry != nil:
		e := entryJSON{Name: r.Entry.Name, Permits: r.Entry.Permits, Creation: r.Entry.Creation, Token: r.Entry.Token}
		if r.Entry.Token != 0 {
			e.Number = &r.Entry.Sequence
		}
		d.Record = e
	case r.Slot != nil:
		s := r.Slot
		d.Record = slotJSON{s.Phase, s.Mode, s.Ticket, text.Hex(s.Incarnation), s.Creation, s.Sequence,
			s.Holder.PID, s.Holder.Since, s.Holder.Command, append([]byte{}, s.Value...), s.ValueToken, requestJSON(s.Request), s.Generation}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(d)
}

// Record writes one line for a record of a device: its offset, kind and fields.
func Record(w io.Writer, r lockspace.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%12d  %s: ", r.Offset, r.Describe())
	switch {
	case r.Err != nil:
		fmt.Fprintf(&b, "error: %v", r.Err)
	case r.Superblock != nil:
		sb := r.Superblock
		fmt.Fprintf(&b, "uuid %v name %s stride %d hosts %d locks %d lease %v policy %v formatted %s",
			sb.UUID, text.Printable(sb.Name), sb.Geometry.Stride, sb.Geometry.Hosts, sb.Geometry.Locks,
			sb.Lease, sb.Policy, stamp(sb.Formatted))
		if sb.FenceAfter > 0 {
			fmt.Fprintf(&b, " fence-after %v", sb.FenceAfter)
		}
		writeMembers(&b, sb.Members)
	case r.HostRecord != nil:
		writeHost(&b, r.HostRecord)
	case r.Entry != nil:
		writeEntry(&b, r.Entry)
	case r.Slot != nil:
		writeSlot(&b, r.Slot)
	}
	if r.Position > 0 {
		fmt.Fprintf(&b, " position %d", r.Position)
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

func writeMembers(b *strings.Builder, m layout.Members) {
	if !m.Several() {
		return
	}
	fmt.Fprintf(b, " epoch %d", m.Epoch)
	for i, id := range m.Disks[:m.Positions] {
		if id.IsZero() {
			fmt.Fprintf(b, " disk %d vacant", i+1)
		} else {
			fmt.Fprintf(b, " disk %d %v", i+1, id)
		}
	}
}

func writeEntry(b *strings.Builder, e *layout.Entry) {
	if e.Free() {
		b.WriteString("free")
	} else {
		fmt.Fprintf(b, "name %s permits %d", text.Printable(e.Name), e.Permits)
	}
	fmt.Fprintf(b, " creation %d", e.Creation)
	if e.Token != 0 {
		fmt.Fprintf(b, " token %v number %d", e.Token, e.Sequence)
	}
}

func writeHost(b *strings.Builder, h *layout.HostRecord) {
	fmt.Fprintf(b, "%v name %s incarnation %v sequence %d read horizon %d machine %x boot %x",
		h.State, text.Printable(h.Name), text.Hex(h.Incarnation), h.Sequence, h.ReadHorizon, h.MachineID, h.BootID)
	if h.WatchdogArmed {
		fmt.Fprintf(b, " watchdog %ds", h.WatchdogSeconds)
	}
	if h.PRKey != 0 {
		fmt.Fprintf(b, " prkey %v", text.Hex(h.PRKey))
	}
	if h.Generation != 0 {
		fmt.Fprintf(b, " generation %d", h.Generation)
	}
	if h.Epoch != 0 {
		fmt.Fprintf(b, " epoch %d", h.Epoch)
	}
	for _, v := range h.Verdicts {
		fmt.Fprintf(b, " verdict %v %d/%v", v.Kind, v.Host, text.Hex(v.Incarnation))
	}
	for _, c := range h.Complaints {
		if c.Host == 0 {
			fmt.Fprintf(b, " cannot-read entry %d", c.Lock)
		} else {
			fmt.Fprintf(b, " cannot-read slot %d/%d", c.Lock, c.Host)
		}
	}
}

func writeSlot(b *strings.Builder, s *layout.Slot) {
	fmt.Fprintf(b, "%v %v ticket %v (number %d) incarnation %v creation %d sequence %d",
		s.Phase, s.Mode, s.Ticket, s.Ticket.Number(), text.Hex(s.Incarnation), s.Creation, s.Sequence)
	if s.Generation != 0 {
		fmt.Fprintf(b, " generation %d", s.Generation)
	}
	if s.Holder != (layout.Holder{}) {
		fmt.Fprintf(b, " pid %d since %s command %q", s.Holder.PID, stamp(s.Holder.Since), s.Holder.Command)
	}
	if len(s.Value) > 0 || s.ValueToken != 0 {
		fmt.Fprintf(b, " value %q token %v", s.Value, s.ValueToken)
	}
	if q := s.Request; q.Ticket != 0 {
		fmt.Fprintf(b, " request to ticket %v at %s message %q", q.Ticket, stamp(q.At), q.Message)
	}
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format(time.RFC3339Nano)
}
