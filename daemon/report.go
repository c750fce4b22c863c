package daemon

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

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
}

// HostReport is what a host publishes of itself.
type HostReport struct {
	ID              int              `json:"id"`
	Name            string           `json:"name"`
	State           layout.HostState `json:"state"` // as it wrote it last, dead or not
	Dead            bool             `json:"dead"`  // there is a verdict on this incarnation
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
}

// VerdictReport says that an incarnation of a host is dead.
type VerdictReport struct {
	Host        int    `json:"host"`
	Incarnation uint64 `json:"incarnation,string"`
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
}

// HolderReport is a host that holds a lock.
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
}

// LocalReport is a client that waits inside this host's daemon.
type LocalReport struct {
	PID     int         `json:"pid"`
	Command string      `json:"command"`
	Mode    layout.Mode `json:"mode"`
	Since   time.Time   `json:"since,omitzero"`
	Place   int         `json:"place"` // from 1
}

// DamageReport is a record that could not be read or decoded.
type DamageReport struct {
	What   string `json:"what"`
	Offset int64  `json:"offset"`
	Error  string `json:"error"`
}

// Report says what a snapshot means.
func (s *Snapshot) Report() *Report {
	r := &Report{
		Lockspace: s.lockspaceReport(),
		Hosts:     []HostReport{},
		Locks:     []LockReport{},
		Damaged:   []DamageReport{},
	}
	dead := s.verdicts()
	for _, h := range s.Hosts {
		r.Hosts = append(r.Hosts, hostReport(h, dead))
	}
	for _, d := range s.Damaged {
		r.Damaged = append(r.Damaged, DamageReport{What: d.What(), Offset: d.Offset, Error: d.Err.Error()})
	}
	slots := s.contending(dead)
	if internal := s.lockReport(layout.Entry{Permits: 1}, slots[0]); len(internal.Holders)+len(internal.Queue) > 0 {
		r.Locks = append(r.Locks, internal)
	}
	for _, e := range s.Entries {
		if !e.Free() {
			r.Locks = append(r.Locks, s.lockReport(e, slots[e.Lock]))
		}
	}
	slices.SortStableFunc(r.Locks, func(a, b LockReport) int { return cmp.Compare(a.Name, b.Name) })
	return r
}

func (s *Snapshot) lockspaceReport() LockspaceReport {
	sb := s.Superblock
	r := LockspaceReport{
		Name: sb.Name, UUID: sb.UUID, Device: s.Device.Path,
		Stride: sb.Geometry.Stride, Hosts: sb.Geometry.Hosts, Locks: sb.Geometry.Locks,
		LeaseMS: sb.Lease.Milliseconds(), Policy: sb.Policy, Formatted: sb.Formatted,
		Warnings: []string{},
	}
	for _, d := range s.Damaged {
		switch d.Kind {
		case KindSuperblock:
			r.Warnings = append(r.Warnings, "the superblock is damaged, its copy is in use")
		case KindCopy:
			r.Warnings = append(r.Warnings, "the copy of the superblock is damaged")
		}
	}
	if physical := s.Device.PhysicalBlock; sb.Geometry.Stride < physical && !s.Device.Regular {
		r.Warnings = append(r.Warnings, fmt.Sprintf("stride %d is below the physical block size of %d: "+
			"a write of one host may damage what its neighbours wrote", sb.Geometry.Stride, physical))
	}
	return r
}

// verdicts returns every verdict that is published.
func (s *Snapshot) verdicts() map[layout.Verdict]bool {
	dead := make(map[layout.Verdict]bool)
	for _, h := range s.Hosts {
		for _, v := range h.Verdicts {
			dead[v] = true
		}
	}
	return dead
}

func hostReport(h layout.HostRecord, dead map[layout.Verdict]bool) HostReport {
	r := HostReport{
		ID: h.ID, Name: h.Name, State: h.State, Dead: dead[layout.Verdict{Host: h.ID, Incarnation: h.Incarnation}],
		Incarnation: h.Incarnation, Sequence: h.Sequence, Highest: h.Highest,
		MachineID: hex.EncodeToString(h.MachineID[:]), BootID: hex.EncodeToString(h.BootID[:]),
		WatchdogArmed: h.WatchdogArmed, WatchdogSeconds: int(h.WatchdogSeconds), PRKey: h.PRKey,
		Verdicts: []VerdictReport{},
	}
	for _, v := range h.Verdicts {
		r.Verdicts = append(r.Verdicts, VerdictReport(v))
	}
	return r
}

// contending returns the slots that count, by lock: those that are not idle, and not void because their host has
// begun anew, has left or is dead. A slot whose host record is unreadable counts.
func (s *Snapshot) contending(dead map[layout.Verdict]bool) map[int][]layout.Slot {
	current := make(map[int]uint64)
	for _, h := range s.Hosts {
		if h.State != layout.StateLeft && !dead[layout.Verdict{Host: h.ID, Incarnation: h.Incarnation}] {
			current[h.ID] = h.Incarnation
		}
	}
	unknown := make(map[int]bool)
	for _, d := range s.Damaged {
		if d.Kind == KindHost {
			unknown[d.Host] = true
		}
	}
	slots := make(map[int][]layout.Slot)
	for _, slot := range s.Slots {
		if slot.Phase != layout.Idle && (unknown[slot.Host] || current[slot.Host] == slot.Incarnation) {
			slots[slot.Lock] = append(slots[slot.Lock], slot)
		}
	}
	return slots
}

// lockReport tells holders from those who wait. Whoever is choosing counts as ahead of all who have their number.
func (s *Snapshot) lockReport(e layout.Entry, slots []layout.Slot) LockReport {
	r := LockReport{Name: e.Name, Lock: e.Lock, Permits: e.Permits, Creation: e.Creation,
		Holders: []HolderReport{}, Queue: []QueueReport{}}
	slices.SortFunc(slots, func(a, b layout.Slot) int {
		return cmp.Or(cmp.Compare(rank(a.Phase), rank(b.Phase)), cmp.Compare(a.Ticket, b.Ticket))
	})
	for _, slot := range slots {
		name := s.hostName(slot.Host)
		switch {
		case slot.Creation != e.Creation: // of a lock that had this place before, or, as of now, has it
		case slot.Phase == layout.Held:
			r.Holders = append(r.Holders, HolderReport{Host: slot.Host, HostName: name,
				PID: slot.Holder.PID, Command: slot.Holder.Command, Since: slot.Holder.Since,
				Mode: slot.Mode, Token: slot.Ticket, Phase: slot.Phase, Settled: true})
		default:
			r.Queue = append(r.Queue, QueueReport{Place: len(r.Queue) + 1, Host: slot.Host, HostName: name,
				Mode: slot.Mode, Ticket: slot.Ticket, Phase: slot.Phase})
		}
	}
	return r
}

func rank(p layout.Phase) int {
	if p == layout.Choosing {
		return 0
	}
	return 1
}

func (s *Snapshot) hostName(id int) string {
	for _, h := range s.Hosts {
		if h.ID == id {
			return h.Name
		}
	}
	return ""
}
