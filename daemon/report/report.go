// Package report interprets a snapshot of a lockspace: the hosts and their health, the locks with
// holders and queues, the reason why a lock is stuck, and everything that is wrong, with the remedy.
// bakeryctl and the status page display it, and judge nothing themselves. It is the JSON of
// GET /v1/status. Start reading at Build; problems.go judges.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Report is the output of `bakeryctl status` and of GET /v1/status. Ids, tickets and counters of 64
// bits are strings, for JSON readers with numbers of 53 bits. No list is null.
type Report struct {
	Lockspace Lockspace `json:"lockspace"` // the parameters
	ThisHost  *ThisHost `json:"this_host"` // nil if no daemon made the report
	Hosts     []Host    `json:"hosts"`     // hosts that ever joined, by id
	Locks     []Lock    `json:"locks"`     // by name
	Damaged   []Damage  `json:"damaged"`   // by offset
	Problems  []Problem `json:"problems"`  // the worst first

	// Disks are the member disks of the lockspace, by position; none if it is on one disk.
	Disks []Disk `json:"disks,omitempty"`
}

// Lockspace has the parameters of the lockspace.
type Lockspace struct {
	Name    string        `json:"name"` // name of the lockspace, at most 64 bytes; may be empty
	UUID    layout.UUID   `json:"uuid"`
	Device  string        `json:"device"`
	Stride  int           `json:"stride"` // bytes
	Hosts   int           `json:"hosts"`  // greatest number of hosts
	Locks   int           `json:"locks"`  // greatest number of locks
	LeaseMS int64         `json:"lease_ms"`
	Policy  layout.Policy `json:"policy"`
	// FenceAfterMS is how long a host may be silent before others fence it; 0: until its lease is over.
	FenceAfterMS int64     `json:"fence_after_ms,omitzero"`
	Formatted    time.Time `json:"formatted,omitzero"`
	Warnings     []string  `json:"warnings"` // what is wrong with the lockspace as a whole
}

// ThisHost is the state of the daemon that made the report.
type ThisHost struct {
	ID          int      `json:"id"`
	Name        string   `json:"name"` // name of the host, at most 64 bytes; may be empty
	Incarnation text.Hex `json:"incarnation"`
	// State is leaving while this host stops its clients to leave the lockspace, lost if it has lost
	// its lease, and joining after that in what the status page shows.
	State       string `json:"state" jsonschema_extras:"x-extensible-enum=joining,x-extensible-enum=live,x-extensible-enum=leaving,x-extensible-enum=lost"`
	LeaseLeftMS int64  `json:"lease_left_ms"` // 0 or negative after the end of the lease

	IO       *IO      `json:"io"`       // since the host joined
	Renewals *Latency `json:"renewals"` // renewals of the lease since bakeryd started
}

// IO has the latencies of the device.
type IO struct {
	Read     Latency `json:"read"`      // of reads
	Write    Latency `json:"write"`     // of writes
	InFlight int     `json:"in_flight"` // requests in flight
	OldestMS int64   `json:"oldest_ms"` // age of the oldest of them
}

// Latency is the distribution of the durations of an operation.
type Latency struct {
	Count uint64 `json:"count"`
	// Errors is the number of failed operations. For renewals it counts reads and writes.
	Errors uint64 `json:"errors"`
	P50US  int64  `json:"p50_us"`
	P99US  int64  `json:"p99_us"`
	MaxUS  int64  `json:"max_us"`
}

