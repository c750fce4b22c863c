package queue

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// ErrAbsent ends the wait of a client that did not reconnect after a restart.
var ErrAbsent = fmt.Errorf("%w: its client did not come back after a restart", api.ErrLost)

// Request describes the lock that a client requests.
type Request struct {
	Name string
	Mode layout.Mode
	Try  bool // return ErrBusy instead of waiting
	// Permits of a new lock, and required of an existing one, 1 to the number of hosts; 0: 1 for a
	// new lock, any for an existing one
	Permits int
	PID     int    // for display: the holder
	Command string // for display: its purpose

	// OnWaiting, unless nil, is called with the number of clients before this one, and the number
	// of this host's waiting clients. It must not block.
	OnWaiting func(ahead, queued int)

	// OnRequest, unless nil, is called while the lock is held and another client requests it
	// (Manager.Request): once per request, after a restart of bakeryd at least once. It must not
	// block.
	OnRequest func(Requested)

	// Gone, unless nil, reports whether the client has gone away, even if that was not reported
	// yet. A hold or a place that it leaves behind does not make a lock busy. It must not block.
	Gone func() bool

	// Removable, unless nil, returns why a lock is not to be removed. The driver calls it when the host
	// holds the lock exclusively for a removal. It may do IO.
	Removable func() error

	NoLinger bool // the host does not keep the lock for the next client once this one has released

	Client Client // nil if it does not outlive bakeryd
	asked  uint64 // number of its event; 0 if there is none, or it is not known
}

func (r *Request) gone() bool { return r.Gone != nil && r.Gone() }

func (r *Request) listening() bool {
	return r.OnRequest != nil && (r.Client == nil || r.Client.Listening())
}

// nestedUnder returns the holder below which the client waits; nil if none.
func (r *Request) nestedUnder() *layout.Holder {
	if r.Client == nil {
		return nil
	}
	return r.Client.NestedUnder()
}

// Client is a client that outlives bakeryd. It hears of all that the next process must know. The
// queue calls it without a mutex. Therefore KeepPlace may come after Forget or after Follow of another
// item, and KeepMode after KeepRelease: these change nothing.
type Client interface {
	Follow(*Item)                        // by which it waits and holds from now on; not in the queue yet
	KeepPlace(*Item)                     // its place is about to be sent
	KeepGrant()                          // the grant is about to be sent
	KeepMode(layout.Mode)                // the mode has changed
	KeepRelease()                        // the client releases; the disk may still show the hold
	Forget()                             // a restart need not know it any more
	Detached() bool                      // it has not reconnected after a restart
	Listening() bool                     // it receives the requests of others
	Containment() string                 // of its command
	LeftOver() (pids []int, orphan bool) // whether it is gone while its command runs
	NestedUnder() *layout.Holder         // the holder below which it waits; nil if none
}

// Requested notifies a holder that another client requests its lock.
type Requested struct {
	Host     int    // of the requesting client
	HostName string // empty if not known
	// at most layout.MaxRequest bytes of text without control characters; may be empty
	Message string
}

// Item is one request of a client: it waits in the queue, then it is a hold, then it is released.
type Item struct {
	Request Request // its mode is guarded by the queue's mu once it is a hold
	Removes bool    // removes the lock when it is acquired, instead of holding it

	q      *Queue
	nth    uint64    // number of its arrival
	queued time.Time // when it arrived

	// Decide reports the outcome to the client, which has left the queue: nil when it is served, or
	// why it is refused. It is called once, by any goroutine, without mu, because the client may use
	// the lock immediately, and must not block.
	Decide func(error)

	// of the hold
	token layout.Ticket
	since time.Time
	// closed when the lock is free on the disk, granted to the next client, or kept for it
	released     chan struct{}
	changes      uint64 // number of changes of the mode; guarded by mu
	leaving      bool   // its client releases; guarded by mu
	reportedLost bool   // guarded by mu
	joined       bool   // taken by this host itself next to a client's hold (Join); not shown
}

// Init makes a request an item of a queue, which it enters by Admit, Join or Restore. decide is
// Decide.
func (w *Item) Init(q *Queue, req Request, decide func(error)) {
	w.q, w.Request, w.Decide, w.released = q, req, decide, make(chan struct{})
	if c := req.Client; c != nil {
		c.Follow(w)
	}
}

// Released returns a channel that is closed when the lock is free on the disk, granted to the next
// client, or kept for it.
func (w *Item) Released() <-chan struct{} { return w.released }

// Absent reports whether the client has not reconnected after a restart.
func (w *Item) Absent() bool { return w.Request.Client != nil && w.Request.Client.Detached() }

// Nth returns the number of clients that had arrived when this one had.
func (w *Item) Nth() uint64 { return w.nth }

// Queued returns when the client arrived.
func (w *Item) Queued() time.Time { return w.queued }

// Queue returns the queue of the lock.
func (w *Item) Queue() *Queue { return w.q }

// Since returns when the lock was granted.
func (w *Item) Since() time.Time { return w.since }

// Token returns the fencing token of this grant.
func (w *Item) Token() layout.Ticket { return w.token }

// conflicts reports whether the hold excludes another one of a mode. Called with mu held.
func (w *Item) conflicts(mode layout.Mode) bool {
	return mode == layout.Exclusive || w.Request.Mode == layout.Exclusive
}

// Mode returns the mode in which the lock is held.
func (w *Item) Mode() layout.Mode {
	mode, _ := w.ModeAndChanges()
	return mode
}

// ModeAndChanges also returns the number of changes of the mode.
func (w *Item) ModeAndChanges() (layout.Mode, uint64) {
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	return w.Request.Mode, w.changes
}

// Listen notifies the driver that a holder may want to receive requests now.
func (w *Item) Listen() { w.q.Signal() }
