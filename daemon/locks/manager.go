// Package locks is a host's part in the locks of a lockspace: it finds the lock of a name, starts and
// ends the drivers of locks (package driver) for local clients, and keeps the directory. It knows a
// client by an interface, and never knows a connection, a user or a file.
//
// Start reading with [Manager] in manager.go, and [Manager.Acquire] in acquire.go. The files by
// topic:
//
//   - the directory: attach.go finds the lock of a name (package directory reads the disk), create.go
//     creates locks, remove.go removes them, intent.go announces each write
//   - values, requests and holders, as the slots show them: value.go, request.go, blocker.go
//   - damage: scrub.go and restoreentries.go repair what a running host can, repairer.go what a
//     repair finds
//   - restart: resume.go continues the locks of the previous process
package locks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/tasks"
)

// The parts of packages driver and queue that callers of this package use.
type (
	Lock      = driver.Lock
	Hold      = driver.Hold
	SlotTx    = driver.SlotTx
	Request   = queue.Request
	Requested = queue.Requested
	Client    = queue.Client
)

// ErrAbsent ends the wait of a client that did not reconnect after a restart.
var ErrAbsent = queue.ErrAbsent

// Manager is a host's part in all locks of a lockspace. Close ends it. It is safe for concurrent
// use.
type Manager struct {
	host    *driver.Host
	disk    *store.Disk
	mem     *membership.Member
	dir     *directory.Directory
	repairs bool

	// by host id: why the intent was unreadable the last time, for hosts that are gone; guarded by the
	// directory's lock
	lost map[int]error

	mu      sync.Mutex    // guards locks, Quarantined of each, and the closing of stop and restart
	locks   map[int]*Lock // by lock number; 0 guards the directory
	stop    chan struct{} // closed when no more clients are admitted
	restart chan struct{} // closed when the next process is to continue the holds

	drivers  sync.WaitGroup
	tasks    tasks.Group
	blockers *blockerReads

	restoring atomic.Bool   // damaged entries are being restored
	stayed    chan struct{} // an intent of this process may have stayed in its slot; has room for one

	// number of the lock whose entry was written, and whose intent stays because a copy is in flight;
	// 0 if none; changed under the directory's lock
	kept atomic.Int32
}

// New returns a manager without locks. Start must be called once those that a previous process has
// left are resumed. New sets the fields of host that follow from others: its ID, Dir, channels and
// functions. repairs says that intents of an earlier incarnation are still to be examined.
func New(host *driver.Host, repairs bool) *Manager {
	m := &Manager{
		host: host, disk: host.Disk, mem: host.Member, repairs: repairs, dir: directory.New(host.Disk.Dev, host.Disk.SB.Space()),
		locks: map[int]*Lock{}, stop: make(chan struct{}), restart: make(chan struct{}), stayed: make(chan struct{}, 1), blockers: newBlockerReads(),
	}
	host.ID, host.Stop, host.Restart, host.Lost, host.Cause = m.mem.ID(), m.stop, m.restart, m.mem.Lost(), m.mem.Err
	host.Dir, host.Clear, host.Ended = m.dir, m.clearEntry, m.drop
	host.CarriedOut = m.awaitCarriedOut
	return m
}

// Start begins to repair what is damaged, and to report what is lost.
func (m *Manager) Start() {
	m.drivers.Go(m.keepSlots)
	if !m.repairs {
		m.drivers.Go(m.keepIntents)
	}
}

// SlotCount returns the number of slots that a read must cover if it begins now.
func (m *Manager) SlotCount() int { return m.host.SlotCount() }

// Close admits no more clients and waits until every lock is released. If holds remain when ctx is
// done, it returns the cause. It may then be called again.
func (m *Manager) Close(ctx context.Context) error {
	m.Halt()
	locks := m.all()
	for _, lk := range locks {
		lk.Queue.Refuse(queue.ErrStopped, queue.All)
		lk.Queue.Signal()
	}
	for _, lk := range locks {
		select {
		case <-lk.Done():
		case <-ctx.Done():
			if lk.Entry == lockspace.DirectoryEntry {
				return fmt.Errorf("the directory's lock is still held: %w", context.Cause(ctx))
			}
			return fmt.Errorf("lock %q is still held: %w", lk.Entry.Name, context.Cause(ctx))
		}
	}
	return nil
}

// Halt admits no more clients, and ends the drivers that have none.
func (m *Manager) Halt() { m.announce(m.stop) }

// EndLingers has every lock released that no client of this host has, and keeps none for the next
// client any more. Lingers reports whether that is still under way.
func (m *Manager) EndLingers() { m.announce(m.restart) }

// Lingers reports whether a lock is kept on the disk although no client has it.
func (m *Manager) Lingers() bool {
	return slices.ContainsFunc(m.all(), func(lk *Lock) bool { return lk.Queue.Lingers() })
}

// announce closes a channel unless it is closed, and notifies the drivers: one that rests while the
// hold lingers may not listen to the channel.
func (m *Manager) announce(c chan struct{}) {
	m.mu.Lock()
	select {
	case <-c:
	default:
		close(c)
	}
	m.mu.Unlock()
	for _, lk := range m.all() {
		lk.Queue.Signal()
	}
}

// WaitClients blocks until no request is pending that had to read the directory.
func (m *Manager) WaitClients() { m.tasks.Wait() }

// Wait blocks until no IO of a lock is in flight, after Close or the loss of the lease.
func (m *Manager) Wait() { m.drivers.Wait() }

// Stopping reports whether Close was called.
func (m *Manager) Stopping() bool { return m.host.Stopping() }

// all returns the locks that have drivers.
func (m *Manager) all() []*Lock {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.locks))
}

// attached returns the lock of a number, nil if it has no driver.
func (m *Manager) attached(number int) *Lock {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locks[number]
}

// Vitals returns the gauges of the locks that clients of this host hold or wait for, by name.
func (m *Manager) Vitals() (all []queue.Vitals) {
	now := time.Now()
	for _, lk := range m.all() {
		if v := lk.Queue.Vitals(now); v.Holding+v.Waiting > 0 && lk.Queue.Observed() {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b queue.Vitals) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// InUse returns the numbers of the locks that clients of this host hold, release or wait for.
func (m *Manager) InUse() (numbers []int) {
	for _, lk := range m.all() {
		if lk.Queue.InUse() {
			numbers = append(numbers, lk.Entry.Lock)
		}
	}
	return numbers
}

// Describe adds the clients of this host to a report of a lock.
func (m *Manager) Describe(l *report.Lock, self *report.ThisHost) {
	if lk := m.attached(l.Number); lk != nil {
		lk.Queue.Describe(l, self)
	}
}

// ShowNesting rewrites the own slot of a lock if it is waiting: a client in the queue waits below a
// holder. If that fails, the slot does not show it.
func (m *Manager) ShowNesting(q *queue.Queue) {
	if lk := m.attached(q.Entry.Lock); lk != nil && lk.Queue == q {
		lk.ShowNesting()
	}
}

// HoldsLost ends all waits and reports all holds as lost, even if the drivers and the clients hang
// then.
func (m *Manager) HoldsLost() {
	for _, lk := range m.all() {
		lk.Queue.HoldsLost()
		lk.Queue.RefuseLost()
	}
}
