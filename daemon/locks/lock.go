package locks

import (
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/warn"
	"github.com/bakeryd/bakeryd/layout"
)

// The part of package queue that callers of this package use.
type (
	Request   = queue.Request
	Requested = queue.Requested
	Client    = queue.Client
	Observer  = queue.Observer
	Happening = queue.Happening
)

// ErrAbsent ends the wait of a client that did not reconnect after a restart.
var ErrAbsent = queue.ErrAbsent

// Lock is this host's part in one lock: its slot on the disk, and the queue of the local clients.
// One goroutine at a time drives it (driver.go).
type Lock struct {
	mgr   *Manager
	Entry layout.Entry
	q     *queue.Queue // the clients of this host

	quarantined bool // attached only to repair the own slot; guarded by Manager.mu

	done  chan struct{} // closed when the driver has ended
	tasks chan task     // for the driver, when it waits next (task.go)

	driver driverMutex // held by the driver: its own goroutine, or a client's (inline.go)
	inline bool        // the driver is a client's goroutine; owned by the driver
	failed error       // error by which a client's goroutine ended the lock; owned by the driver

	m            *bakery.Machine // owned by the driver
	slots        *store.Slots    // owned by the driver
	trying       tryState        // to take the lock on the disk; owned by the driver
	timer        *time.Timer     // of the poll; owned by the driver
	publishTimer *time.Timer     // wakes the driver when the hold must be written to the disk
	readAt       time.Duration   // when the last read of all slots began; owned by the driver
	// time of the host table by which they were last judged; owned by the driver
	evaluatedAt      time.Duration
	hostTableChanged <-chan struct{} // closed at the next event of the lease; owned by the driver
	warn             warn.Limiter    // owned by the driver
	polls            int             // number of polls; owned by the driver
	requestWatch     requestWatch    // for requests; owned by the driver
	acquisition      *acquisition    // the hold on the disk, nil if none; owned by the driver
	before           ahead           // slot last seen directly ahead on the disk; owned by the driver
	intends          bool            // the intent in the own slot is of this process; owned by the driver
	// a dead host may still clear the entry (readRemovalPending); owned by the driver
	removalPending bool

	scrub atomic.Bool // the own slot must be read and checked

	past *resumeState // left by the previous bakeryd; nil if none; set before the driver starts
}

// ShowNesting rewrites the own slot of a lock if it is waiting: a client in the queue waits below a
// holder. If that fails, the slot does not show it.
func (m *Manager) ShowNesting(q *queue.Queue) {
	lk := m.attached(q.Entry.Lock)
	if lk == nil || lk.q != q {
		return
	}
	_ = lk.do(func() error {
		if lk.m.OwnSlot().Phase != layout.Waiting {
			return nil
		}
		return lk.write(lk.m.OwnSlot())
	})
}
