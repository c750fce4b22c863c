package daemon

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/daemon/warn"
	"github.com/bakeryd/bakeryd/layout"
)

// lock is this host's part in one lock: its slot on the disk, driven by one
// goroutine at a time (driver.go), and the local clients, first in, first out.
type lock struct {
	d     *Daemon
	entry layout.Entry
	wake  chan struct{} // something below changed
	dev   lockDevice    // for IO that other hosts may have to wait for

	quarantined bool // attached only to repair the own slot; guarded by d.mu

	done  chan struct{} // closed when the driver has ended
	tasks chan task     // to be done by the driver, the next time that it waits (task.go)

	role   role  // who has it is the driver; its own goroutine whenever nobody else is (help.go)
	helped bool  // the driver is a client's goroutine; the driver's alone
	failed error // what a client's goroutine has ended the lock by; the driver's alone

	m        *bakery.Machine // the driver's alone
	area     *area           // the driver's alone
	trying   attempt         // to take the lock on the disk; the driver's alone
	timer    *time.Timer     // of the poll; the driver's alone
	settling *time.Timer     // wakes the driver when the hold on the disk is to be shown there
	readAt   time.Duration   // when the last read of all slots was begun; the driver's alone
	judgedAt time.Duration   // by which host table they were last judged; the driver's alone
	news     <-chan struct{} // closed when there is more to learn of the hosts; the driver's alone
	warn     warn.Limiter    // the driver's alone
	polls    int             // so far; the driver's alone
	lookout  lookout         // for requests; the driver's alone
	tenure   *tenure         // of the hold on the disk, nil while there is none; the driver's alone
	before   ahead           // who was last seen directly ahead on the disk; the driver's alone
	intends  bool            // an intent in the own slot is of this process; the driver's alone
	doomed   bool            // a host that is dead may yet clear the entry (condemned); the driver's alone

	retell atomic.Bool // a client in the queue may not know its place

	mu       sync.Mutex // guards the rest
	queue    []*waiter
	told     told // what the clients in the queue know
	tellsAll bool // a timer runs after which all of them are told
	holds    []*Hold
	leaving  []*Hold // let go by their clients, not yet by the driver
	arrived  uint64  // waiters so far
	used     bool    // since its memory was given back
	closed   error   // set: nobody is served any more
	scrub    bool    // the own slot is to be looked at
	spare    bool    // memory of it may be given back that it has had no use for since
	after    after   // the host that a client of this host waited for last

	place tally.Place // where it is counted; guarded by mu

	past *past // set before the driver starts: what the bakeryd before this one left
}

// waiter is a client in the queue.
type waiter struct {
	req   Request
	nth   uint64
	since time.Time

	result  chan result  // takes one
	decided func(result) // instead of result; is called once, by any goroutine, and must not block
}

type result struct {
	hold *Hold
	err  error
}

// newWaiter makes a client that is told by a channel what came of its request.
func newWaiter(req Request) *waiter { return &waiter{req: req, result: make(chan result, 1)} }

// decide tells the client, who is not in the queue any more. It is called
// without mu: the client may go on to use the lock.
func (w *waiter) decide(r result) {
	if w.decided != nil {
		w.decided(r)
		return
	}
	w.result <- r
}

// enqueue adds a client to the queue, or tells at once why it cannot wait.
func (lk *lock) enqueue(req Request) (*waiter, error) {
	w := newWaiter(req)
	if err := lk.admit(w); err != nil {
		return nil, err
	}
	lk.signal()
	return w, nil
}

// admit adds a client to the queue without waking the driver.
func (lk *lock) admit(w *waiter) error {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if lk.closed != nil {
		return lk.closed
	}
	if lk.d.stopping() {
		return errStopped
	}
	if w.req.Try && (lk.waited() || lk.blocked(w.req.Mode)) {
		return api.ErrBusy
	}
	lk.arrived++
	w.nth, w.since = lk.arrived, time.Now()
	if w.req.session != nil {
		w.req.session.queued(lk, w.nth)
	}
	lk.queue = append(lk.queue, w)
	lk.used, lk.spare = true, false
	lk.noteQueued(w)
	lk.countQueued(w)
	return nil
}

// waited reports whether a client is in the queue and still there.
func (lk *lock) waited() bool {
	return slices.ContainsFunc(lk.queue, func(w *waiter) bool { return !w.req.gone() })
}

// blocked tells whether a local hold, whose holder is still there, stands in
// the way.
func (lk *lock) blocked(mode layout.Mode) bool {
	return slices.ContainsFunc(lk.holds, func(h *Hold) bool {
		return !h.req.gone() && (mode == layout.Exclusive || h.req.Mode == layout.Exclusive)
	})
}

// withdraw takes a client out of the queue; false if it was served already.
func (lk *lock) withdraw(w *waiter) bool {
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

// signal wakes the driver.
func (lk *lock) signal() {
	select {
	case lk.wake <- struct{}{}:
	default:
	}
}

// front is who is to be served next, or nil.
func (lk *lock) front() *waiter {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if len(lk.queue) == 0 {
		return nil
	}
	return lk.queue[0]
}

// refuse ends the wait of those for whom it is meant.
func (lk *lock) refuse(err error, whom func(*waiter) bool) {
	var refused []*waiter
	lk.mu.Lock()
	lk.queue = slices.DeleteFunc(lk.queue, func(w *waiter) bool {
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

func everybody(*waiter) bool { return true }

// shut ends everybody's wait and lets nobody in any more.
func (lk *lock) shut(err error) {
	lk.mu.Lock()
	if lk.closed == nil {
		lk.closed = err
	}
	err = lk.closed
	lk.signal()
	lk.mu.Unlock()
	lk.refuse(err, everybody)
}

func (lk *lock) isShut() bool {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	return lk.closed != nil
}

// grant gives the hold to the client in front, if that still is w.
func (lk *lock) grant(w *waiter, token layout.Ticket) bool {
	h := lk.enter(w, token)
	if h == nil {
		return false
	}
	w.decide(result{hold: h})
	return true
}

func (lk *lock) enter(w *waiter, token layout.Ticket) *Hold {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if len(lk.queue) == 0 || lk.queue[0] != w {
		return nil
	}
	lk.queue = slices.Delete(lk.queue, 0, 1)
	h := &Hold{lk: lk, req: w.req, token: token, since: time.Now(), released: make(chan struct{})}
	lk.holds = append(lk.holds, h)
	lk.noteEnter(h, w)
	lk.countEnter(h, w)
	if s := w.req.session; s != nil {
		s.keepGrant(token, lk)
	}
	return h
}

// told is what the clients in a queue know of their places. Who goes or comes
// changes it.
type told struct {
	ahead, queued int
	last          uint64    // arrival of the last one
	far           time.Time // when all were notified
}

const (
	// nearest is how many clients at the head of the queue are notified of every change of their
	// places.
	nearest = 16

	// tellFar is how often all of them are.
	tellFar = time.Second
)

// tell notifies clients in the queue how many are before them, if that has changed, or one has come
// back that may not know. The work does not grow with the queue: new clients and those at its head
// are notified immediately, all others once a second.
func (lk *lock) tell(ahead int) {
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

// tell is called with mu held.
func (w *waiter) tell(lk *lock, ahead, queued int) {
	if s := w.req.session; s != nil {
		s.keep(handover.Waiting, 0, lk)
	}
	if w.req.OnWaiting != nil {
		w.req.OnWaiting(ahead, queued)
	}
}