// Host is a host and its published state.
type Host struct {
	ID           int              `json:"id"`
	Name         string           `json:"name"`           // name of the host, at most 64 bytes; may be empty
	State        layout.HostState `json:"state"`          // as written last by the host, dead or not
	Health       Health           `json:"health"`         // as its renewals show it
	Dead         bool             `json:"dead"`           // whether a verdict on it exists
	Forgotten    bool             `json:"forgotten"`      // whether another machine may take its id
	AskedToLeave bool             `json:"asked_to_leave"` // whether a host asks it to leave
	// Unreadable reports whether the record is damaged. Then the fields are from an earlier read.
	Unreadable    bool      `json:"unreadable"`
	Incarnation   text.Hex  `json:"incarnation"`
	Sequence      uint64    `json:"sequence,string"` // grows with every renewal
	ReadHorizon   int       `json:"read_horizon"`
	MachineID     string    `json:"machine_id"` // empty if not known
	BootID        string    `json:"boot_id"`    // empty if not known
	WatchdogArmed bool      `json:"watchdog_armed"`
	WatchdogMS    int64     `json:"watchdog_ms"`
	PRKey         text.Hex  `json:"pr_key"`   // 0 if none
	Verdicts      []Verdict `json:"verdicts"` // those in its record, on other hosts

	// SilentMS is the time since the last renewal that the daemon saw, or since it saw that the host
	// has left; nil if the daemon saw none, or if no daemon made the report.
	SilentMS *int64 `json:"silent_ms,omitempty"`
	// DeadInMS is the time until a silent host is declared dead or fenced; nil if only an
	// operator can do that.
	DeadInMS     *int64 `json:"dead_in_ms,omitempty"`
	FailedFences int    `json:"failed_fences,omitempty"` // number of attempts to fence it that are over
	NextFenceMS  *int64 `json:"next_fence_ms,omitempty"` // time until the next attempt to fence it, in milliseconds; nil before the first one
	// Silence describes since when a silent, lost or unknown host is that, and how that ends.
	Silence string   `json:"silence,omitempty"`
	Times   []Moving `json:"times,omitempty"` // the times in that text

	outcome string // the end of Silence: what happens to a silent host
}

// Verdict is the verdict of a host on an incarnation of another.
type Verdict struct {
	Host        int                `json:"host"`
	Incarnation text.Hex           `json:"incarnation"`
	Kind        layout.VerdictKind `json:"kind"`
}

// Lock is a lock with its holders and waiters. The internal lock, with number 0 and no name, is
// reported only while it has any.
type Lock struct {
	Name     string   `json:"name"`
	Number   int      `json:"number"` // its place on the disk
	Permits  int      `json:"permits"`
	Creation uint64   `json:"creation,string"`
	Holders  []Holder `json:"holders"`         // by token
	Queue    []Queued `json:"queue"`           // in order
	Local    []Local  `json:"local,omitempty"` // clients of this host that wait, in order
	// Lingering reports that this host keeps the lock on the disk for its next client: no client has
	// it, and other hosts see it as held. Set for this host only.
	Lingering bool     `json:"lingering,omitempty"`
	Stuck     string   `json:"stuck"`           // reason why the lock is stuck, "" if it is not
	Times     []Moving `json:"times,omitempty"` // the times in that reason
}

// Holder is a host that holds a lock. For this host there is one for each client.
type Holder struct {
	Host     int           `json:"host"`
	HostName string        `json:"host_name"`
	PID      int           `json:"pid"` // 0 if unknown
	Command  string        `json:"command"`
	Since    time.Time     `json:"since,omitzero"`
	Mode     layout.Mode   `json:"mode"`
	Token    layout.Ticket `json:"token"`
	Phase    layout.Phase  `json:"phase"`
	// Published reports whether the disk shows the hold. Otherwise only its daemon knows it.
	Published bool `json:"published"`

	// HostHealth is the health of the host: whether the hold stands. If it is lost, the hold protects
	// nothing any more. Other hosts acquire the lock when they have declared the host dead, or when it
	// has joined again. If it is unknown, the hold stood when the disk was last read.
	HostHealth Health `json:"host_health,omitempty"`

	// Set for this host only:

	Containment string `json:"containment,omitempty"` // cgroup, or weak and why
	Orphan      bool   `json:"orphan"`                // whether only its command runs
	Processes   []int  `json:"processes,omitempty"`   // of the command of an orphan
}

// Queued is a host that waits for a lock. A host in phase choosing is drawing its number, or holds
// the lock: a short hold is not published as held.
type Queued struct {
	Place    int           `json:"place"` // from 1
	Host     int           `json:"host"`
	HostName string        `json:"host_name"`
	Mode     layout.Mode   `json:"mode"`
	Ticket   layout.Ticket `json:"ticket"`
	Phase    layout.Phase  `json:"phase"`
	// Under is the process above the client that holds another lock, 0 if not known.
	Under int `json:"under,omitempty"`

	UnderSince time.Time `json:"-"` // start of that hold
}

