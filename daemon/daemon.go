// Package daemon joins a host to a lockspace and takes locks there. It drives the lock protocol
// (package bakery) and the lease (package lease) on a device, queues local clients, and serves them
// over a Unix socket. It never knows flags or terminals.
//
// Start reading with [Service] in service.go, which has one [Daemon] for each term of membership.
// The files by topic:
//
//   - membership: join.go and leave.go; package membership drives the lease
//   - a lock: acquire.go; driver.go drives its protocol on the sectors of slotstore.go, for the
//     clients queued in queue.go, in their own goroutines where that is faster (inline.go, submit.go)
//   - the directory: directory.go finds names, create.go creates locks, remove.go removes them
//   - the API: server.go; stream.go and link.go serve clients of locks; session.go is a client that
//     may reconnect, sessions.go all of them; mode.go and value.go change a hold, request.go asks a
//     holder
//   - restart: restore.go continues the holds of the previous process
//   - the end of a lease: guard.go stops the commands that hold locks
//   - reports: locks report to the Observer (observer.go, happenings.go); recorder.go makes events,
//     counts and log lines of it; vitals.go has the gauges; statuscache.go serves the status page
//     (package page); browser.go and loopback.go restrict callers
//   - damage: repair.go repairs what package check finds, scrub.go what a running daemon can;
//     coherence.go and probe.go test the disk, floor.go measures it
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
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/daemon/warn"
	"github.com/bakeryd/bakeryd/layout"
)

// The reasons why a host is not in the lockspace; compare with errors.Is.
var (
	// ErrWatchdog is returned when the watchdog cannot be armed.
	ErrWatchdog = errors.New("the watchdog cannot be used")
	// ErrHandedOver is returned when the holds were left for the next process to continue.
	ErrHandedOver = errors.New("left to the next process")
	// ErrEvicted is returned when the host left because an operator evicted it.
	ErrEvicted = errors.New("evicted by an operator")
)

// Config is the configuration of a daemon. Settings that all hosts must agree on come from the disk
// instead.
type Config struct {
	Device     string // path of the block device or file
	HostID     int    // 1 to the lockspace's number of hosts, or 0 to choose a free one
	Name       string // of this host, for display; empty: the system's
	RuntimeDir string // for lock files; empty: /run/bakery, or the user's own
	StateDir   string // for files that survive a reboot; empty: /var/lib/bakery, or the user's own
	Handoff    int    // local grants in a row while another host waits; 0: 8
	// device that resets this host if the command of a lost lock cannot be stopped; empty: none.
	// Used by Service
	Watchdog string
	Fence    membership.FenceConfig // how to cut off dead hosts, if the lockspace's policy requires it
	// keep in RuntimeDir the state that the next process needs to continue within the lease
	Keep bool
	// receives the events; nil: none in a Daemon, a Service creates one
	Events *events.Log
	Tally  *tally.Tally // counts what happens; nil: one of its own
	Logger *slog.Logger // nil: slog.Default()
	Clock  clock.Clock  // nil: clock.Boottime

	// Alive is called at every turn of the loop that renews the lease or tries to join: with every
	// renewal, and at least every AliveEvery. No timer that would continue after that loop has
	// stopped calls it. It must not block. nil if none. Used by Service.
	Alive      func()
	AliveEvery time.Duration // above 0 if Alive is not nil

	quarantine *stall.Quarantine // of earlier terms; nil if there were none. Used by Service

	// tests use their own disk
	open func(path string, readOnly bool) (blockdev.Device, layout.Superblock, int, error)
	// arms the watchdog, before the first write; nil if none
	arm func(lease.Times) (time.Duration, error)

	machine Machine // that the daemon runs on

	reclaim bool // an operator permits taking HostID if its record is abandoned: see lease.Config

	repair bool // intents of an earlier incarnation are still to be examined
}

// Daemon is one host's part in a lockspace. New does no IO. After Join, a Daemon is safe for
// concurrent use. Close ends it.
type Daemon struct {
	cfg   Config
	log   *slog.Logger
	clock clock.Clock
	// the device as opened; the next three are this one, each metered for its purpose
	opened blockdev.Device
	dev    blockdev.Device
	bare   blockdev.Device // for the lease: not limited by turns
	seen   blockdev.Device // for reports
	sb     layout.Superblock
	dir    *directory

	// Set by Join, in this order.
	ids     *hostid.Identity
	fencing *membership.Fencing
	mem     *membership.Member
	// mem once its loop runs, for callers that must not wait for Join
	driving  atomic.Pointer[membership.Member]
	sessions *sessions
	left     atomic.Pointer[previousProcess] // process that may have left commands; nil if none

	mu    sync.Mutex    // guards locks, lost and closing
	locks map[int]*lock // by lock number; 0 guards the directory
	// by host id: why the intent was unreadable the last time, for hosts that are gone
	lost    map[int]error
	closing bool
	drivers sync.WaitGroup
	stop    chan struct{}
	joined  chan struct{} // closed when Join has succeeded
	drained chan struct{} // closed when holders must stop, for drainedFor
	ended   chan struct{} // closed when no commands must be watched any more
	endOnce sync.Once

	drainedFor string
	tasks      tasks

	stalls *stall.Watch // IO of locks that other hosts may wait for

	inspecting inspecting
	warn       warn.Limiter // of the guard
	observer   Observer

	meeting atomic.Bool // takes part in a meeting with another host

	mending atomic.Bool   // damaged entries are being restored
	stayed  chan struct{} // an intent of this process may have stayed in its slot; has room for one
}

// settleAfter is how long a hold lasts before it is shown on the disk.
const settleAfter = 50 * time.Millisecond

// New returns a daemon that has not joined yet.
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
	return &Daemon{cfg: cfg, log: cfg.Logger, clock: cfg.Clock, observer: &recorder{cfg.Events, cfg.Tally, cfg.Logger}, stalls: new(stall.Watch), locks: map[int]*lock{}, stop: make(chan struct{}), joined: make(chan struct{}),
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

// LeaseLeft returns how long the lease still runs.
func (d *Daemon) leaseLeft() time.Duration {
	left, _ := d.mem.LeaseLeft()
	return left
}

// unburdened reports whether nothing is held, waited for or left by a previous process.
func (d *Daemon) unburdened() bool {
	return d.left.Load() == nil && (!d.hasJoined() || d.sessions.empty())
}

// safe reports whether nothing runs on this host that must have stopped: the lease is running, or
// nothing is held.
func (d *Daemon) safe(now time.Duration) bool {
	if p := d.left.Load(); p != nil && now >= p.expires(d.times()) {
		return false
	}
	if !d.hasJoined() || d.mem.Live(now) {
		return true
	}
	held, _ := d.sessions.holding()
	return len(held) == 0
}

// HostID returns the id under which the host has joined.
func (d *Daemon) HostID() int { return d.mem.ID() }

// Lost returns a channel that is closed when the lease is lost. Every hold is over then, and its
// holder must stop immediately.
func (d *Daemon) Lost() <-chan struct{} { return d.mem.Lost() }

// Err returns why the lease was lost, nil if it was not.
func (d *Daemon) Err() error { return d.mem.Err() }
