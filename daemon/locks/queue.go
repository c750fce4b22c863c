package locks

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/store"
	"github.com/bakeryd/bakeryd/daemon/warn"
	"github.com/bakeryd/bakeryd/layout"
)

// Lock is this host's part in one lock: its slot on the disk, and the local clients, served first
// in, first out. One goroutine at a time drives it (driver.go).
type Lock struct {
	mgr   *Manager
	Entry layout.Entry
	wake  chan struct{} // receives when a field below has changed

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

	retell atomic.Bool // a client in the queue may not know its place

	mu       sync.Mutex // guards the rest
	queue    []*Waiter
	told     told // what the clients in the queue were notified of
	tellsAll bool // a timer runs that notifies all of them
	holds    []*Hold
	leaving  []*Hold // released by their clients, not yet by the driver
	arrived  uint64  // number of waiters that have arrived
	used     bool    // since its memory was freed
	closed   error   // error for all clients, nil while they are served
	scrub    bool    // the own slot must be read and checked
	spare    bool    // memory that it has not used since may be freed
	after    after   // host that a client of this host waited for last

	past *resumeState // left by the previous bakeryd; nil if none; set before the driver starts
}

// Waiter is a client in the queue.
type Waiter struct {
	req   Request
	nth   uint64
	since time.Time

	result chan result // takes one
	// called once instead of sending to result, by any goroutine; must not block
	decided func(result)
}

type result struct {
	hold *Hold
	err  error
}

// newWaiter returns a client that receives the outcome by a channel.
func newWaiter(req Request) *Waiter { return &Waiter{req: req, result: make(chan result, 1)} }

// decide reports the outcome to the client, which has left the queue. It is called without mu: the
// client may use the lock immediately.
func (w *Waiter) decide(r result) {
	if w.decided != nil {
		w.decided(r)
		return
	}
	w.result <- r
}

// enqueue adds a client to the queue, or returns immediately why it cannot wait.
func (lk *Lock) enqueue(req Request) (*Waiter, error) {
	w := newWaiter(req)
	if err := lk.admit(w); err != nil {
		return nil, err
	}
	lk.signal()
	return w, nil
}

// admit adds a client to the queue. It does not wake the driver.
func (lk *Lock) admit(w *Waiter) error {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if lk.closed != nil {
		return lk.closed
	}
	if lk.mgr.Stopping() {
		return errStopped
	}
	if w.req.Try && (lk.waited() || lk.blocked(w.req.Mode)) {
		return api.ErrBusy
	}
	lk.arrived++
	w.nth, w.since = lk.arrived, time.Now()
	if c := w.req.Client; c != nil {
		c.Queued(lk, w.nth)
	}
	lk.queue = append(lk.queue, w)
	lk.used, lk.spare = true, false
	lk.reportQueued(w)
	return nil
}

// waited reports whether a client is in the queue that has not gone away.
func (lk *Lock) waited() bool {
	return slices.ContainsFunc(lk.queue, func(w *Waiter) bool { return !w.req.gone() })
}

// blocked reports whether a local hold conflicts with mode and its holder has not gone away.
func (lk *Lock) blocked(mode layout.Mode) bool {
	return slices.ContainsFunc(lk.holds, func(h *Hold) bool {
		return !h.req.gone() && (mode == layout.Exclusive || h.req.Mode == layout.Exclusive)
	})
}

// withdraw removes a client from the queue. It returns false if the client was served or refused
// already.
func (lk *Lock) withdraw(w *Waiter) bool {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	i := slices.Index(lk.queue, w)
	if i < 0 {
		return false
	}
	lk.queue = slices.Delete(lk.queue, i, i+1)
	lk.signal()
	return true
}

// ClientIsBack notifies the driver that a client in the queue has reconnected.
func (lk *Lock) ClientIsBack() {
	lk.retell.Store(true)
	lk.signal()
}

// signal wakes the driver.
func (lk *Lock) signal() {
	select {
	case lk.wake <- struct{}{}:
	default:
	}
}

// front returns the next waiter, or nil.
func (lk *Lock) front() *Waiter {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if len(lk.queue) == 0 {
		return nil
	}
	return lk.queue[0]
}

