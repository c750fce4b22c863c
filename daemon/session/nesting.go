package session

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
)

// Deadlocks are reported, not prevented. A client that waits for one lock below a process that
// holds another is found by its process's ancestors. Its host writes that holder into its own
// waiting slot, so that every host can find a cycle of waits across hosts. This is for display: the
// protocol ignores it.

// nestAfter is how long a client waits before its ancestors are examined.
const nestAfter = time.Second

// maxAncestors limits the number of ancestors examined.
const maxAncestors = 64

// watchNesting schedules a check after nestAfter whether the client waits below a holder of this
// host. Called with mu held.
func (s *Session) watchNesting() {
	if s.nesting == nil {
		s.nesting = time.AfterFunc(nestAfter, s.findNesting)
	}
}

// findNesting determines below which holder the client waits, and shows it in the slot.
func (s *Session) findNesting() {
	outer := s.all.outer(s)
	if outer == nil || s.decided() {
		return
	}
	s.mu.Lock()
	s.under = &layout.Holder{PID: outer.req.PID, Since: outer.hold.Since().UTC().Truncate(time.Microsecond), Command: outer.req.Command}
	lk := s.item.Queue()
	self := outer.hold.Queue() == lk
	if self {
		s.warning = fmt.Sprintf("process %d, an ancestor of this one, holds %q, so this one waits until that one ends: end this one, and acquire %[2]q once",
			outer.Peer.PID, s.req.Name)
	}
	s.tellSoon()
	s.mu.Unlock()
	s.all.cfg.Log.Warn("client waits below a holder", "lock", s.req.Name, "pid", s.req.PID, "holds", outer.req.Name, "holder_pid", outer.req.PID)
	if !self {
		s.all.cfg.Locks.ShowNesting(lk)
	}
}

// outer returns the session of this host that holds a lock and whose client is an ancestor of s's
// client, or nil. Of several it returns one of the same lock, else the nearest.
func (ss *Table) outer(s *Session) (nearest *Session) {
	if s.Peer.PID == 0 {
		return nil // of another pid namespace
	}
	held, _ := ss.Holding()
	same := func(h *Session) bool { return h != nil && h.req.Name == s.req.Name }
	byPID := make(map[int]*Session, len(held))
	for _, h := range held {
		if !same(byPID[h.Peer.PID]) {
			byPID[h.Peer.PID] = h
		}
	}
	delete(byPID, 0)
	pid := s.Peer.PID
	for range maxAncestors {
		p, err := process.Read(pid)
		if err != nil || p.Parent <= 1 {
			break
		}
		pid = p.Parent
		if h := byPID[pid]; h != nil && h.Peer.Alive() && (nearest == nil || same(h)) {
			nearest = h
		}
	}
	return nearest
}

func (s *Session) NestedUnder() *layout.Holder { return locked(s, &s.under) }
