package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Explain says of every lock why it does not move.
func (r *Report) Explain() {
	edges := r.edges()
	for i := range r.Locks {
		l := &r.Locks[i]
		if l.Stuck = r.deadlock(l, edges); l.Stuck == "" {
			l.Stuck = r.stuck(l)
		}
	}
}

// stuck says in one sentence why a lock does not move, and what mends that. It is empty if the lock does, or nobody
// waits for it; but that a holder is silent is always told. It knows what the report says, and nothing else.
func (r *Report) stuck(l *Lock) string {
	wanted := len(l.Queue)+len(l.Local) > 0
	for _, h := range l.Holders {
		if why := r.trouble(h.Host, "released"); why != "" && (wanted || r.silent(h.Host)) {
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
	if why := r.stuckQueue(l); why != "" {
		return why
	}
	return r.stuckSlot(l)
}

// leftOver names what lives of an orphan's command.
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

// stuckQueue tells of a host ahead in the queue that somebody waits for who would be let in but for such hosts.
func (r *Report) stuckQueue(l *Lock) string {
	for i, waits := range l.Queue {
		if r.trouble(waits.Host, "") != "" {
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
			case r.trouble(ahead.Host, "") != "":
				ill = append(ill, ahead)
			default:
				well++
			}
		}
		permits := max(l.Permits, 1)
		if well >= permits || well+len(ill) < permits {
			continue
		}
		name, why := text.HostName(ill[0].Host, ill[0].HostName), r.trouble(ill[0].Host, "passed over")
		if ill[0].Phase == layout.Choosing {
			return name + " is entering" + why
		}
		return "behind " + name + " in the queue" + why
	}
	return ""
}

func conflict(a, b layout.Mode) bool { return a == layout.Exclusive || b == layout.Exclusive }

// stuckSlot tells of a slot that cannot be read. All others wait for it, unless its host is over.
func (r *Report) stuckSlot(l *Lock) string {
	for _, d := range r.Damaged {
		if d.Kind != lockspace.KindSlot || d.Lock != l.Lock || r.over(d.Host) {
			continue
		}
		slot := "the slot of " + text.HostName(d.Host, r.hostName(d.Host)) + " cannot be read"
		if why := r.trouble(d.Host, "passed over"); why != "" {
			return slot + why
		}
		return slot + ": its bakeryd rewrites it within " + spell(time.Duration(r.Lockspace.LeaseMS)*time.Millisecond)
	}
	return ""
}

// over tells whether what a host wrote counts for nothing.
func (r *Report) over(id int) bool {
	h := r.host(id)
	if h == nil {
		return !r.unreadable(id) // it never joined
	}
	return h.Health == HealthLeft || h.Health == HealthDead
}

func (r *Report) unreadable(id int) bool {
	return slices.ContainsFunc(r.Damaged, func(d Damage) bool { return d.Kind == lockspace.KindHost && d.Host == id })
}

func (r *Report) silent(id int) bool {
	h := r.host(id)
	return h != nil && h.Health == HealthSilent
}

// trouble says what is wrong with a host that others wait for, and how it ends; freed is what becomes of its place
// when it is dead. It is empty if the host is well.
func (r *Report) trouble(id int, freed string) string {
	evict := fmt.Sprintf("bakeryctl evict %d", id)
	if r.unreadable(id) {
		return ", whose record cannot be read: its next renewal mends that; if it is down: bakeryctl check --repair"
	}
	if !r.silent(id) {
		return ""
	}
	h := r.host(id)
	seen := ""
	if h.SilentMS != nil {
		seen = ", not seen for " + spell(time.Duration(*h.SilentMS)*time.Millisecond)
	}
	fence := r.Lockspace.Policy == layout.PolicyFence
	switch {
	case h.DeadInMS == nil:
		return seen + ", until it is back or evicted: " + evict
	case *h.DeadInMS <= 0 && fence:
		return seen + ", being fenced"
	case *h.DeadInMS <= 0:
		return seen + ", being declared dead"
	}
	if fence {
		freed = "to be fenced"
	}
	// Rounded up: it is not over before.
	return fmt.Sprintf("%s, %s in %s", seen, freed, spell(time.Duration(*h.DeadInMS)*time.Millisecond+time.Second-1))
}

// spell writes a duration in whole seconds, or minutes where seconds say nothing any more.
func spell(d time.Duration) string {
	if d < 10*time.Minute {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%d min", d/time.Minute)
}
