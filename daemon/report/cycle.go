package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/text"
)

// edge is the wait of a client that holds another lock.
type edge struct {
	host      int
	name      string // of the host
	pid       int
	under, in *Lock // the held lock, and the lock it waits for
}

func (e edge) String() string {
	return fmt.Sprintf("process %d of %s holds %q and waits for %q", e.pid, text.HostName(e.host, e.name), e.under.Name, e.in.Name)
}

// edges returns the waits of clients below a hold that the report shows.
func (r *Report) edges() (all []edge) {
	for i := range r.Locks {
		in := &r.Locks[i]
		if in.Permits > 1 {
			continue // another permit may become free
		}
		add := func(host int, name string, pid int, since time.Time) {
			// A process id is that of its own pid namespace. With the time of the hold it is unique.
			holder := func(h Holder) bool { return h.Host == host && h.PID == pid && h.Since.Equal(since) }
			for k := range r.Locks {
				if under := &r.Locks[k]; slices.ContainsFunc(under.Holders, holder) {
					all = append(all, edge{host, name, pid, under, in})
				}
			}
		}
		for _, q := range in.Queue {
			if q.Under != 0 {
				add(q.Host, q.HostName, q.Under, q.UnderSince)
			}
		}
		for _, w := range in.Local {
			if w.Under != 0 {
				add(r.ThisHost.ID, r.ThisHost.Name, w.Under, w.UnderSince)
			}
		}
	}
	return all
}

// deadlock returns a description of a cycle of waits with the lock, "" if there is none.
func (r *Report) deadlock(l *Lock, edges []edge) string {
	var path []string
	var visit func(at *Lock) bool
	seen := map[*Lock]bool{}
	visit = func(at *Lock) bool {
		if seen[at] {
			return false
		}
		seen[at] = true
		for _, e := range edges {
			if e.under != at {
				continue
			}
			path = append(path, e.String())
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
	return "deadlock: " + strings.Join(path, "; ") + ": end a waiter"
}