// Local is a client that waits in the daemon of this host.
type Local struct {
	PID     int         `json:"pid"`
	Command string      `json:"command"`
	Mode    layout.Mode `json:"mode"`
	Since   time.Time   `json:"since,omitzero"`
	Place   int         `json:"place"` // from 1
	// Under is the process above the client that holds a lock, 0 if none.
	Under int `json:"under,omitempty"`

	UnderSince time.Time `json:"-"` // start of that hold
}

// Damage is a record that could not be read or decoded.
type Damage struct {
	What   string               `json:"what"` // name of the record
	Kind   lockspace.RecordKind `json:"kind"`
	Lock   int                  `json:"lock_number"` // of the lock of an entry or a slot
	Host   int                  `json:"host"`        // id of the host of a host record or a slot
	Offset int64                `json:"offset"`
	Error  string               `json:"error"`
}

// FromSnapshot returns the report of a snapshot of member disks, none if it is of one, that no daemon
// watched.
func FromSnapshot(s *lockspace.Snapshot, members ...lockspace.MemberDisk) *Report {
	r := Build(s, nil)
	r.AddDisks(members)
	r.Judge()
	return r
}

// Build returns the report of a snapshot, with the knowledge of a daemon if k is not nil. The
// caller adds what the daemon knows of its clients, then calls Judge.
func Build(s *lockspace.Snapshot, k *Knowledge) *Report {
	r := &Report{
		Lockspace: LockspaceOf(s.Device.Path, s.Superblock),
		Hosts:     []Host{},
		Locks:     []Lock{},
		Damaged:   []Damage{},
	}
	r.Lockspace.Warnings = warnings(s)
	said := verdicts(s, k)
	for _, h := range s.Hosts {
		r.Hosts = append(r.Hosts, hostReport(s, h, false, said, k))
	}
	for _, d := range s.Damaged {
		r.Damaged = append(r.Damaged, Damage{What: d.Describe(), Kind: d.Kind, Lock: d.Lock, Host: d.Host,
			Offset: d.Offset, Error: d.Err.Error()})
		if d.Kind != lockspace.KindHost {
			continue
		}
		if h := k.remembered(d.Host); h.Incarnation != 0 {
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

// LockspaceOf returns the parameters in the superblock on a device.
func LockspaceOf(device string, sb layout.Superblock) Lockspace {
	return Lockspace{
		Name: sb.Name, UUID: sb.UUID, Device: device,
		Stride: sb.Geometry.Stride, Hosts: sb.Geometry.Hosts, Locks: sb.Geometry.Locks,
		LeaseMS: sb.Lease.Milliseconds(), Policy: sb.Policy, FenceAfterMS: sb.FenceAfter.Milliseconds(), Formatted: sb.Formatted,
	}
}

func warnings(s *lockspace.Snapshot) []string {
	all := []string{}
	for _, d := range s.Damaged {
		switch d.Kind {
		case lockspace.KindSuperblock:
			all = append(all, "the superblock is damaged, its copy is in use")
		case lockspace.KindCopy:
			all = append(all, "the copy of the superblock is damaged")
		}
	}
	if stride, physical := s.Superblock.Geometry.Stride, s.Device.PhysicalBlock; stride < physical && !s.Device.Regular {
		all = append(all, fmt.Sprintf("stride %d is below the physical block size of %d: "+
			"a write of one host may damage the records of others", stride, physical))
	}
	return all
}

// contending returns the slots that hold or want a lock, by lock: those that are not idle and not
// void. A slot is void if its incarnation was replaced, has left or is dead. A slot with an
// unreadable host record is not void.
func contending(s *lockspace.Snapshot, said lockspace.VerdictTable) map[int][]layout.Slot {
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
		void := said[lockspace.HostIncarnation{Host: slot.Host, Incarnation: slot.Incarnation}].Dead ||
			!unknown[slot.Host] && current[slot.Host] != slot.Incarnation
		if slot.Phase != layout.Idle && !void {
			slots[slot.Lock] = append(slots[slot.Lock], slot)
		}
	}
	return slots
}

// lockReport returns a lock with its holders and waiters. A host that is choosing is ahead of all
// that have a number.
func (r *Report) lockReport(e layout.Entry, slots []layout.Slot) Lock {
	l := Lock{Name: e.Name, Number: e.Lock, Permits: e.Permits, Creation: e.Creation,
		Holders: []Holder{}, Queue: []Queued{}}
	slices.SortFunc(slots, func(a, b layout.Slot) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Ticket, b.Ticket))
	})
	for _, slot := range slots {
		name := r.hostName(slot.Host)
		switch {
		// of an earlier lock in this place, or of a newer one
		case slot.Creation != e.Creation:
		case slot.Phase == layout.Held:
			l.Holders = append(l.Holders, Holder{Host: slot.Host, HostName: name,
				PID: slot.Holder.PID, Command: slot.Holder.Command, Since: slot.Holder.Since,
				Mode: slot.Mode, Token: slot.Ticket, Phase: slot.Phase, Published: true})
		default:
			l.Queue = append(l.Queue, Queued{Place: len(l.Queue) + 1, Host: slot.Host, HostName: name,
				Mode: slot.Mode, Ticket: slot.Ticket, Phase: slot.Phase, Under: slot.Holder.PID, UnderSince: slot.Holder.Since})
		}
	}
	return l
}

