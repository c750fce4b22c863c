// Package membership drives the lease of one host: it reads the host table and writes the host record at the times that the
// pure machine of package lease names, registers and uses fencing keys, and says when tickets may be taken, slots written
// and locks granted. It knows nothing of locks, except that their IO may be stuck.
package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/daemon/standing"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/daemon/warn"
	"github.com/bakeryd/bakeryd/layout"
)

// Member drives the lease on the device. Its IO runs in separate goroutines, so that no IO delays
// the timer by which the lease expires.
type Member struct {
	cfg Config

	set Set // Config.Dev, if the lockspace is on several disks; nil if on one

	trouble   atomic.Pointer[ioTrouble] // of the last IO of the lease; nil if that succeeded
	delayed   atomic.Pointer[delay]     // why joining takes longer; nil if it does not
	noted     []notedHost               // in the event journal, by host id - 1; nil if none yet
	noting    atomic.Bool               // a goroutine uses noted and zeroed
	zeroed    warn.Limiter              // for warnings about lost records
	distrusts warn.Limiter              // for members that are checked
	waits     warn.Limiter              // for renewals that wait for locks; owned by the write in flight
	begun     atomic.Int64              // when a read of the table last began or was requested
	alarm     clock.Alarm               // rings when the machine needs the time

	registered atomic.Pointer[registration] // with the fence agent; nil if not
	first      uint64                       // next incarnation, of which the key is made
	boot       [16]byte                     // of this machine; zero if the system has none

	mu          sync.Mutex // guards the fields up to keeper
	m           *lease.Machine
	changed     chan struct{} // closed and replaced after every event
	reason      error
	cut         time.Duration // holds end then at the latest, whatever the lease says
	turned      time.Duration // when the loop began its last turn
	ringsAt     time.Duration // what the alarm is set to
	reading     underWay
	writing     underWay
	suspect     stall.IO                // IO of a lock that is nearly stuck
	suspectedAt time.Duration           // when suspect was first seen
	found       layout.HostRecord       // that of the own host id in the last read before this host was live
	readBegan   time.Duration           // when the last read of the table began
	renewing    time.Duration           // when the read began that the write in flight follows
	wished      map[layout.Verdict]bool // hosts that this one has asked to leave, with kind 0
	attempts    map[int]*attempt        // to fence hosts, by id: the last one that has not ended

	failedFences map[int]time.Duration // when the last attempt to fence a host ended without success, by id
	generation   uint32                // of the host id; 0 with one disk, or if not live yet
	written      uint64                // incarnation of the last record that was written
	epoch        uint64                // of the list of member disks that the machine knows; 0 with one disk
	wanted       uint64                // newest epoch for which Follow was called; 0 if none
	wantedAt     time.Duration         // when it was called last
	following    bool                  // Follow is under way
	unlisted     warn.Limiter          // for lists of member disks that were not found
	hosts        []lease.Host          // snapshot after the last event; nil if not requested yet

	keeper  *handover.File // gets every term of the lease; nil if none
	keeping sync.Mutex     // held while it does, before mu

	asked      chan lease.Asked        // an operator asks this host to leave; has room for one
	complaints chan []layout.Complaint // of other hosts; has room for one, because they are repeated
	renewals   chan struct{}           // the lease was renewed; has room for one

	ready  chan struct{}   // closed when tickets may be taken
	lost   chan struct{}   // closed when the lease is over
	over   context.Context // ended by finish when the machine has ended
	finish context.CancelFunc
	io     sync.WaitGroup
}

// Config is what a member needs.
type Config struct {
	Dev      blockdev.Device // a Set if the lockspace is on several disks
	SB       layout.Superblock
	Log      *slog.Logger
	Identity *hostid.Identity
	Clock    clock.Clock
	// Fence is how this host fences others, if the recovery policy is fence. Devices are those in
	// addition to Dev; Members are set if Dev is on several disks; Key is the previous process's, which
	// Join replaces without Lease.Resume.
	Fence    fence.Config
	NewAgent func(fence.Config) (fence.Agent, error) // [fence.New], or another one in a simulation

	Events *events.Log // nil: none
	Tally  *tally.Tally

	Stalls     *stall.Watch      // IO of locks that other hosts may wait for
	Quarantine *stall.Quarantine // locks with IO by which the lease ended

	Lease   lease.Config // ID, Self, Reclaim and Resume; Join sets the others
	Earlier uint64       // incarnation of the last term of this process; 0 if none

	// Previous is the handover file of the process that Lease.Resume continues. It gets the terms of
	// that incarnation until KeepTerms.
	Previous *handover.File

	// Take is called before each write of the record of a host id that this process has the lock file of, to
	// lock it on the member disks; nil: none.
	Take func(host int)

	// WarnOfName logs a warning if another live host has the name of this one.
	WarnOfName bool

	Alive      func() // called at every turn of the loop; nil: none
	AliveEvery time.Duration
}

