// Package report says what a snapshot of a lockspace means: the hosts and their health, the locks with holders and queues, and
// why a lock does not move. bakeryctl and the status page only draw it. It is the JSON of GET /v1/status.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Report is what `bakeryctl status` shows, and the answer of GET /v1/status. Ids, tickets and counters of 64 bits
// are strings, for readers of JSON that keep 53. No list is ever null.
type Report struct {
	Lockspace Lockspace `json:"lockspace"`
	ThisHost  *ThisHost `json:"this_host"` // nil if the report is not a daemon's
	Hosts     []Host    `json:"hosts"`     // those that ever joined, by id
	Locks     []Lock    `json:"locks"`     // by name
	Damaged   []Damage  `json:"damaged"`   // by offset
}

// Lockspace is what the hosts agree on.
type Lockspace struct {
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

// ThisHost is what a daemon says of itself.
type ThisHost struct {
	ID          int    `json:"id"`
	Name        string `json:"name"`
	Incarnation uint64 `json:"incarnation,string"`
	State       string `json:"state"`
	LeaseLeftMS int64  `json:"lease_left_ms"` // negative or 0: it is over

	IO       *IO      `json:"io"`       // since it joined
	Renewals *Latency `json:"renewals"` // of the lease, since bakeryd began
}

// IO is how the device does.
type IO struct {
	Read     Latency `json:"read"`
	Write    Latency `json:"write"`
	InFlight int     `json:"in_flight"` // requests under way
	OldestMS int64   `json:"oldest_ms"` // for how long the oldest of these has been
}

// Latency is how long something took.
type Latency struct {
	Count  uint64 `json:"count"`
	Errors uint64 `json:"errors"` // those of renewals are of single reads and writes: it is tried again
	P50US  int64  `json:"p50_us"`
	P99US  int64  `json:"p99_us"`
	MaxUS  int64  `json:"max_us"`
}

// Host is what a host publishes of itself.
type Host struct {
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
	Verdicts        []Verdict        `json:"verdicts"`

	// SilentMS is how long a daemon has seen no renewal; nil if nobody was watching.
	SilentMS *int64 `json:"silent_ms,omitempty"`
	// DeadInMS is when a silent host will be declared dead, or fenced, if it stays silent; nil if that takes a person.
	DeadInMS *int64 `json:"dead_in_ms,omitempty"`
}

// Verdict is what a host says of an incarnation of another.
type Verdict struct {
	Host        int                `json:"host"`
	Incarnation uint64             `json:"incarnation,string"`
	Kind        layout.VerdictKind `json:"kind"`
}

// Lock is a lock, who holds it and who waits for it. The internal lock, with number 0 and no name, is
// reported only while it is wanted.
type Lock struct {
	Name     string   `json:"name"`
	Lock     int      `json:"lock"`
	Permits  int      `json:"permits"`
	Creation uint64   `json:"creation,string"`
	Holders  []Holder `json:"holders"` // by token
	Queue    []Queued `json:"queue"`   // in order
	Local    []Local  `json:"local,omitempty"`
	Stuck    string   `json:"stuck"` // why it does not move, for people; empty: it does, or need not
}

// Holder is a host that holds a lock; of this host, each client that does.
type Holder struct {
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

// Queued is a host on its way to a lock. One that is choosing is drawing its number, or is already inside:
// a short hold is not shown as held.
type Queued struct {
	Place    int           `json:"place"` // from 1
	Host     int           `json:"host"`
	HostName string        `json:"host_name"`
	Mode     layout.Mode   `json:"mode"`
	Ticket   layout.Ticket `json:"ticket"`
	Phase    layout.Phase  `json:"phase"`
	Under    int           `json:"under,omitempty"` // process of that host below which a client waits, and which holds another lock; 0: not known

	UnderSince time.Time `json:"-"` // when that hold began
}

// Local is a client that waits inside this host's daemon.
type Local struct {
	PID     int         `json:"pid"`
	Command string      `json:"command"`
	Mode    layout.Mode `json:"mode"`
	Since   time.Time   `json:"since,omitzero"`
	Place   int         `json:"place"`           // from 1
	Under   int         `json:"under,omitempty"` // process below which it waits, and which holds a lock; 0: none

	UnderSince time.Time `json:"-"` // when that hold began
}

// Damage is a record that could not be read or decoded.
type Damage struct {
	What   string               `json:"what"`
	Kind   lockspace.RecordKind `json:"kind"`
	Lock   int                  `json:"lock"` // of an entry or a slot
	Host   int                  `json:"host"` // of a host record or a slot
	Offset int64                `json:"offset"`
	Error  string               `json:"error"`
}

// Of says what a snapshot means, as far as that shows on the disk.
func Of(s *lockspace.Snapshot) *Report {
	r := By(s, nil)
	r.Explain()
	return r
}

// By says what a snapshot means to one who may know more of the hosts.
func By(s *lockspace.Snapshot, k *Knowledge) *Report {
	r := &Report{
		Lockspace: lockspaceReport(s),
		Hosts:     []Host{},
		Locks:     []Lock{},
		Damaged:   []Damage{},
	}
	said := verdicts(s, k)
	for _, h := range s.Hosts {
		r.Hosts = append(r.Hosts, hostReport(s, h, false, said, k))
	}
	for _, d := range s.Damaged {
		r.Damaged = append(r.Damaged, Damage{What: d.What(), Kind: d.Kind, Lock: d.Lock, Host: d.Host,
			Offset: d.Offset, Error: d.Err.Error()})
		if h, ok := k.remembered(d); ok {
			r.Hosts = append(r.Hosts, hostReport(s, h, true, said, k))
		}
	}
	slices.SortFunc(r.Hosts, func(a, b Host) int { return cmp.Compare(a.ID, b.ID) })
	slots := contending(s, said)
	if internal := r.lockReport(layout.Entry{Permits: 1}, slots[0]); len(internal.Holders)+len(internal.Queue) > 0 {
		r.Locks = append(r.Locks, internal)
	}
	for _, e := range s.Entries {
		if !e.Free() {
			r.Locks = append(r.Locks, r.lockReport(e, slots[e.Lock]))
		}
	}
	slices.SortStableFunc(r.Locks, func(a, b Lock) int { return cmp.Compare(a.Name, b.Name) })
	return r
}

func lockspaceReport(s *lockspace.Snapshot) Lockspace {
	sb := s.Superblock
	r := Lockspace{
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
func (r *Report) lockReport(e layout.Entry, slots []layout.Slot) Lock {
	l := Lock{Name: e.Name, Lock: e.Lock, Permits: e.Permits, Creation: e.Creation,
		Holders: []Holder{}, Queue: []Queued{}}
	slices.SortFunc(slots, func(a, b layout.Slot) int {
		return cmp.Or(cmp.Compare(rank(a.Phase), rank(b.Phase)), cmp.Compare(a.Ticket, b.Ticket))
	})
	for _, slot := range slots {
		name := r.hostName(slot.Host)
		switch {
		case slot.Creation != e.Creation: // of a lock that had this place before, or, as of now, has it
		case slot.Phase == layout.Held:
			l.Holders = append(l.Holders, Holder{Host: slot.Host, HostName: name,
				PID: slot.Holder.PID, Command: slot.Holder.Command, Since: slot.Holder.Since,
				Mode: slot.Mode, Token: slot.Ticket, Phase: slot.Phase, Settled: true})
		default:
			l.Queue = append(l.Queue, Queued{Place: len(l.Queue) + 1, Host: slot.Host, HostName: name,
				Mode: slot.Mode, Ticket: slot.Ticket, Phase: slot.Phase, Under: slot.Holder.PID, UnderSince: slot.Holder.Since})
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
func (r *Report) host(id int) *Host {
	if i := slices.IndexFunc(r.Hosts, func(h Host) bool { return h.ID == id }); i >= 0 {
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

// Takes returns the ticket by which a host holds the lock or is on its way to
// it, and whether the disk shows it as held; 0: neither.
func (l *Lock) Takes(host int) (ticket layout.Ticket, settled bool) {
	for _, h := range l.Holders {
		if h.Host == host {
			return h.Token, true
		}
	}
	for _, q := range l.Queue {
		if q.Host == host {
			return q.Ticket, false
		}
	}
	return 0, false
}