// HostByID returns a host of the report, nil if the report does not have it.
func (r *Report) HostByID(id int) *Host {
	if i := slices.IndexFunc(r.Hosts, func(h Host) bool { return h.ID == id }); i >= 0 {
		return &r.Hosts[i]
	}
	return nil
}

// IsThisHost reports whether the daemon of that host made the report.
func (r *Report) IsThisHost(id int) bool { return r.ThisHost != nil && r.ThisHost.ID == id }

func (r *Report) hostName(id int) string {
	if h := r.HostByID(id); h != nil {
		return h.Name
	}
	return ""
}

// Doubt returns HealthLost if the leases under all holds of the lock are over, HealthUnknown if all of
// them may be, or "".
func (l *Lock) Doubt() (doubt Health) {
	for _, h := range l.Holders {
		switch {
		case h.HostHealth != HealthLost && h.HostHealth != HealthUnknown:
			return ""
		case doubt != HealthUnknown:
			doubt = h.HostHealth
		}
	}
	return doubt
}

// Old reports whether other hosts may hold the locks that the report shows as free: the host that made it
// has no lease of its own any more, or has not answered since.
func (r *Report) Old() bool {
	return r.ThisHost != nil && slices.Contains([]string{StateLost, StateJoining, string(HealthUnknown)}, r.ThisHost.State)
}

// Free returns in a word the state of a lock that has no holder and no waiter in the report.
func (r *Report) Free(l *Lock) string {
	switch {
	case r.Old():
		return string(HealthUnknown)
	case l.Lingering:
		return "lingering"
	}
	return "free"
}

// TicketOf returns the ticket by which a host holds the lock or waits for it, and whether the disk
// shows the hold. The ticket is 0 if the host does neither.
func (l *Lock) TicketOf(host int) (ticket layout.Ticket, published bool) {
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

// Glance is the answer to GET /page/status. Without a report it has an error. With a report, the
// error says why what was read is old.
type Glance struct {
	At     time.Time  `json:"at"`               // time of the answer
	Report *Report    `json:"report,omitempty"` // state of the lockspace
	Read   GlanceRead `json:"read"`             // how it was read
	Error  *api.Error `json:"error,omitempty"`  // why it could not be read
}

// GlanceRead describes the reads behind a glance.
type GlanceRead struct {
	AgoMS   int64 `json:"ago_ms"`   // age of the report
	TookMS  int64 `json:"took_ms"`  // duration of the read
	Bytes   int64 `json:"bytes"`    // number of bytes that were read
	EveryMS int64 `json:"every_ms"` // interval at which the whole lockspace is read
}