// refuse ends the wait of the selected clients, with err.
func (lk *Lock) refuse(err error, whom func(*Waiter) bool) {
	var refused []*Waiter
	lk.mu.Lock()
	lk.queue = slices.DeleteFunc(lk.queue, func(w *Waiter) bool {
		if !whom(w) {
			return false
		}
		refused = append(refused, w)
		return true
	})
	lk.mu.Unlock()
	for _, w := range refused {
		w.decide(result{err: err})
	}
}

func everybody(*Waiter) bool { return true }

// shut ends the wait of all clients and admits no more.
func (lk *Lock) shut(err error) {
	lk.mu.Lock()
	if lk.closed == nil {
		lk.closed = err
	}
	err = lk.closed
	lk.signal()
	lk.mu.Unlock()
	lk.refuse(err, everybody)
}

func (lk *Lock) isShut() bool {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	return lk.closed != nil
}

// grant gives the hold to w, if it is still in front.
func (lk *Lock) grant(w *Waiter, token layout.Ticket) bool {
	h := lk.enter(w, token)
	if h == nil {
		return false
	}
	w.decide(result{hold: h})
	return true
}

func (lk *Lock) enter(w *Waiter, token layout.Ticket) *Hold {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if len(lk.queue) == 0 || lk.queue[0] != w {
		return nil
	}
	lk.queue = slices.Delete(lk.queue, 0, 1)
	h := &Hold{lk: lk, req: w.req, token: token, since: time.Now(), released: make(chan struct{})}
	lk.holds = append(lk.holds, h)
	lk.reportGrant(h, w)
	if c := w.req.Client; c != nil {
		c.KeepGrant(lk, token)
	}
	return h
}

// told is what the clients in a queue were notified of. It changes with every client that comes or
// goes.
type told struct {
	ahead, queued int
	last          uint64    // arrival number of the last one
	far           time.Time // when all were notified
}

const (
	// nearest is the number of clients at the head of the queue that are notified of every change.
	nearest = 16

	// tellFar is the interval at which all other clients are notified.
	tellFar = time.Second
)

// tell notifies clients in the queue of their places if these have changed, or if a client has
// returned that may not know its place. The work does not grow with the queue: it notifies new
// clients and the first nearest immediately, all others every tellFar.
func (lk *Lock) tell(ahead int) {
	again := lk.retell.Swap(false)
	lk.mu.Lock()
	defer lk.mu.Unlock()
	n, before := len(lk.queue), lk.told
	now := told{ahead: ahead + len(lk.holds), queued: n, far: before.far}
	if n > 0 {
		now.last = lk.queue[n-1].nth
	}
	if now == before && !again {
		return
	}
	all := again || time.Since(before.far) >= tellFar
	if all {
		now.far = time.Now()
	} else if n > nearest && !lk.tellsAll {
		lk.tellsAll = true
		time.AfterFunc(tellFar, func() {
			lk.retell.Store(true)
			lk.signal()
		})
	}
	if again {
		lk.tellsAll = false
	}
	lk.told = now
	for i, w := range lk.queue[:min(n, nearest)] {
		w.tell(lk, now.ahead+i, n)
	}
	for i := n - 1; i >= nearest && (all || lk.queue[i].nth > before.last); i-- {
		lk.queue[i].tell(lk, now.ahead+i, n)
	}
}

// tell notifies the client. Called with mu held.
func (w *Waiter) tell(lk *Lock, ahead, queued int) {
	if c := w.req.Client; c != nil {
		c.KeepPlace(lk)
	}
	if w.req.OnWaiting != nil {
		w.req.OnWaiting(ahead, queued)
	}
}

// nesting returns a holder below which a client in the queue waits, for the own slot; the zero
// Holder if none. Called with mu held.
func (lk *Lock) nesting(p layout.Phase) layout.Holder {
	if p == layout.Waiting {
		for _, w := range lk.queue {
			if c := w.req.Client; c != nil {
				if under := c.NestedUnder(); under != nil {
					return *under
				}
			}
		}
	}
	return layout.Holder{}
}

// ShowNesting rewrites the own slot if it is waiting. If that fails, the slot does not show it.
func (lk *Lock) ShowNesting() {
	_ = lk.do(func() error {
		if lk.m.OwnSlot().Phase != layout.Waiting {
			return nil
		}
		return lk.write(lk.m.OwnSlot())
	})
}
