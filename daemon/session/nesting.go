package session

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
)

// Deadlocks are reported, not prevented. A client that waits for one lock below a process that
// holds another is found by its process's ancestors. Its host writes that holder into its own
// waiting slot, so that every host can find a cycle of waits across hosts. This is for display: the
// protocol ignores it.

const (
	// nestAfter is how long a client waits before its ancestors are examined.
	nestAfter = time.Second

	// nestPause is the time within which clients become due that are examined together.
	nestPause = 100 * time.Millisecond

	// maxAncestors limits the number of ancestors examined.
	maxAncestors = 64
)

// nesters are the clients whose ancestors are to be examined. Clients that become due within
// nestPause are examined together, so that the work does not grow with the square of the clients.
type nesters struct {
	examine func([]*Session) []*queue.Queue // returns the queues whose slots are to show a holder
	show    func(*queue.Queue)              // has the slot show it; it may block on the device

	mu    sync.Mutex // guards the fields below
	queue []nester   // in the order of at
	armed bool       // a timer or a goroutine will look at queue
}

type nester struct {
	*Session
	at time.Time // when it is examined
}

// watchNesting schedules a check after nestAfter whether the client waits below a holder of this
// host. Called with mu held.
func (s *Session) watchNesting() {
	if s.nests {
		return
	}
	s.nests = true
	n := &s.all.nesters
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = append(n.queue, nester{s, time.Now().Add(nestAfter)})
	if !n.armed {
		n.armed = true
		time.AfterFunc(nestAfter, n.examineDue)
	}
}

// examineDue examines the clients that are due and still wait.
func (n *nesters) examineDue() {
	n.mu.Lock()
	now, i := time.Now(), 0
	var waiting []*Session
	for ; i < len(n.queue) && !n.queue[i].at.After(now); i++ {
		if s := n.queue[i].Session; !s.decided() {
			waiting = append(waiting, s)
		}
	}
	n.queue = slices.Delete(n.queue, 0, i)
	n.mu.Unlock()
	if len(waiting) > 0 {
		for _, q := range n.examine(waiting) {
			go n.show(q) // the write of one lock may hang, and the clients of the others are examined
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.armed = len(n.queue) > 0; n.armed {
		time.AfterFunc(max(nestPause, time.Until(n.queue[0].at)), n.examineDue)
	}
}

// findNesting determines below which holder each client waits. It returns the queues whose slots are to
// show that.
func (ss *Table) findNesting(waiting []*Session) (show []*queue.Queue) {
	held, _ := ss.Holding()
	a := ancestry{holders: map[int][]*Session{}, parents: map[int]int{}}
	for _, h := range held {
		a.holders[h.Peer.PID] = append(a.holders[h.Peer.PID], h)
	}
	delete(a.holders, 0) // of another pid namespace
	for _, s := range waiting {
		if outer := a.outer(s); outer != nil && !s.decided() {
			if q, self := s.waitsBelow(outer); !self && !slices.Contains(show, q) {
				show = append(show, q)
			}
		}
	}
	return show
}

// waitsBelow records that the client waits below a holder, which may have the same lock itself.
func (s *Session) waitsBelow(outer *Session) (q *queue.Queue, self bool) {
	s.mu.Lock()
	s.under = &layout.Holder{PID: outer.req.PID, Since: outer.hold.Since().UTC().Truncate(time.Microsecond), Command: outer.req.Command}
	q = s.item.Queue()
	self = outer.hold.Queue() == q
	if self {
		s.warning = fmt.Sprintf("process %d, an ancestor of this one, holds %q, so this one waits until that one ends: end this one, and acquire %[2]q once",
			outer.Peer.PID, s.req.Name)
	}
	s.tellSoon()
	s.mu.Unlock()
	s.all.cfg.Log.Warn("client waits below a holder", "lock", s.req.Name, "pid", s.req.PID, "holds", outer.req.Name, "holder_pid", outer.req.PID)
	return q, self
}

// ancestry is the sessions that hold a lock by the process of their client, and the parents of
// processes that were read.
type ancestry struct {
	holders map[int][]*Session
	parents map[int]int
}

// outer returns the session that holds a lock and whose client is an ancestor of s's client, or nil.
// Of several it returns one of the same lock, else the nearest.
func (a *ancestry) outer(s *Session) (nearest *Session) {
	for pid, n := a.parent(s.Peer.PID), 0; pid > 1 && n < maxAncestors; pid, n = a.parent(pid), n+1 {
		for _, h := range a.holders[pid] {
			if same := h.req.Name == s.req.Name; (same || nearest == nil) && h.Peer.Alive() {
				if nearest = h; same {
					return h
				}
			}
		}
	}
	return nearest
}

// parent returns the parent of a process, 0 if it is not known.
func (a *ancestry) parent(pid int) int {
	parent, known := a.parents[pid]
	if !known && pid != 0 {
		if p, err := process.Read(pid); err == nil {
			parent = p.Parent
		}
		a.parents[pid] = parent
	}
	return parent
}

func (s *Session) NestedUnder() *layout.Holder { return locked(s, &s.under) }
