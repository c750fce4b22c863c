// Package daemon joins a host to a lockspace and takes locks there: it drives
// the lock protocol (package bakery) and the lease (package lease) on a
// device, queues local clients, and serves them over a Unix socket. It never
// knows flags or terminals.
//
// Begin with [Service] in service.go, which has a [Daemon] for each term of
// membership: join.go and acquire.go. The lease is driven in member.go, and
// what it takes to declare others dead in recovery.go; a lock's protocol in
// driver.go, on the sectors of area.go, for the clients queued in queue.go, by
// their own goroutines where that is faster (help.go, submit.go);
// names are looked up in directory.go, locks made in create.go and removed in
// remove.go. server.go is the API, of which stream.go and link.go are the ways
// to a lock; session.go is a client that may come back
// (sessions.go has all of them), mode.go and value.go what it can change of its
// hold, request.go what it can ask of a holder, journal.go and restore.go how it
// survives a restart, guard.go what becomes of its command at the end of a
// lease. note.go tells the event journal (package events) what happens.
// glance.go is what the status page (package page) asks for, browser.go what browsers may, loopback.go what has no more than
// an address. count.go counts what happens (package tally), vitals.go says how all stands.
// format.go, inspect.go and check.go need no daemon; repair.go mends what
// check.go finds, and mend.go and scrub.go what a daemon itself can. meet.go and probe.go try
// the disk, floor.go times what a lock asks of it at least.
package daemon

import (
	"cmp"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/daemon/warn"
	"github.com/bakeryd/bakeryd/layout"
)

// The reasons why a host is not in the lockspace; compare with errors.Is.
var (
	// ErrWatchdog is returned when the watchdog cannot be armed.
	ErrWatchdog = errors.New("the watchdog cannot be used")
	// ErrFenceAgent is returned when this host cannot be made one that others can fence.
	ErrFenceAgent = errors.New("the fence agent cannot be used")
	// ErrHandedOver is returned when what is held was left for a successor to go on with.
	ErrHandedOver = errors.New("left to a successor")
	// ErrEvicted is returned when the host left because an operator asked for it.
	ErrEvicted = errors.New("evicted by an operator")
)

// Config is how a daemon is set up. What all hosts must agree on comes from
// the disk instead.
type Config struct {
	Device     string       // path of the block device or file
	HostID     int          // 1 to the lockspace's number of hosts, or 0 to choose a free one
	Name       string       // of this host, for people; empty: the system's
	RuntimeDir string       // for lock files; empty: /run/bakery, or the user's own
	StateDir   string       // for what outlives a reboot; empty: /var/lib/bakery, or the user's own
	Handoff    int          // local grants in a row while another host waits; 0: 8
	Watchdog   string       // device that resets this host if a lost lock's command cannot be stopped; empty: none. Of a Service
	Fence      FenceConfig  // how to cut off dead hosts, where the lockspace's policy wants it
	Keep       bool         // keep in RuntimeDir what a successor needs to go on within the lease
	Events     *events.Log  // what happens is told there; nil: nowhere, but a Service makes one
	Tally      *tally.Tally // what happens is counted there; nil: in one of its own
	Logger     *slog.Logger // nil: slog.Default()
	Clock      clock.Clock  // nil: clock.Boottime

	// Alive is told that the loop that renews the lease, or tries to get one, goes round: with every renewal, and
	// every AliveEvery at least. It is never told by a timer that would go on when that loop has stopped. It must
	// return at once. nil: nobody. Of a Service.
	Alive      func()
	AliveEvery time.Duration // above 0 where Alive is not nil

	quarantine *stall.Quarantine // of the terms before; nil: there were none. Of a Service

	open func(path string, readOnly bool) (blockdev.Device, layout.Superblock, int, error) // tests bring their own disk
	arm  func(lease.Times) (time.Duration, error)                                          // the watchdog, before the first write; nil: none

	machine Machine // that it runs on

	reclaim bool // an operator allows to take HostID if its record is abandoned: see lease.Config

	repair bool // what an earlier incarnation was about to write is still to be looked at
}

