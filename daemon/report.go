package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Report is what `bakeryctl status` shows, and the answer of GET /v1/status. Ids, tickets and counters of 64 bits
// are strings, for readers of JSON that keep 53. No list is ever null.
type Report struct {
	Lockspace LockspaceReport `json:"lockspace"`
	ThisHost  *ThisHostReport `json:"this_host"` // nil if the report is not a daemon's
	Hosts     []HostReport    `json:"hosts"`     // those that ever joined, by id
	Locks     []LockReport    `json:"locks"`     // by name
	Damaged   []DamageReport  `json:"damaged"`   // by offset
}

// LockspaceReport is what the hosts agree on.
type LockspaceReport struct {
	Name      string        `json:"name"`
	UUID      layout.UUID   `json:"uuid"`
	Device    string        `json:"device"`
	Stride    int           `json:"stride"` // bytes
	Hosts     int           `json:"hosts"`
	Locks     int           `json:"locks"`
	LeaseMS   int64         `json:"lease_ms"`
	Policy    layout.Policy `json:"policy"`
	Formatted time.Time     `json:"formatted,omitzero"`
	Warnings  []string      `json:"warnings"`
}

// ThisHostReport is what a daemon says of itself.
type ThisHostReport struct {
	ID          int    `json:"id"`
	Name        string `json:"name"`
	Incarnation uint64 `json:"incarnation,string"`
	State       string `json:"state"`
	LeaseLeftMS int64  `json:"lease_left_ms"` // negative or 0: it is over

	IO       *IOReport      `json:"io"`       // since it joined
	Renewals *LatencyReport `json:"renewals"` // of the lease, since bakeryd began
}

// IOReport is how the device does.
type IOReport struct {
	Read     LatencyReport `json:"read"`
	Write    LatencyReport `json:"write"`
	InFlight int           `json:"in_flight"` // requests under way
	OldestMS int64         `json:"oldest_ms"` // for how long the oldest of these has been
}

// LatencyReport is how long something took.
type LatencyReport struct {
	Count  uint64 `json:"count"`
	Errors uint64 `json:"errors"` // those of renewals are of single reads and writes: it is tried again
	P50US  int64  `json:"p50_us"`
	P99US  int64  `json:"p99_us"`
	MaxUS  int64  `json:"max_us"`
}

// HostReport is what a host publishes of itself.
type HostReport struct {
	ID              int              `json:"id"`
	Name            string           `json:"name"`
	State           layout.HostState `json:"state"` // as it wrote it last, dead or not
	Health          Health           `json:"health"`
	Dead            bool             `json:"dead"`           // there is a verdict on this incarnation
	Forgotten       bool             `json:"forgotten"`      // and another machine may have its id
	AskedToLeave    bool             `json:"asked_to_leave"` // somebody wishes this incarnation to leave
	Unreadable      bool             `json:"unreadable"`     // the record is damaged: this is what a daemon read before
	Incarnation     uint64           `json:"incarnation,string"`
	Sequence        uint64           `json:"sequence,string"` // grows with every renewal
	Highest         int              `json:"highest"`
	MachineID       string           `json:"machine_id"`
	BootID          string           `json:"boot_id"`
	WatchdogArmed   bool             `json:"watchdog_armed"`
	WatchdogSeconds int              `json:"watchdog_seconds"`
	PRKey           uint64           `json:"pr_key,string"`
	Verdicts        []VerdictReport  `json:"verdicts"`

	// SilentMS is how long a daemon has seen no renewal; nil if nobody was watching.
	SilentMS *int64 `json:"silent_ms,omitempty"`
	// DeadInMS is when a silent host will be declared dead, or fenced, if it stays silent; nil if that takes a person.
	DeadInMS *int64 `json:"dead_in_ms,omitempty"`
}

// VerdictReport is what a host says of an incarnation of another.
type VerdictReport struct {
	Host        int                `json:"host"`
	Incarnation uint64             `json:"incarnation,string"`
	Kind        layout.VerdictKind `json:"kind"`
}

