package locks

import (
	"cmp"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// addHolds adds the local clients that hold the lock. The disk shows the host as choosing or
// waiting until a hold has lasted for SettleAfter, and then only the first client.
func addHolds(l *report.Lock, self *report.ThisHost, holds []*Hold) {
	ticket, settled := l.TicketOf(self.ID)
	holds = slices.DeleteFunc(holds, func(h *Hold) bool { // of a later ticket than the snapshot
		return h.joined || layout.MakeTicket(h.token.Number(), self.ID) != ticket
	})
	if len(holds) == 0 {
		return
	}
	l.Holders = slices.DeleteFunc(l.Holders, func(h report.Holder) bool { return h.Host == self.ID })
	l.Queue = slices.DeleteFunc(l.Queue, func(q report.Queued) bool { return q.Host == self.ID })
	for i := range l.Queue {
		l.Queue[i].Place = i + 1
	}
	for _, h := range holds {
		r := report.Holder{
			Host: self.ID, HostName: self.Name, PID: h.req.PID, Command: h.req.Command,
			Since: h.since.UTC().Truncate(time.Microsecond), Mode: h.Mode(), Token: h.token, Phase: layout.Held, Published: settled,
		}
		if c := h.req.Client; c != nil {
			r.Processes, r.Orphan = c.LeftOver()
			r.Containment = c.Containment()
		}
		l.Holders = append(l.Holders, r)
	}
	slices.SortFunc(l.Holders, func(a, b report.Holder) int { return cmp.Compare(a.Token, b.Token) })
}

// inside returns the local holds of the lock.
func (lk *Lock) inside() []*Hold {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	return slices.Clone(lk.holds)
}

// waiting reports the clients in the queue.
func (lk *Lock) waiting() []report.Local {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	var out []report.Local
	for i, w := range lk.queue {
		l := report.Local{PID: w.req.PID, Command: w.req.Command, Mode: w.req.Mode,
			Since: w.since.UTC().Truncate(time.Microsecond), Place: i + 1}
		if c := w.req.Client; c != nil {
			if under := c.NestedUnder(); under != nil {
				l.Under, l.UnderSince = under.PID, under.Since
			}
		}
		out = append(out, l)
	}
	return out
}

// LockVitals are the gauges of a lock's clients on this host.
type LockVitals struct {
	Name    string
	Holding int
	Waiting int
	Longest time.Duration // wait of the waiting clients
}

// Vitals returns the gauges of the locks that clients of this host hold or wait for, by name.
func (m *Manager) Vitals() (all []LockVitals) {
	now := time.Now()
	for _, lk := range m.all() {
		if v := lk.vitals(now); v.Holding+v.Waiting > 0 && lk.observed() {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b LockVitals) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (lk *Lock) vitals(now time.Time) LockVitals {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	v := LockVitals{Name: lk.Entry.Name, Waiting: len(lk.queue)}
	for _, h := range lk.holds {
		if !h.joined {
			v.Holding++
		}
	}
	for _, w := range lk.queue {
		v.Longest = max(v.Longest, now.Sub(w.since))
	}
	return v
}

// InUse returns the numbers of the locks that clients of this host hold, release or wait for.
func (m *Manager) InUse() (numbers []int) {
	for _, lk := range m.all() {
		lk.mu.Lock()
		if len(lk.holds)+len(lk.queue)+len(lk.leaving) > 0 {
			numbers = append(numbers, lk.Entry.Lock)
		}
		lk.mu.Unlock()
	}
	return numbers
}

// Describe adds the clients of this host to a report of a lock.
func (m *Manager) Describe(l *report.Lock, self *report.ThisHost) {
	if lk := m.attached(l.Lock); lk != nil {
		l.Local = lk.waiting()
		addHolds(l, self, lk.inside())
	}
}
