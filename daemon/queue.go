package daemon

import (
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/layout"
)

// lock is this host's part in one lock: its slot on the disk, driven by one
// goroutine (driver.go), and the local clients, first in, first out.
type lock struct {
	d     *Daemon
	entry layout.Entry
	m     *bakery.Machine // the driver's alone
	area  *area           // the driver's alone
	wake  chan struct{}   // something below changed

	done  chan struct{} // closed when the driver has ended
	tasks chan task     // to be done by the driver, the next time that it waits (task.go)

	readAt   time.Duration   // when the last read of all slots was begun; the driver's alone
	judgedAt time.Duration   // by which host table they were last judged; the driver's alone
	news     <-chan struct{} // closed when there is more to learn of the hosts; the driver's alone
	warn     limiter         // the driver's alone
	polls    int             // so far; the driver's alone
	lookout  lookout         // for requests; the driver's alone
	tenure   *tenure         // of the hold on the disk, nil while there is none; the driver's alone
	before   ahead           // who was last seen directly ahead on the disk; the driver's alone
	intends  bool            // an intent in the own slot is of this process; the driver's alone
	doomed   bool            // a host that is dead may yet clear the entry (condemned); the driver's alone

	mu      sync.Mutex // guards the rest
	queue   []*waiter
	holds   []*Hold
	leaving []*Hold // let go by their clients, not yet by the driver
	arrived uint64  // waiters so far
	closed  error   // set: nobody is served any more
	scrub   bool    // the own slot is to be looked at
	after   after   // whom a client of this host waited for last

	past *past // set before the driver starts: what the bakeryd before this one left
}

// warnEvery is how often a warning is repeated.
const warnEvery = 10 * time.Second

// limiter lets a repeating warning through now and then.
type limiter struct{ last time.Time }

func (l *limiter) allow() bool {
	if time.Since(l.last) < warnEvery {
		return false
	}
	l.last = time.Now()
	return true
}

// waiter is a client in the queue.
type waiter struct {
	req    Request
	nth    uint64
	since  time.Time
	result chan result // takes one
}

type result struct {
	hold *Hold
	err  error
}

// enqueue adds a client to the queue, or tells at once why it cannot wait.
func (lk *lock) enqueue(req Request) (*waiter, error) {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if lk.closed != nil {
		return nil, lk.closed
	}
	if lk.d.stopping() {
		return nil, errStopped
	}
	if req.Try && (lk.waiters() > 0 || lk.blocked(req.Mode)) {
		return nil, ErrBusy
	}
	lk.arrived++
	w := &waiter{req: req, nth: lk.arrived, since: time.Now(), result: make(chan result, 1)}
	if req.session != nil {
		req.session.queued(w.nth)
	}
	lk.queue = append(lk.queue, w)
	lk.noteQueued(w)
	lk.signal()
	return w, nil
}

// waiters counts who is in the queue and still there.
func (lk *lock) waiters() (n int) {
	for _, w := range lk.queue {
		if !w.req.gone() {
			n++
		}
	}
	return n
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
	lk.mu.Lock()
	defer lk.mu.Unlock()
	lk.queue = slices.DeleteFunc(lk.queue, func(w *waiter) bool {
		if !whom(w) {
			return false
		}
		w.result <- result{err: err}
		return true
	})
}

// shut ends everybody's wait and lets nobody in any more.
func (lk *lock) shut(err error) {
	lk.mu.Lock()
	if lk.closed == nil {
		lk.closed = err
	}
	err = lk.closed
	lk.signal()
	lk.mu.Unlock()
	lk.refuse(err, func(*waiter) bool { return true })
}

func (lk *lock) isShut() bool {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	return lk.closed != nil
}

// grant gives the hold to the client in front, if that still is w.
func (lk *lock) grant(w *waiter, token layout.Ticket) bool {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if len(lk.queue) == 0 || lk.queue[0] != w {
		return false
	}
	lk.queue = lk.queue[1:]
	h := &Hold{lk: lk, req: w.req, token: token, since: time.Now(), released: make(chan struct{})}
	lk.holds = append(lk.holds, h)
	lk.noteEnter(h, w)
	if s := w.req.session; s != nil {
		s.keep(sessionGranted, token, lk)
	}
	w.result <- result{hold: h}
	return true
}

// told tells the clients in the queue how many are before them.
func (lk *lock) told(ahead int) {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	for i, w := range lk.queue {
		if s := w.req.session; s != nil {
			s.keep(sessionWaiting, 0, lk)
		}
		if w.req.OnWaiting != nil {
			w.req.OnWaiting(ahead+len(lk.holds)+i, len(lk.queue))
		}
	}
}
