// Package queue is the clients of one host in one lock: those that wait, first in, first out, and
// those that hold it. It never knows the disk, and no other host's clients. Package driver takes the
// lock on the disk for them. Start reading at [Queue].
package queue

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/observe"
	"github.com/bakeryd/bakeryd/layout"
)

// ErrStopped ends the wait of clients of a daemon that is closing.
var ErrStopped = fmt.Errorf("%w: shutting down", api.ErrUnavailable)

// Host is what the queues of a host share.
type Host struct {
	ID       int
	Name     string // for display
	Observer observe.Observer
	Traced   bool            // happenings say which hosts and clients are ahead of a client
	Stop     <-chan struct{} // closed when no more clients are admitted
	Restart  <-chan struct{} // closed when no hold is kept without a client any more
	Lost     <-chan struct{} // closed when the lease is lost
	Cause    func() error    // why it was; not called with a mutex held
}

// Stopping reports whether no more clients are admitted.
func (h *Host) Stopping() bool { return closed(h.Stop) }

// MayLinger reports whether a hold may be kept although no client has it.
func (h *Host) MayLinger() bool { return !closed(h.Restart) && !closed(h.Stop) }

// IsLost reports whether the lease is lost.
func (h *Host) IsLost() bool { return closed(h.Lost) }

// Refusal returns the error of all requests after the lease was lost, with the reason.
func (h *Host) Refusal() error {
	err := fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	if cause := h.Cause(); cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// lost returns why the lease is lost, nil if it is not.
func (h *Host) lost() error {
	if !h.IsLost() {
		return nil
	}
	return cmp.Or(h.Cause(), api.ErrLeaseLost)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Queue is the clients of this host in one lock. It is safe for concurrent use. It calls a client
// without its mutex, so what a client answers may be older than the queue.
type Queue struct {
	Entry layout.Entry
	Wake  chan struct{} // receives when the queue has changed; for the driver
	host  *Host

	renotify atomic.Bool // a client in the queue may not know its place

	mu        sync.Mutex // guards the rest
	waiting   []*Item
	holds     []*Item
	releasing []*Item // released by their clients, not yet by the driver
	// of the hold on the disk that no client has, while it is kept for the next one; else 0
	lingering layout.Ticket
	told      told      // what the clients in the queue were notified of
	tellsAll  bool      // a timer runs that notifies all of them
	tries     bool      // clients that do not wait have arrived since they were last refused
	arrived   uint64    // number of clients that have arrived
	used      bool      // since Idle returned true
	idle      bool      // it was not used since MarkIdle
	closed    error     // error for all clients, nil while they are served
	after     waitedFor // host that a client of this host waited for last
}

// New returns a queue without clients.
func New(host *Host, e layout.Entry) *Queue {
	return &Queue{host: host, Entry: e, Wake: make(chan struct{}, 1)}
}

// Admit adds a client to the queue, or returns immediately why it cannot wait. It does not wake the
// driver.
func (q *Queue) Admit(w *Item) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	busy := false
	for seen := uint64(0); w.Request.Try && !busy && seen != q.arrived+1; { // until no other client arrives meanwhile
		seen = q.arrived + 1
		q.mu.Unlock()
		busy = q.waited() || q.blocked(w.Request.Mode)
		q.mu.Lock()
	}
	switch {
	case q.closed != nil:
		return q.closed
	case q.host.Stopping():
		return ErrStopped
	case busy:
		return api.ErrBusy
	}
	q.arrived++
	w.nth, w.queued = q.arrived, time.Now()
	q.waiting = append(q.waiting, w)
	q.used, q.idle, q.tries = true, false, q.tries || w.Request.Try
	q.reportQueued(w)
	return nil
}

// waited reports whether a client is in the queue that has not gone away.
func (q *Queue) waited() bool {
	return slices.ContainsFunc(q.copied(nil, &q.waiting), func(w *Item) bool { return !w.Request.gone() })
}

// blocked reports whether a local hold conflicts with mode and its holder has not gone away.
func (q *Queue) blocked(mode layout.Mode) bool {
	return slices.ContainsFunc(q.Inside(), func(h *Item) bool {
		return !h.Request.gone() && (mode == layout.Exclusive || h.Mode() == layout.Exclusive)
	})
}

// copied appends one of the lists as it is now to a slice: clients are called without mu.
func (q *Queue) copied(to []*Item, list *[]*Item) []*Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append(to, *list...)
}

// Join adds a hold of this host itself next to a client's hold. It returns false if there is none.
func (q *Queue) Join(h *Item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.holds) == 0 || q.closed != nil {
		return false
	}
	of := q.holds[0]
	h.Request.Mode, h.token, h.since, h.joined = of.Request.Mode, of.token, time.Now(), true
	q.holds = append(q.holds, h)
	return true
}

