package daemon

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Deadlocks are reported, not prevented. A client that waits for one lock below a process that
// holds another is found by the parents of its process. Its host writes that holder into its own
// waiting slot, so that every host can find a cycle of waits across hosts. That is for people: the
// protocol does not look at it.

// nestAfter is how long a client waits before its parents are looked at.
const nestAfter = time.Second

// maxAncestors bounds how many parents are looked at.
const maxAncestors = 64

// watchNesting looks, once a client has waited for nestAfter, whether it waits below a holder of
// this host. It is called with mu held.
func (s *session) watchNesting() {
	if s.nesting == nil {
		s.nesting = time.AfterFunc(nestAfter, s.findNesting)
	}
}

// findNesting determines below which holder the client waits, and has the host show it.
func (s *session) findNesting() {
	outer := s.all.outer(s)
	if outer == nil || s.decided() {
		return
	}
	s.mu.Lock()
	s.under = &layout.Holder{PID: outer.req.PID, Since: outer.hold.since.UTC().Truncate(time.Microsecond), Command: outer.req.Command}
	lk, self := s.lk, outer.lk == s.lk
	if self {
		s.warning = fmt.Sprintf("process %d, an ancestor of this one, holds %q, and this one waits until it ends: end this one, and take %[2]q once",
			outer.peer.PID, s.req.Name)
	}
	if s.linked() {
		s.tellSoon()
	}
	s.mu.Unlock()
	s.all.d.log.Warn("client waits below a holder", "lock", s.req.Name, "pid", s.req.PID, "holds", outer.req.Name, "holder_pid", outer.req.PID)
	if !self {
		_ = lk.do(lk.showNesting) // for people: if it fails, the slot does not show it
	}
}

// outer returns the session of this host that holds a lock and below whose client another client
// runs, or nil. If there are several it is one of the same lock, else the nearest.
func (ss *sessions) outer(s *session) (nearest *session) {
	held, _ := ss.holding()
	same := func(h *session) bool { return h != nil && h.req.Name == s.req.Name }
	byPID := make(map[int]*session, len(held))
	for _, h := range held {
		if !same(byPID[h.peer.PID]) {
			byPID[h.peer.PID] = h
		}
	}
	delete(byPID, 0)
	pid := s.peer.PID
	for range maxAncestors {
		p, err := process.Read(pid)
		if err != nil || p.Parent <= 1 {
			break
		}
		pid = p.Parent
		if h := byPID[pid]; h != nil && h.peer.Alive() && (nearest == nil || same(h)) {
			nearest = h
		}
	}
	return nearest
}

// nesting is what the own slot says of a holder below which a client in the queue waits; the zero
// Holder if there is none. It is called with mu held.
func (lk *lock) nesting(p layout.Phase) layout.Holder {
	if p == layout.Waiting {
		for _, w := range lk.queue {
			if s := w.req.session; s != nil {
				if under := s.nestedUnder(); under != nil {
					return *under
				}
			}
		}
	}
	return layout.Holder{}
}

func (s *session) nestedUnder() *layout.Holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under
}

// showNesting writes the own slot again if it waits for a client below a holder. It is the driver's
// alone.
func (lk *lock) showNesting() error {
	if lk.m.Mine().Phase != layout.Waiting {
		return nil
	}
	return lk.write(lk.m.Mine())
}

// edge is a wait of a client that holds another lock meanwhile.
type edge struct {
	host      int
	name      string // of the host
	pid       int
	under, in *LockReport // it holds under, and waits for in
}

func (e edge) String() string {
	return fmt.Sprintf("process %d of %s holds %q and waits for %q", e.pid, text.HostName(e.host, e.name), e.under.Name, e.in.Name)
}

// edges returns the waits below a hold that the report shows.
func (r *Report) edges() (all []edge) {
	// A number of a process is that of its own pid namespace: the time makes it one hold.
	holds := func(l *LockReport, host, pid int, since time.Time) bool {
		return slices.ContainsFunc(l.Holders, func(h HolderReport) bool {
			return h.Host == host && h.PID == pid && h.Since.Equal(since)
		})
	}
	add := func(in *LockReport, host int, name string, pid int, since time.Time) {
		if pid == 0 {
			return
		}
		for i := range r.Locks {
			if holds(&r.Locks[i], host, pid, since) {
				all = append(all, edge{host: host, name: name, pid: pid, under: &r.Locks[i], in: in})
			}
		}
	}
	for i := range r.Locks {
		l := &r.Locks[i]
		if l.Permits > 1 {
			continue // another permit may become free
		}
		for _, q := range l.Queue {
			add(l, q.Host, q.HostName, q.Under, q.underSince)
		}
		for _, w := range l.Local {
			if w.Under != 0 {
				add(l, r.ThisHost.ID, r.ThisHost.Name, w.Under, w.underSince)
			}
		}
	}
	return all
}

// deadlock describes a cycle of waits that a lock is part of; empty: there is none.
func (r *Report) deadlock(l *LockReport, edges []edge) string {
	var path []edge
	var visit func(at *LockReport) bool
	seen := map[*LockReport]bool{}
	visit = func(at *LockReport) bool {
		if seen[at] {
			return false
		}
		seen[at] = true
		for _, e := range edges {
			if e.under != at {
				continue
			}
			path = append(path, e)
			if e.in == l || visit(e.in) {
				return true
			}
			path = path[:len(path)-1]
		}
		return false
	}
	if !visit(l) {
		return ""
	}
	texts := make([]string, len(path))
	for i, e := range path {
		texts[i] = e.String()
	}
	return "deadlock: " + strings.Join(texts, "; ") + ": end a waiter"
}