// Join returns a member that begins to join. If the host id is known, it first registers the key by which
// other hosts can cut this one off; else the first write does. It returns the errors of that, and of
// making a timer.
func Join(cfg Config) (*Member, error) {
	mb := &Member{
		cfg: cfg, first: newIncarnation(), boot: hostid.BootID(), changed: make(chan struct{}), cut: math.MaxInt64,
		wished: map[layout.Verdict]bool{}, attempts: map[int]*attempt{}, failedFences: map[int]time.Duration{},
		reading: underWay{what: "reading the host table"}, writing: underWay{what: "writing the host record"},
		asked: make(chan lease.Asked, 1), complaints: make(chan []layout.Complaint, 1), renewals: make(chan struct{}, 1),
		ready: make(chan struct{}), lost: make(chan struct{}),
	}
	mb.over, mb.finish = context.WithCancel(context.Background())
	if cfg.SB.Policy != layout.PolicyFence {
		if cfg.Fence.Command != "" || len(cfg.Fence.Devices) > 0 {
			cfg.Log.Warn("fence agent ignored: the lockspace has another recovery policy", "policy", cfg.SB.Policy)
		}
		mb.cfg.Fence.Key = 0
	}
	l := &mb.cfg.Lease
	if cfg.SB.Members.Several() {
		mb.set = cfg.Dev.(Set)
		mb.epoch = mb.set.Superblock().Members.Epoch
		l.Members, l.Self.Epoch = cfg.SB.Members.Positions, mb.epoch
	}
	mb.keeper = cfg.Previous
	l.Hosts, l.Times, l.Policy, l.Incarnation = cfg.SB.Geometry.Hosts, mb.times(), cfg.SB.Policy, mb.incarnation
	l.Left, l.Had = cfg.Identity.LeftIncarnations(), cfg.Identity.JoinedHosts()
	mb.m = lease.New(*l)
	if l.ID != 0 || l.Resume != nil {
		if err := mb.register(l.ID, mb.first); err != nil {
			return nil, err
		}
	}
	var err error
	if mb.alarm, err = cfg.Clock.NewAlarm(); err != nil {
		return nil, err
	}
	mb.turned = cfg.Clock.Now()
	mb.io.Go(mb.loop)
	mb.event(mb.m.Start)
	return mb, nil
}

// loop lets the machine know the time, until it is over.
func (mb *Member) loop() {
	for mb.alarm.Wait() == nil {
		hangs := mb.beginTurn()
		mb.event(mb.m.Tick)
		mb.loseForStall()
		if mb.cfg.Alive != nil {
			mb.cfg.Alive()
		}
		for _, what := range hangs {
			mb.logAside(mb.cfg.Log.Error, "IO hangs", append([]any{"device", mb.cfg.Dev.Info().Path, "what", what}, mb.notAnswering()...)...)
		}
	}
}

// event passes an event to the machine and executes its actions. It logs last, so that a log that
// blocks does not delay the lease.
func (mb *Member) event(f func(now time.Duration) []lease.Action) {
	mb.mu.Lock()
	actions := f(mb.cfg.Clock.Now())
	mb.carryOut(actions)
	mb.mu.Unlock()
	for _, a := range actions {
		mb.report(a)
	}
}

// logAside logs in a goroutine: a log that blocks must not delay the lease.
func (mb *Member) logAside(log func(message string, attrs ...any), message string, attrs ...any) {
	mb.io.Go(func() { log(message, attrs...) })
}

// HeldUp records a complaint about a record that blocks this host. Waiters call it at every poll;
// few calls change anything.
func (mb *Member) HeldUp(by layout.Complaint, certain bool) {
	mb.mu.Lock()
	actions := mb.m.HeldUp(mb.cfg.Clock.Now(), by, certain)
	if len(actions) > 0 {
		mb.carryOut(actions)
	}
	mb.mu.Unlock()
	for _, a := range actions {
		mb.report(a)
	}
}

// keepTerm writes the current term of the lease into the handover file.
func (mb *Member) keepTerm() {
	mb.keeping.Lock() // mu is not held over a store, which may block if the file is on a disk
	defer mb.keeping.Unlock()
	mb.mu.Lock()
	file := mb.keeper
	t, ok := mb.m.Term()
	mb.mu.Unlock()
	if ok && file != nil {
		file.PutTerm(handover.Term{UUID: mb.cfg.SB.UUID, Boot: handover.BootText(mb.boot), HostID: t.ID, Incarnation: t.Incarnation,
			T0: t.T0, Ready: t.Ready, Clean: t.Clean, PRKey: mb.Key(), ReadHorizon: t.ReadHorizon, Epoch: t.Epoch})
	}
}