// Restore puts a client where it was when the previous process recorded it.
func (q *Queue) Restore(w *Item, r handover.Session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.arrived = max(q.arrived, r.Nth)
	w.nth, w.queued, w.since, w.token = r.Nth, r.Since, r.Since, r.Token
	switch r.State {
	case handover.Waiting:
		q.waiting = append(q.waiting, w)
	case handover.Granted:
		q.holds = append(q.holds, w)
	case handover.Released:
		q.releasing = append(q.releasing, w)
	}
}

// Withdraw removes a client from the queue. It returns false if the client was served or refused
// already.
func (q *Queue) Withdraw(w *Item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, w)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.Signal()
	return true
}

// ClientIsBack notifies the driver that a client in the queue has reconnected.
func (q *Queue) ClientIsBack() {
	q.renotify.Store(true)
	q.Signal()
}

// Signal wakes the driver.
func (q *Queue) Signal() {
	select {
	case q.Wake <- struct{}{}:
	default:
	}
}

// Arrived returns the number of clients that have arrived.
func (q *Queue) Arrived() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.arrived
}

// Front returns the next waiting client, or nil.
func (q *Queue) Front() *Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return nil
	}
	return q.waiting[0]
}

// Refuse ends the wait of the clients that All, Tries, Removers or Only selects, with err.
func (q *Queue) Refuse(err error, selects func(*Item) bool) {
	var refused []*Item
	q.mu.Lock()
	q.waiting = slices.DeleteFunc(q.waiting, func(w *Item) bool {
		if !selects(w) {
			return false
		}
		refused = append(refused, w)
		return true
	})
	q.mu.Unlock()
	for _, w := range refused {
		w.Decide(err)
	}
}

// All selects all clients.
func All(*Item) bool { return true }

// Tries selects those that do not wait.
func Tries(w *Item) bool { return w.Request.Try }

// Removers selects those that remove the lock.
func Removers(w *Item) bool { return w.Removes }

// Only selects one client.
func Only(w *Item) func(*Item) bool { return func(x *Item) bool { return x == w } }

// RefuseTries refuses the clients that do not wait, if a local hold blocks them.
func (q *Queue) RefuseTries() {
	q.mu.Lock()
	tries := q.tries
	q.mu.Unlock()
	if !tries || !q.blocked(layout.Exclusive) {
		return
	}
	q.mu.Lock()
	q.tries = false // set again by those that arrive from here on
	q.mu.Unlock()
	q.Refuse(api.ErrBusy, Tries)
}

// RefuseLost reports the loss of the lease to all waiting clients: the driver may be waiting for a
// device that hangs.
func (q *Queue) RefuseLost() {
	q.Refuse(q.host.Refusal(), All)
}

// Close ends the wait of all clients and admits no more. The error of the first call counts.
func (q *Queue) Close(err error) {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = err
	}
	err = q.closed
	q.mu.Unlock()
	q.Signal()
	q.Refuse(err, All)
}

// Closed returns the error of Close, nil before.
func (q *Queue) Closed() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// Grant gives the lock to w, if it is still in front. handoff says that another client of this host
// had it before by the same ticket.
func (q *Queue) Grant(w *Item, token layout.Ticket, handoff bool) bool {
	q.mu.Lock()
	front := len(q.waiting) > 0 && q.waiting[0] == w
	if front {
		if q.waiting[0] = nil; len(q.waiting) > nearest { // a long queue stays where it is
			q.waiting = q.waiting[1:]
		} else {
			q.waiting = slices.Delete(q.waiting, 0, 1)
		}
		w.token, w.since = token, time.Now()
		q.holds = append(q.holds, w)
		q.lingering = 0
		q.reportGrant(w, handoff)
	}
	q.mu.Unlock()
	if !front {
		return false
	}
	if c := w.Request.Client; c != nil {
		c.KeepGrant()
	}
	w.Decide(nil)
	return true
}

// SetMode sets the mode of a hold. The next process would know it when SetMode returns. It returns
// false if the hold is being released. The driver calls it.
func (q *Queue) SetMode(h *Item, mode layout.Mode) bool {
	q.mu.Lock()
	held := !h.leaving && slices.Contains(q.holds, h)
	if held {
		h.Request.Mode = mode
		h.changes++
		// shared before the disk shows that, exclusive after
		q.reportHold(events.ModeSet, h, time.Now(), "")
	}
	q.mu.Unlock()
	if c := h.Request.Client; held && c != nil {
		c.KeepMode(mode)
	}
	return held
}