// LockReport is a lock, who holds it and who waits for it. The internal lock, with number 0 and no name, is
// reported only while it is wanted.
type LockReport struct {
	Name     string         `json:"name"`
	Lock     int            `json:"lock"`
	Permits  int            `json:"permits"`
	Creation uint64         `json:"creation,string"`
	Holders  []HolderReport `json:"holders"` // by token
	Queue    []QueueReport  `json:"queue"`   // in order
	Local    []LocalReport  `json:"local,omitempty"`
	Stuck    string         `json:"stuck"` // why it does not move, for people; empty: it does, or need not
}

// HolderReport is a host that holds a lock; of this host, each client that does.
type HolderReport struct {
	Host     int           `json:"host"`
	HostName string        `json:"host_name"`
	PID      int           `json:"pid"` // 0 if unknown
	Command  string        `json:"command"`
	Since    time.Time     `json:"since,omitzero"`
	Mode     layout.Mode   `json:"mode"`
	Token    layout.Ticket `json:"token"`
	Phase    layout.Phase  `json:"phase"`
	Settled  bool          `json:"settled"` // the disk shows it; else only its own daemon knows

	Containment string `json:"containment,omitempty"` // of this host: cgroup, or weak and why; empty: not known

	Orphan    bool  `json:"orphan"`              // of this host: the client is gone, its command lives
	Processes []int `json:"processes,omitempty"` // of an orphan: what lives of its command
}

// QueueReport is a host on its way to a lock. One that is choosing is drawing its number, or is already inside:
// a short hold is not shown as held.
type QueueReport struct {
	Place    int           `json:"place"` // from 1
	Host     int           `json:"host"`
	HostName string        `json:"host_name"`
	Mode     layout.Mode   `json:"mode"`
	Ticket   layout.Ticket `json:"ticket"`
	Phase    layout.Phase  `json:"phase"`
	Under    int           `json:"under,omitempty"` // process of that host below which a client waits, and which holds another lock; 0: not known

	underSince time.Time // when that hold began
}

// LocalReport is a client that waits inside this host's daemon.
type LocalReport struct {
	PID     int         `json:"pid"`
	Command string      `json:"command"`
	Mode    layout.Mode `json:"mode"`
	Since   time.Time   `json:"since,omitzero"`
	Place   int         `json:"place"`           // from 1
	Under   int         `json:"under,omitempty"` // process below which it waits, and which holds a lock; 0: none

	underSince time.Time // when that hold began
}

// DamageReport is a record that could not be read or decoded.
type DamageReport struct {
	What   string               `json:"what"`
	Kind   lockspace.RecordKind `json:"kind"`
	Lock   int                  `json:"lock"` // of an entry or a slot
	Host   int                  `json:"host"` // of a host record or a slot
	Offset int64                `json:"offset"`
	Error  string               `json:"error"`
}

// ReportOf says what a snapshot means, as far as that shows on the disk.
func ReportOf(s *lockspace.Snapshot) *Report {
	r := reportBy(s, nil)
	r.explain()
	return r
}

// reportBy says what a snapshot means to one who may know more of the hosts.
func reportBy(s *lockspace.Snapshot, k *knowledge) *Report {
	r := &Report{
		Lockspace: lockspaceReport(s),
		Hosts:     []HostReport{},
		Locks:     []LockReport{},
		Damaged:   []DamageReport{},
	}
	said := verdicts(s, k)
	for _, h := range s.Hosts {
		r.Hosts = append(r.Hosts, hostReport(s, h, false, said, k))
	}
	for _, d := range s.Damaged {
		r.Damaged = append(r.Damaged, DamageReport{What: d.What(), Kind: d.Kind, Lock: d.Lock, Host: d.Host,
			Offset: d.Offset, Error: d.Err.Error()})
		if h, ok := k.remembered(d); ok {
			r.Hosts = append(r.Hosts, hostReport(s, h, true, said, k))
		}
	}
	slices.SortFunc(r.Hosts, func(a, b HostReport) int { return cmp.Compare(a.ID, b.ID) })
	slots := contending(s, said)
	if internal := r.lockReport(layout.Entry{Permits: 1}, slots[0]); len(internal.Holders)+len(internal.Queue) > 0 {
		r.Locks = append(r.Locks, internal)
	}
	for _, e := range s.Entries {
		if !e.Free() {
			r.Locks = append(r.Locks, r.lockReport(e, slots[e.Lock]))
		}
	}
	slices.SortStableFunc(r.Locks, func(a, b LockReport) int { return cmp.Compare(a.Name, b.Name) })
	return r
}

