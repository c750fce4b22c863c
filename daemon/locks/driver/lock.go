package driver

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/warn"
	"github.com/bakeryd/bakeryd/layout"
)

// Lock is this host's part in one lock: its slot on the disk, and the queue of the local clients.
// One goroutine at a time drives it (driver.go).
type Lock struct {
	host  *Host
	Entry layout.Entry
	Queue *queue.Queue // the clients of this host

	done chan struct{} // closed when the driver has ended
	// for the driver, when it waits next; an error ends the driver (task.go)
	tasks chan func() error

	driver driverMutex // held by the driver: its own goroutine, or a client's (inline.go)
	inline bool        // the driver is a client's goroutine; owned by the driver
	failed error       // error by which a client's goroutine ended the lock; owned by the driver

	m       *bakery.Machine // owned by the driver
	slots   *store.Slots    // owned by the driver
	trying  tryState        // to take the lock on the disk; owned by the driver
	timer   *time.Timer     // of the poll; owned by the driver
	alarm   *time.Timer     // wakes the driver when a hold has something due; owned by the driver
	alarmAt time.Time       // when it does; past if it has; owned by the driver
	// when the last read of all slots began, and when it had ended; owned by the driver
	readBegan, readAt time.Duration
	// time of the host table by which they were last judged; owned by the driver
	evaluatedAt      time.Duration
	hostTableChanged <-chan struct{} // closed at the next event of the lease; owned by the driver
	warn             warn.Limiter    // owned by the driver
	polls            int             // number of polls; owned by the driver
	quiet            quiet           // owned by the driver
	requestWatch     requestWatch    // for requests; owned by the driver
	acquisition      *acquisition    // the hold on the disk, nil if none; owned by the driver
	looks            store.Looks     // for other hosts; owned by the driver
	releasedAt       time.Time       // when the last acquisition ended; owned by the driver
	// how often in a row this host took the lock again within its time to linger; owned by the driver
	again  int
	asked  atomic.Bool // a client requests the lock from its holders
	before ahead       // slot last seen directly ahead on the disk; owned by the driver
	// a dead host may still clear the entry (readRemovalPending); owned by the driver
	removalPending bool

	scrub atomic.Bool // request to read and check the own slot

	Quarantined bool // attached only to repair the own slot; guarded by the manager

	past *resumeState // left by the previous bakeryd; nil if none; set before the driver starts
}

// Host is what all locks of a host use. It does not change.
type Host struct {
	queue.Host
	Disk    *store.Disk
	Member  *membership.Member // live
	Dir     *directory.Directory
	Notes   *handover.Notes  // of slots that are being written; nil if none
	Handoff int              // local grants in a row while another host waits
	Linger  time.Duration    // how long a hold is kept for the next client; 0: not at all
	Wall    func() time.Time // wall clock: may be wrong by any amount, and be set at any time
	// Clear clears the directory entry of a lock under the directory's lock. The entry is free then, with
	// this creation id. The result comes once that is durable, or fails for good.
	Clear func(lk *Lock, creation uint64) <-chan error
	// CarriedOut blocks until this host does not intend to write the entry of a lock (CARRIED).
	CarriedOut func(*Lock) error
	Ended      func(*Lock) // is called by a driver that ends
}

// SlotCount returns the number of slots that a read must cover if it begins now.
func (h *Host) SlotCount() int { return max(h.Member.Highest(), h.Member.ID()) }

// ClockNumber returns the number of the wall clock for tickets.
func (h *Host) ClockNumber() uint64 { return bakery.ClockNumber(h.Wall(), h.Disk.SB.Formatted) }

// New returns a host's part in a lock. Its driver does not run yet.
func New(host *Host, e layout.Entry) *Lock {
	id, incarnation := host.ID, host.Member.Incarnation()
	lk := &Lock{
		host: host, Entry: e, Queue: queue.New(&host.Host, e), tasks: make(chan func() error), done: make(chan struct{}),
		m: bakery.New(bakery.Config{
			Host: id, Incarnation: incarnation, Creation: e.Creation,
			Permits: max(e.Permits, 1), // a removed lock has none; its slot is attached for repair
			Clock:   host.ClockNumber(),
		}),
		// the previous bakeryd may have left the slot in any state
		slots:  host.Disk.Slots(e, id, incarnation, host.Member.Resumed()),
		driver: newDriverMutex(), looks: store.Looks{Early: 1},
	}
	lk.slots.Generation, lk.slots.Notes = host.Member.Generation(), host.Notes
	lk.alarm = time.AfterFunc(math.MaxInt64, lk.Queue.Signal)
	lk.timer = time.NewTimer(math.MaxInt64)
	lk.driver.Lock() // held by the driver from its start
	_, lk.hostTableChanged = host.Member.LeaseLeft()
	return lk
}