// Release ends a hold for its client; the driver has to do the rest. It returns false if that was
// done before. why is the reason for the event, empty if the holder released it.
//
// The release is in the handover file before the driver can see it: else the next holder's
// grant could come first, and a next process would find two exclusive holders.
//
//	Release: h is leaving
//	         h is released in the file
//	         holds without h           next: grants w
//	                                   w is granted in the file
func (q *Queue) Release(h *Item, why string) bool {
	q.mu.Lock()
	held := !h.leaving && slices.Contains(q.holds, h)
	h.leaving = h.leaving || held
	q.mu.Unlock()
	if !held {
		return false
	}
	if c := h.Request.Client; c != nil {
		c.KeepRelease()
	}
	lost := q.host.lost()
	q.mu.Lock()
	q.holds = slices.DeleteFunc(q.holds, Only(h))
	q.releasing = append(q.releasing, h)
	q.reportRelease(h, why, lost)
	q.mu.Unlock()
	return true
}

// ReleasesDone unblocks all clients that have released.
func (q *Queue) ReleasesDone() { q.completeReleases(true, 0) }

// Linger is ReleasesDone when the host keeps its hold by a ticket on the disk for the next client. It
// returns false if the client that released last has ruled that out, or the host has.
func (q *Queue) Linger(ticket layout.Ticket) bool {
	q.mu.Lock()
	n := len(q.releasing)
	may := n > 0 && !q.releasing[n-1].Request.NoLinger && q.host.MayLinger()
	if may {
		q.lingering = ticket // with mu held: Lingers is not false between EndLingers and the release
	}
	q.mu.Unlock()
	if may {
		q.completeReleases(true, ticket)
	}
	return may
}

// Lingers reports whether the hold is kept without a client, until its release is on the disk.
func (q *Queue) Lingers() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lingering != 0
}

// CompleteReleases unblocks the clients that have released if another local client still holds the
// lock. If none does, the last one may have released as well, and the release on the disk must come
// first.
func (q *Queue) CompleteReleases() { q.completeReleases(false, 0) }

// completeReleases sets lingering to the ticket that is kept.
func (q *Queue) completeReleases(all bool, kept layout.Ticket) {
	var done []*Item
	q.mu.Lock()
	if all || len(q.holds) > 0 {
		done, q.releasing, q.lingering = q.releasing, nil, kept
	}
	q.mu.Unlock()
	for _, h := range done {
		if c := h.Request.Client; c != nil {
			c.Forget()
		}
		close(h.released)
	}
}

// Holders returns the number of clients that hold the lock.
func (q *Queue) Holders() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.holds)
}

// Holds reports whether h is one of the holds.
func (q *Queue) Holds(h *Item) bool { return slices.Contains(q.Inside(), h) }

// Inside returns the holds.
func (q *Queue) Inside() []*Item { return q.copied(nil, &q.holds) }

// MarkIdle has Idle return true if clients have used the lock and none uses it until then. It
// returns false if clients hold the lock or wait for it.
func (q *Queue) MarkIdle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting)+len(q.holds) > 0 {
		return false
	}
	if q.used && len(q.releasing) == 0 {
		q.idle = true
		q.Signal()
	}
	return true
}

// Idle reports once whether clients have used the lock, and none has since MarkIdle.
func (q *Queue) Idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	idle := q.idle
	q.idle, q.used = false, q.used && !idle
	return idle
}

// Holder returns what the own slot shows about the holder in a phase, for display only. Below a
// waiting slot, that is a holder below which a client in the queue waits.
func (q *Queue) Holder(p layout.Phase) layout.Holder {
	var few [4]*Item
	switch p {
	case layout.Held:
		if holds := q.copied(few[:0], &q.holds); len(holds) > 0 {
			h := holds[0]
			return layout.Holder{PID: h.Request.PID, Since: h.since, Command: h.Request.Command}
		}
	case layout.Waiting:
		for _, w := range q.copied(few[:0], &q.waiting) {
			if under := w.Request.nestedUnder(); under != nil {
				return *under
			}
		}
	}
	return layout.Holder{}
}

// Listening reports whether a holder wants to receive requests.
func (q *Queue) Listening() bool {
	var few [4]*Item
	return slices.ContainsFunc(q.copied(few[:0], &q.holds), func(h *Item) bool { return h.Request.listening() })
}

// Requested notifies every holder that listens. It returns false if none does.
func (q *Queue) Requested(r Requested) (told bool) {
	for _, h := range q.Inside() {
		if h.Request.listening() {
			h.Request.OnRequest(r)
			told = true
		}
	}
	return told
}