func lockspaceReport(s *lockspace.Snapshot) LockspaceReport {
	sb := s.Superblock
	r := LockspaceReport{
		Name: sb.Name, UUID: sb.UUID, Device: s.Device.Path,
		Stride: sb.Geometry.Stride, Hosts: sb.Geometry.Hosts, Locks: sb.Geometry.Locks,
		LeaseMS: sb.Lease.Milliseconds(), Policy: sb.Policy, Formatted: sb.Formatted,
		Warnings: []string{},
	}
	for _, d := range s.Damaged {
		switch d.Kind {
		case lockspace.KindSuperblock:
			r.Warnings = append(r.Warnings, "the superblock is damaged, its copy is in use")
		case lockspace.KindCopy:
			r.Warnings = append(r.Warnings, "the copy of the superblock is damaged")
		}
	}
	if physical := s.Device.PhysicalBlock; sb.Geometry.Stride < physical && !s.Device.Regular {
		r.Warnings = append(r.Warnings, fmt.Sprintf("stride %d is below the physical block size of %d: "+
			"a write of one host may damage what its neighbours wrote", sb.Geometry.Stride, physical))
	}
	return r
}

// contending returns the slots that count, by lock: those that are not idle, and not void because their host has
// begun anew, has left or is dead. A slot whose host record is unreadable counts.
func contending(s *lockspace.Snapshot, said lockspace.Published) map[int][]layout.Slot {
	current := make(map[int]uint64)
	for _, h := range s.Hosts {
		if h.State != layout.StateLeft {
			current[h.ID] = h.Incarnation
		}
	}
	unknown := make(map[int]bool)
	for _, d := range s.Damaged {
		if d.Kind == lockspace.KindHost {
			unknown[d.Host] = true
		}
	}
	slots := make(map[int][]layout.Slot)
	for _, slot := range s.Slots {
		void := said[lockspace.Life{Host: slot.Host, Incarnation: slot.Incarnation}].Dead ||
			!unknown[slot.Host] && current[slot.Host] != slot.Incarnation
		if slot.Phase != layout.Idle && !void {
			slots[slot.Lock] = append(slots[slot.Lock], slot)
		}
	}
	return slots
}

// lockReport tells holders from those who wait. Whoever is choosing counts as ahead of all who have their number.
func (r *Report) lockReport(e layout.Entry, slots []layout.Slot) LockReport {
	l := LockReport{Name: e.Name, Lock: e.Lock, Permits: e.Permits, Creation: e.Creation,
		Holders: []HolderReport{}, Queue: []QueueReport{}}
	slices.SortFunc(slots, func(a, b layout.Slot) int {
		return cmp.Or(cmp.Compare(rank(a.Phase), rank(b.Phase)), cmp.Compare(a.Ticket, b.Ticket))
	})
	for _, slot := range slots {
		name := r.hostName(slot.Host)
		switch {
		case slot.Creation != e.Creation: // of a lock that had this place before, or, as of now, has it
		case slot.Phase == layout.Held:
			l.Holders = append(l.Holders, HolderReport{Host: slot.Host, HostName: name,
				PID: slot.Holder.PID, Command: slot.Holder.Command, Since: slot.Holder.Since,
				Mode: slot.Mode, Token: slot.Ticket, Phase: slot.Phase, Settled: true})
		default:
			l.Queue = append(l.Queue, QueueReport{Place: len(l.Queue) + 1, Host: slot.Host, HostName: name,
				Mode: slot.Mode, Ticket: slot.Ticket, Phase: slot.Phase, Under: slot.Holder.PID, underSince: slot.Holder.Since})
		}
	}
	return l
}

func rank(p layout.Phase) int {
	if p == layout.Choosing {
		return 0
	}
	return 1
}

// host returns what is reported of a host, nil if nothing is.
func (r *Report) host(id int) *HostReport {
	if i := slices.IndexFunc(r.Hosts, func(h HostReport) bool { return h.ID == id }); i >= 0 {
		return &r.Hosts[i]
	}
	return nil
}

func (r *Report) hostName(id int) string {
	if h := r.host(id); h != nil {
		return h.Name
	}
	return ""
}

// PrintableLine returns a command line as it is, or quoted if something in it would not show.
func PrintableLine(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}