// KeepTerms writes every term from the current one into a handover file.
func (mb *Member) KeepTerms(file *handover.File) {
	mb.mu.Lock()
	mb.keeper = file
	mb.mu.Unlock()
	mb.keepTerm()
}

// carryOut executes actions. Called with mu held. Reads and writes report their results by events.
func (mb *Member) carryOut(actions []lease.Action) {
	wake, alarm := time.Duration(math.MaxInt64), false
	for _, a := range actions {
		switch a := a.(type) {
		case lease.ReadTable:
			mb.begins(&mb.reading)
			mb.readBegan = mb.cfg.Clock.Now()
			alarm = true
			mb.io.Go(func() { mb.readTable(a) })
		case lease.Write:
			mb.begins(&mb.writing)
			mb.renewing = mb.readBegan // of the read that has just returned: none has begun since
			mb.written = a.Record.Incarnation
			alarm = true
			mb.io.Go(func() { mb.writeRecord(a.Record) })
		case lease.Wait:
			wake, alarm = a.Until, true
		case lease.Joined:
			mb.io.Go(func() { mb.cfg.Identity.RecordJoined(a.ID) }) // in a goroutine, as in end
			mb.generation = a.Generation
			if !a.Resumed { // the file is of another incarnation
				mb.keeper = nil
			}
			mb.noteJoined(a)
		case lease.Ready:
			close(mb.ready)
		case lease.Fence:
			mb.attempt(a)
		case lease.Asked:
			offer(mb.asked, a)
		case lease.Complained:
			offer(mb.complaints, a.Of)
		case lease.Renewed:
			mb.cfg.Tally.Renewals.Add(mb.cfg.Clock.Now() - mb.renewing)
			offer(mb.renewals, struct{}{})
		case lease.Wished:
			mb.wished[layout.Verdict{Host: a.Host, Incarnation: a.Incarnation}] = true
		case lease.Lost:
			mb.end(mb.withCause(a.Reason), a.Incarnation, true)
		case lease.Refused:
			mb.end(a.Reason, 0, false)
		case lease.Left:
			mb.end(nil, a.Incarnation, false)
		}
	}
	if alarm || mb.cfg.Alive != nil {
		mb.ring(wake)
	}
	mb.hosts = nil
	close(mb.changed)
	mb.changed = make(chan struct{})
}

// offer sends a value, unless an earlier one has not been received.
func offer[T any](to chan<- T, value T) {
	select {
	case to <- value:
	default:
	}
}

// end ends the member. left is the incarnation that has ended cleanly, or 0. The file system on which it
// is recorded may hang as the lockspace's device does, and holders must be notified without delay.
func (mb *Member) end(reason error, left uint64, lost bool) {
	id := mb.m.ID()
	mb.io.Go(func() {
		if mb.set == nil || mb.dropCopies(id) {
			mb.cfg.Identity.RecordLeft(id, left)
		}
	})
	mb.alarm.Close()
	mb.reason = reason
	if errors.Is(reason, lease.ErrVerdict) || errors.Is(reason, ErrCutOff) || errors.Is(reason, fence.ErrFenced) && mb.cfg.SB.FenceAfter > 0 {
		mb.cut = mb.cfg.Clock.Now() // other hosts may have the locks already
	}
	if lost {
		close(mb.lost)
	}
	mb.finish()
}

// locked calls f with mu held.
func locked[T any](mb *Member, f func(*lease.Machine) T) T {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return f(mb.m)
}

func (mb *Member) ID() int { return locked(mb, (*lease.Machine).ID) }

func (mb *Member) Incarnation() uint64 { return locked(mb, (*lease.Machine).Incarnation) }

// Generation returns that of the host id, which the slots of this host have; 0 with one disk.
func (mb *Member) Generation() uint32 {
	return locked(mb, func(*lease.Machine) uint32 { return mb.generation })
}

func (mb *Member) Err() error { return locked(mb, func(*lease.Machine) error { return mb.reason }) }

// MayWrite reports whether a slot may be written or a lock granted now. The caller has just read the
// clock. The channel is closed when the answer may have changed.
func (mb *Member) MayWrite(now time.Duration) (bool, <-chan struct{}) {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.m.MayWrite(now), mb.changed
}

// MayGrant reports whether a lock may be granted now. It may not if its holder would have to stop
// immediately.
func (mb *Member) MayGrant() (bool, <-chan struct{}) {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return standing.MayGrant(mb.m, mb.cfg.Clock.Now()), mb.changed
}

// Highest returns the number of hosts that a read of slots must cover if it begins now.
func (mb *Member) Highest() int { return locked(mb, (*lease.Machine).ReadHorizon) }

