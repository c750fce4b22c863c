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
	Offset int64  `json:"offset"`
	Kind   string `json:"kind"`
	Lock   *int   `json:"lock,omitempty"`
	Host   int    `json:"host,omitempty"`
	Error  string `json:"error,omitempty"`
	Record any    `json:"record,omitempty"`
}

type superblockJSON struct {
	UUID      layout.UUID   `json:"uuid"`
	Name      string        `json:"name"`
	Stride    int           `json:"stride"`
	Hosts     int           `json:"hosts"`
	Locks     int           `json:"locks"`
	LeaseUS   int64         `json:"lease_us"`
	Policy    layout.Policy `json:"policy"`
	FenceUS   int64         `json:"fence_after_us,omitzero"`
	Formatted time.Time     `json:"formatted,omitzero"`
}

type hostJSON struct {
	State           layout.HostState `json:"state"`
	Name            string           `json:"name"`
	Incarnation     uint64           `json:"incarnation,string"`
	Sequence        uint64           `json:"sequence,string"`
	Highest         int              `json:"read_horizon"`
	MachineID       string           `json:"machine_id"`
	BootID          string           `json:"boot_id"`
	WatchdogArmed   bool             `json:"watchdog_armed"`
	WatchdogSeconds int              `json:"watchdog_seconds"`
	PRKey           uint64           `json:"pr_key,string"`
	Verdicts        []report.Verdict `json:"verdicts"`
	CannotRead      []complaintJSON  `json:"cannot_read,omitempty"`
}

// complaintJSON is an unreadable record that blocks a host: a slot or, if Host is 0, the entry of a lock.
type complaintJSON struct {
	Host int `json:"host,omitempty"`
	Lock int `json:"lock"`
}

type entryJSON struct {
	Name     string `json:"name"` // empty: free
	Permits  int    `json:"permits"`
	Creation uint64 `json:"creation,string"`
}

type slotJSON struct {
	Phase       layout.Phase  `json:"phase"`
	Mode        layout.Mode   `json:"mode"`
	Ticket      layout.Ticket `json:"ticket"`
	Incarnation uint64        `json:"incarnation,string"`
	Creation    uint64        `json:"creation,string"`
	Sequence    uint64        `json:"sequence,string"`
	PID         int           `json:"pid"`
	Since       time.Time     `json:"since,omitzero"`
	Command     string        `json:"command"`
	Value       []byte        `json:"value_base64"`
	ValueToken  layout.Ticket `json:"value_token"`
	Request     requestJSON   `json:"request,omitzero"`
}

type requestJSON struct {
	Ticket  layout.Ticket `json:"ticket"`
	At      time.Time     `json:"at,omitzero"`
	Message string        `json:"message"`
}

// RecordJSON writes a record of a device as one line of JSON.
func RecordJSON(w io.Writer, r lockspace.Record) error {
	d := recordJSON{Offset: r.Offset, Kind: string(r.Kind), Host: r.Host}
	if r.Kind == lockspace.KindEntry || r.Kind == lockspace.KindSlot {
		d.Lock = &r.Lock
	}
	switch {
	case r.Err != nil:
		d.Error = r.Err.Error()
	case r.Superblock != nil:
		sb := r.Superblock
		d.Record = superblockJSON{sb.UUID, sb.Name, sb.Geometry.Stride, sb.Geometry.Hosts, sb.Geometry.Locks,
			sb.Lease.Microseconds(), sb.Policy, sb.FenceAfter.Microseconds(), sb.Formatted}
	case r.HostRecord != nil:
		h := r.HostRecord
		host := hostJSON{State: h.State, Name: h.Name, Incarnation: h.Incarnation, Sequence: h.Sequence,
			Highest: h.ReadHorizon, MachineID: fmt.Sprintf("%x", h.MachineID), BootID: fmt.Sprintf("%x", h.BootID),
			WatchdogArmed: h.WatchdogArmed, WatchdogSeconds: int(h.WatchdogSeconds), PRKey: h.PRKey,
			Verdicts: []report.Verdict{}}
		for _, v := range h.Verdicts {
			host.Verdicts = append(host.Verdicts, report.Verdict(v))
		}
		for _, c := range h.Complaints {
			host.CannotRead = append(host.CannotRead, complaintJSON(c))
		}
		d.Record = host
	case r.Entry != nil:
		d.Record = entryJSON{r.Entry.Name, r.Entry.Permits, r.Entry.Creation}
	case r.Slot != nil:
		s := r.Slot
		d.Record = slotJSON{s.Phase, s.Mode, s.Ticket, s.Incarnation, s.Creation, s.Sequence,
			s.Holder.PID, s.Holder.Since, s.Holder.Command, append([]byte{}, s.Value...), s.ValueToken, requestJSON(s.Request)}
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
	case r.HostRecord != nil:
		writeHost(&b, r.HostRecord)
	case r.Entry != nil && r.Entry.Free():
		fmt.Fprintf(&b, "free creation %d", r.Entry.Creation)
	case r.Entry != nil:
		fmt.Fprintf(&b, "name %s permits %d creation %d", text.Printable(r.Entry.Name), r.Entry.Permits, r.Entry.Creation)
	case r.Slot != nil:
		writeSlot(&b, r.Slot)
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

func writeHost(b *strings.Builder, h *layout.HostRecord) {
	fmt.Fprintf(b, "%v name %s incarnation %016x sequence %d read horizon %d machine %x boot %x",
		h.State, text.Printable(h.Name), h.Incarnation, h.Sequence, h.ReadHorizon, h.MachineID, h.BootID)
	if h.WatchdogArmed {
		fmt.Fprintf(b, " watchdog %ds", h.WatchdogSeconds)
	}
	if h.PRKey != 0 {
		fmt.Fprintf(b, " prkey %#x", h.PRKey)
	}
	for _, v := range h.Verdicts {
		fmt.Fprintf(b, " verdict %v %d/%016x", v.Kind, v.Host, v.Incarnation)
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
	fmt.Fprintf(b, "%v %v ticket %v (number %d) incarnation %016x creation %d sequence %d",
		s.Phase, s.Mode, s.Ticket, s.Ticket.Number(), s.Incarnation, s.Creation, s.Sequence)
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
