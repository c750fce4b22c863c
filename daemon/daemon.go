// Package daemon joins a host to a lockspace. Package locks has its locks, package session its
// clients, and package server serves them. It never knows flags or terminals.
//
// Start reading with [Service] in service.go, which has one [Host] for each term of membership.
// The files by topic:
//
//   - membership: join.go, leave.go and evict.go; package membership drives the lease; alive.go
//     notifies the supervisor of the process
//   - restart: previous.go finds what the previous process left
//   - reports: status.go is the status of a host, inspection.go reads the lockspace for it and shares
//     that among pages; vitals.go has the gauges
//   - surroundings: machine.go has what tests replace, devices.go meters and limits the IO of the disk
//   - tools: repair.go repairs what package check finds, probe.go measures a lockspace
package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/daemon/waiting"
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

// DefaultLinger is the time of Config.Linger unless --linger sets another.
const DefaultLinger = 5 * time.Millisecond

// MaxLinger is the longest time for which a hold can be kept without a client. No look for other hosts
// begins meanwhile, so they may wait that long for nothing.
const MaxLinger = 10 * time.Millisecond

// Config is the configuration of a daemon. Settings that all hosts must agree on come from the disk
// instead.
type Config struct {
	Devices    []string // paths of the block device or file with the lockspace, or of its member disks in any order
	HostID     int      // 1 to the lockspace's number of hosts, or 0 to choose a free one
	Name       string   // of this host, for display; empty: the system's
	RuntimeDir string   // for lock files; empty: /run/bakery, or the user's own
	StateDir   string   // for files that survive a reboot; empty: /var/lib/bakery, or the user's own
	Handoff    int      // local grants in a row while another host waits; 0: 8
	// how long an unused exclusive hold is kept on the disk for the next client of this host, at most
	// MaxLinger; 0: not at all
	Linger time.Duration
	// device that resets this host if the command of a lost lock cannot be stopped; empty: none.
	// Used by Service
	Watchdog string
	Fence    fence.Config // how to cut off dead hosts, if the lockspace's policy requires it
	// keep in RuntimeDir the state that the next process needs to continue within the lease
	Keep bool
	// receives the events; nil: none in a Host, a Service creates one
	Events *events.Log
	Tally  *tally.Tally // counts what happens; nil: one of its own
	Logger *slog.Logger // nil: slog.Default()
	Clock  clock.Clock  // nil: clock.Boottime

	// Waiting gets what Join waits for; nil if none. Not used by Service
	Waiting *waiting.Stage

	// Alive is called at every turn of the loop that renews the lease or tries to join: with every
	// renewal, and at least every AliveEvery. No timer that would continue after that loop has
	// stopped calls it. It must not block. nil if none. Used by Service.
	Alive      func()
	AliveEvery time.Duration // above 0 if Alive is not nil

	// Abandon stops the clients of another kind that a previous process left with a host id, and blocks until they have
	// ended; nil if there are none. AbandonSuffix is the end of the names of files that say so, in the directory of the handover file
	Abandon       func(ctx context.Context, dir string, uuid layout.UUID, host int) error
	AbandonSuffix string
	// Safe reports whether clients of another kind have nothing that they lost; nil: they have nothing. Used by Service
	Safe func() bool

	earlier    uint64            // incarnation of the last term; 0 if there was none. Used by Service
	quarantine *stall.Quarantine // of earlier terms; nil if there were none. Used by Service

	// opens the device instead of Device, such as a disk in memory, for every term of membership, which
	// closes it; nil: Device is opened
	Open func() (blockdev.Device, error)
	// how the disks of a lockspace on several are opened, but for what the host itself sets; used if Open is nil
	Disks lockspace.DiskOptions
	// arms the watchdog, before the first write; nil if none
	arm func(timing.Times) (time.Duration, error)

	Machine Machine // that the daemon runs on; the zero value is this one

	reclaim bool // an operator permits taking HostID if its record is abandoned: see lease.Config

	repair bool // intents of an earlier incarnation are still to be examined
}

// DeviceNames returns the paths in one text.
func (c *Config) DeviceNames() string { return strings.Join(c.Devices, ", ") }

// complete returns a Config with defaults for what is not set.
func (c Config) complete() Config {
	c.Handoff = cmp.Or(c.Handoff, 8)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Tally = cmp.Or(c.Tally, new(tally.Tally))
	c.quarantine = cmp.Or(c.quarantine, new(stall.Quarantine))
	if c.Clock == nil {
		c.Clock = clock.Boottime
	}
	c.Machine = c.Machine.complete()
	return c
}

// Host is one host's part in a lockspace, from Join to its end. It is safe for concurrent use. Close
// ends it.
type Host struct {
	*joiner
	*locks.Manager   // of its locks
	*measuring.Meter // of its slots

	began    time.Duration // when it was live
	ids      *hostid.Identity
	mem      *membership.Member
	sessions *session.Table
	handover *handover.File // nil if no state is kept

	inspected statusCache
}

func (h *Host) times() timing.Times { return h.disk.Times() }

// leaseLeft returns how long the lease still runs.
func (h *Host) leaseLeft() time.Duration {
	left, _ := h.mem.LeaseLeft()
	return left
}

// safe reports whether nothing runs on this host that must have stopped: the lease is running, or
// nothing is held.
func (h *Host) safe(now time.Duration) bool {
	if h.mem.Live(now) {
		return true
	}
	held, _ := h.sessions.Holding()
	return len(held) == 0
}

// Sessions returns the clients of the host.
func (h *Host) Sessions() *session.Table { return h.sessions }

// LockManager returns the locks of the host.
func (h *Host) LockManager() *locks.Manager { return h.Manager }

// Member returns the host's part in the lease.
func (h *Host) Member() *membership.Member { return h.mem }

// Superblock returns the superblock of the lockspace.
func (h *Host) Superblock() layout.Superblock { return h.disk.SB }

// RuntimeDir returns the directory of lock files and of state for the next process.
func (h *Host) RuntimeDir() string { return h.ids.RuntimeDir }

// Disks returns the member disks of a lockspace on several, nil if it is on one.
func (h *Host) Disks() *lockspace.Disks {
	d, _ := h.devices.Opened.(*lockspace.Disks)
	return d
}

// HostID returns the id under which the host has joined.
func (h *Host) HostID() int { return h.mem.ID() }

// Lost returns a channel that is closed when the lease is lost. Every hold is over then, and its
// holder must stop immediately.
func (h *Host) Lost() <-chan struct{} { return h.mem.Lost() }

// Err returns why the lease was lost, nil if it was not.
func (h *Host) Err() error { return h.mem.Err() }