// LeaseLeft returns how long the lease still runs. The channel is closed when that may have
// changed.
func (mb *Member) LeaseLeft() (time.Duration, <-chan struct{}) {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.m.Deadline() - mb.cfg.Clock.Now(), mb.changed
}

// Known returns the state of the hosts that reads cover, by the last read of the host table. All
// waiting locks call it after every event, for up to thousands of hosts. Therefore they share the
// result, which must not be changed.
func (mb *Member) Known() ([]lease.Host, <-chan struct{}) {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	if mb.hosts == nil {
		mb.hosts = mb.m.Hosts()
	}
	return mb.hosts, mb.changed
}

// Moments are the times of the lease that its holders are notified of.
type Moments struct {
	Warn, Deadline time.Duration // deadline is 0 if it was never live
	Lost           bool
	Changed        <-chan struct{} // closed when these may have changed
}

func (mb *Member) Moments() Moments {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	lost := mb.reason != nil && mb.m.Deadline() != 0 // it was live
	return Moments{Warn: mb.m.WarnAt(), Deadline: min(mb.m.Deadline(), mb.cut), Lost: lost, Changed: mb.changed}
}

// Live reports whether the lease runs at the time now.
func (mb *Member) Live(now time.Duration) bool {
	return locked(mb, func(m *lease.Machine) bool { return m.Live(now) })
}

// Watch requests a read of the host table if the last one is older than every. A host that waits
// for another one must notice its death soon.
func (mb *Member) Watch(every time.Duration) {
	now, last := mb.cfg.Clock.Now(), mb.begun.Load()
	// Every event wakes all waiting locks. One of them makes the request, even if a read takes
	// longer than every.
	if now-time.Duration(last) >= every && mb.begun.CompareAndSwap(last, int64(now)) {
		mb.event(mb.m.Refresh)
	}
}

// ReadHosts returns the host table for the protocol, from a read that began after the call, and the
// time of that read.
func (mb *Member) ReadHosts() ([]bakery.Host, time.Duration, error) {
	asked := mb.cfg.Clock.Now()
	mb.event(mb.m.Refresh)
	for {
		hosts, changed := mb.Known()
		if read := standing.TableRead(hosts); read >= asked {
			return standing.Hosts(hosts, mb.cfg.SB.Policy, asked), read, nil
		}
		select {
		case <-changed:
		case <-mb.over.Done():
			return nil, 0, fmt.Errorf("reading the host table: %w", api.ErrLeaseLost)
		}
	}
}

// LoseFor ends the lease for a reason that the machine cannot see.
func (mb *Member) LoseFor(reason error) {
	mb.event(func(now time.Duration) []lease.Action { return mb.m.Lose(now, reason) })
}

// Leave gives up the membership. It blocks until that is on the disk, or the lease is over.
func (mb *Member) Leave() {
	mb.event(mb.m.Leave)
	<-mb.over.Done()
}

// IsOver reports whether the lease, or the attempt to join, has ended.
func (mb *Member) IsOver() bool { return mb.over.Err() != nil }

// Gone reports whether the host of an intent that was unreadable before the call is gone. It then
// counts as having no intent. This assumes that a host does not die with a write of the directory
// in flight whose intent is lost afterwards (bakery/PROTOCOL.md).
func (mb *Member) Gone(host int, unreadable error) (bool, error) {
	hosts, _, err := mb.ReadHosts()
	if err != nil || host > len(hosts) || !hosts[host-1].Dead() {
		return false, err
	}
	known, _ := mb.Known()
	mb.cfg.Log.Warn("slot of a host that is gone is unreadable; continuing as if it had no intent",
		"lock", "(directory)", "host", host, "host_name", known[host-1].Name, "err", unreadable)
	return true, nil
}

// Ready is closed when tickets may be taken.
func (mb *Member) Ready() <-chan struct{} { return mb.ready }

// Lost is closed when the lease is over.
func (mb *Member) Lost() <-chan struct{} { return mb.lost }

// Over is closed when the machine has ended: no event changes anything any more.
func (mb *Member) Over() <-chan struct{} { return mb.over.Done() }

// Wait blocks until all IO has returned. It is called after Over is closed.
func (mb *Member) Wait() { mb.io.Wait() }

// Resumed reports whether the term of the previous process continues.
func (mb *Member) Resumed() bool {
	term := mb.cfg.Lease.Resume
	return term != nil && term.Incarnation == mb.Incarnation()
}

// Asked receives the request of an operator that this host leave.
func (mb *Member) Asked() <-chan lease.Asked { return mb.asked }

// Complaints receives the complaints of other hosts about records of this one.
func (mb *Member) Complaints() <-chan []layout.Complaint { return mb.complaints }

// Renewals receives a value after a renewal.
func (mb *Member) Renewals() <-chan struct{} { return mb.renewals }
