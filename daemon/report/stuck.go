package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// explainStuck sets Stuck of every lock.
func (r *Report) explainStuck() {
	edges := r.edges()
	for i := range r.Locks {
		l := &r.Locks[i]
		l.Times = nil
		l.Stuck = cmp.Or(r.deadlock(l, edges), r.stuck(l))
	}
}

// stuck returns in one sentence the reason why a lock is stuck and the remedy. It returns "" if the
// lock is not stuck or has no waiter, except that it always reports a silent holder. It uses the
// report only.
func (r *Report) stuck(l *Lock) string {
	wanted := len(l.Queue)+len(l.Local) > 0
	for _, h := range l.Holders {
		if why := r.trouble(h.Host); why != "" && (wanted || r.silent(h.Host)) {
			l.Times = r.timesOf(h.Host)
			return "held by " + text.HostName(h.Host, h.HostName) + why
		}
	}
	if !wanted {
		return ""
	}
	for _, h := range l.Holders {
		if h.Orphan {
			return fmt.Sprintf("held by %s: its bakeryctl is gone, %s", text.HostName(h.Host, h.HostName), h.leftOver())
		}
	}
	return cmp.Or(r.stuckQueue(l), r.stuckSlot(l))
}

// leftOver returns in words which processes of an orphan's command run.
func (h *Holder) leftOver() string {
	command := ""
	if h.Command != "" {
		command = " (" + text.PrintableLine(h.Command) + ")"
	}
	switch n := len(h.Processes); n {
	case 0:
		return "its command" + command + " lives"
	case 1:
		return fmt.Sprintf("process %d%s lives", h.Processes[0], command)
	default:
		return fmt.Sprintf("process %d%s and %d more live", h.Processes[0], command, n-1)
	}
}

// stuckQueue returns the reason if a healthy waiter is blocked only by hosts ahead in the queue
// that are in trouble.
func (r *Report) stuckQueue(l *Lock) string {
	for i, waits := range l.Queue {
		if r.trouble(waits.Host) != "" {
			continue
		}
		well := 0
		for _, h := range l.Holders {
			if conflict(h.Mode, waits.Mode) {
				well++
			}
		}
		var ill []Queued
		for _, ahead := range l.Queue[:i] {
			switch {
			case !conflict(ahead.Mode, waits.Mode):
			case r.trouble(ahead.Host) != "":
				ill = append(ill, ahead)
			default:
				well++
			}
		}
		permits := max(l.Permits, 1)
		if well >= permits || well+len(ill) < permits {
			continue
		}
		l.Times = r.timesOf(ill[0].Host)
		name, why := text.HostName(ill[0].Host, ill[0].HostName), r.trouble(ill[0].Host)
		if ill[0].Phase == layout.Choosing {
			return name + " is entering" + why
		}
		return "behind " + name + " in the queue" + why
	}
	return ""
}

func conflict(a, b layout.Mode) bool { return a == layout.Exclusive || b == layout.Exclusive }

// stuckSlot returns the reason if a slot cannot be read. All hosts wait for it, unless its host has
// left or is dead.
func (r *Report) stuckSlot(l *Lock) string {
	for _, d := range r.Damaged {
		if d.Kind != lockspace.KindSlot || d.Lock != l.Number || r.ended(d.Host) {
			continue
		}
		slot := "the slot of " + text.HostName(d.Host, r.hostName(d.Host)) + " cannot be read"
		if why := r.trouble(d.Host); why != "" {
			l.Times = r.timesOf(d.Host)
			return slot + why
		}
		return slot + ": its bakeryd rewrites it within " + Left(time.Duration(r.Lockspace.LeaseMS)*time.Millisecond)
	}
	return ""
}

// ended reports whether the slots of a host are void.
func (r *Report) ended(id int) bool {
	h := r.HostByID(id)
	if h == nil {
		return !r.unreadable(id) // it never joined
	}
	return h.Health == HealthLeft || h.Health == HealthDead
}

func (r *Report) unreadable(id int) bool {
	return slices.ContainsFunc(r.Damaged, func(d Damage) bool { return d.Kind == lockspace.KindHost && d.Host == id })
}

func (r *Report) silent(id int) bool {
	h := r.HostByID(id)
	return h != nil && h.Health == HealthSilent
}

// timesOf returns the times in the words of trouble.
func (r *Report) timesOf(id int) []Moving {
	if h := r.HostByID(id); h != nil && !r.unreadable(id) {
		return h.Times
	}
	return nil
}

// trouble returns in words what is wrong with a host that others wait for, and how that ends. It
// returns "" if the host is healthy.
func (r *Report) trouble(id int) string {
	if r.unreadable(id) {
		return ", whose record cannot be read: its next renewal repairs it; if it is down: bakeryctl check --repair"
	}
	h := r.HostByID(id)
	switch {
	case h != nil && h.Health == HealthLost && r.ThisHost.State == StateJoining:
		return "" // the others may have the lock by now
	case h != nil && h.Health == HealthLost:
		return ", which has lost its lease: the lock is free when that host is declared dead or joins again"
	case !r.silent(id):
		return ""
	case h.DeadInMS != nil:
		return ", silent, " + h.outcome
	case r.ThisHost == nil:
		return ", silent, and only a running bakeryd shows how that ends"
	}
	return ", silent " + h.outcome
}

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
	if path := waits(l, l, edges, map[*Lock]bool{}); path != nil {
		return "deadlock: " + strings.Join(path, "; ") + ": end a waiter"
	}
	return ""
}

// waits describes a path of waits from a held lock to another, nil if there is none without a lock
// that was visited.
func waits(from, to *Lock, edges []edge, visited map[*Lock]bool) []string {
	if visited[from] {
		return nil
	}
	visited[from] = true
	for _, e := range edges {
		if e.under != from {
			continue
		}
		if e.in == to {
			return []string{e.String()}
		}
		if rest := waits(e.in, to, edges, visited); rest != nil {
			return slices.Insert(rest, 0, e.String())
		}
	}
	return nil
}