// Daemon is one host's part in a lockspace. New does no IO; after Join it is
// safe for concurrent use; Close ends it.
type Daemon struct {
	cfg    Config
	log    *slog.Logger
	clock  clock.Clock
	opened blockdev.Device // what follows is this one, counted by what it is for
	dev    blockdev.Device
	bare   blockdev.Device // for the lease: without turns
	seen   blockdev.Device // for reports
	sb     layout.Superblock
	dir    *directory

	// Set by Join, in this order.
	ids      *hostid.Identity
	fencing  *fencing
	mem      *member
	driving  atomic.Pointer[member] // the same once its loop runs, for who may not wait for Join
	sessions *sessions
	left     atomic.Pointer[predecessor] // of whom commands may be left; nil: nobody

	mu      sync.Mutex    // guards locks, lost and closing
	locks   map[int]*lock // by lock number; 0 guards the directory
	lost    map[int]error // by host id: why the intents could not be read the last time of hosts that are gone
	closing bool
	drivers sync.WaitGroup
	stop    chan struct{}
	joined  chan struct{} // closed when Join has succeeded
	drained chan struct{} // closed: holders are to stop, drainedFor
	ended   chan struct{} // closed: nobody is to be watched over any more
	endOnce sync.Once

	drainedFor string
	tasks      tasks

	stalls *stall.Watch // the IO of locks that other hosts may wait for

	inspecting inspecting
	warn       warn.Limiter // of the guard

	meeting atomic.Bool // it takes part in a meeting with another host

	mending atomic.Bool   // damaged entries are being restored
	stayed  chan struct{} // an intent of this process may have stayed in its slot; takes one
}

// settleAfter is how long a hold lasts before it is shown on the disk.
const settleAfter = 50 * time.Millisecond

// New returns a daemon that has yet to join.
func New(cfg Config) *Daemon {
	cfg.Handoff = cmp.Or(cfg.Handoff, 8)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Boottime
	}
	if cfg.open == nil {
		cfg.open = lockspace.OpenLockspace
	}
	if cfg.Tally == nil {
		cfg.Tally = new(tally.Tally)
	}
	if cfg.quarantine == nil {
		cfg.quarantine = new(stall.Quarantine)
	}
	cfg.machine = cfg.machine.complete()
	return &Daemon{cfg: cfg, log: cfg.Logger, clock: cfg.Clock, stalls: new(stall.Watch), locks: map[int]*lock{}, stop: make(chan struct{}), joined: make(chan struct{}),
		drained: make(chan struct{}), ended: make(chan struct{}), stayed: make(chan struct{}, 1)}
}

func (d *Daemon) times() lease.Times { return lease.Times{Lease: d.sb.Lease} }

func (d *Daemon) hasJoined() bool {
	select {
	case <-d.joined:
		return true
	default:
		return false
	}
}

// leaseLeft is how long the lease still runs.
func (d *Daemon) leaseLeft() time.Duration {
	left, _ := d.mem.leaseLeft()
	return left
}

// unburdened tells whether nothing is held, waited for or left by a predecessor.
func (d *Daemon) unburdened() bool {
	return d.left.Load() == nil && (!d.hasJoined() || d.sessions.empty())
}

// safe tells whether nothing runs on this host that ought not to: the lease
// stands, or nothing is held.
func (d *Daemon) safe(now time.Duration) bool {
	if p := d.left.Load(); p != nil && now >= p.expires(d.times()) {
		return false
	}
	if !d.hasJoined() || d.mem.live(now) {
		return true
	}
	held, _ := d.sessions.holding()
	return len(held) == 0
}

// HostID is the id under which the host has joined.
func (d *Daemon) HostID() int { return d.mem.id() }

// Lost is closed when the lease is lost: every hold is over then, and its
// holder has to stop at once.
func (d *Daemon) Lost() <-chan struct{} { return d.mem.lost }

// Err says why the lease was lost; nil while it is not.
func (d *Daemon) Err() error { return d.mem.err() }
