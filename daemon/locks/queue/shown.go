package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// Describe adds the clients of this host to a report of the lock.
func (q *Queue) Describe(l *report.Lock, self *report.ThisHost) {
	l.Local = q.locals()
	q.mu.Lock()
	lingering := q.lingering
	q.mu.Unlock()
	addHolds(l, self, q.Inside(), lingering)
}

// locals reports the clients in the queue.
func (q *Queue) locals() (out []report.Local) {
	for i, w := range q.copied(nil, &q.waiting) {
		l := report.Local{PID: w.Request.PID, Command: w.Request.Command, Mode: w.Mode(),
			Since: w.queued.UTC().Truncate(time.Microsecond), Place: i + 1}
		if under := w.Request.nestedUnder(); under != nil {
			l.Under, l.UnderSince = under.PID, under.Since
		}
		out = append(out, l)
	}
	return out
}

// addHolds adds the local clients that hold the lock. The disk shows the host as choosing or
// waiting until a hold has lasted for some time, and then only the first client. lingering is the
// ticket of a hold without a client, 0 if there is none.
func addHolds(l *report.Lock, self *report.ThisHost, holds []*Item, lingering layout.Ticket) {
	ticket, settled := l.TicketOf(self.ID)
	l.Lingering = lingering != 0 && lingering == ticket
	holds = slices.DeleteFunc(holds, func(h *Item) bool { // of a later ticket than the snapshot
		return h.joined || layout.MakeTicket(h.token.Number(), self.ID) != ticket
	})
	if len(holds) == 0 && !l.Lingering {
		return
	}
	l.Holders = slices.DeleteFunc(l.Holders, func(h report.Holder) bool { return h.Host == self.ID })
	l.Queue = slices.DeleteFunc(l.Queue, func(q report.Queued) bool { return q.Host == self.ID })
	for i := range l.Queue {
		l.Queue[i].Place = i + 1
	}
	for _, h := range holds {
		r := report.Holder{
			Host: self.ID, HostName: self.Name, PID: h.Request.PID, Command: h.Request.Command,
			Since: h.since.UTC().Truncate(time.Microsecond), Mode: h.Mode(), Token: h.token, Phase: layout.Held, Published: settled,
		}
		if c := h.Request.Client; c != nil {
			r.Processes, r.Orphan = c.LeftOver()
			r.Containment = c.Containment()
		}
		l.Holders = append(l.Holders, r)
	}
	slices.SortFunc(l.Holders, func(a, b report.Holder) int { return cmp.Compare(a.Token, b.Token) })
}

// Vitals are the gauges of a lock's clients on this host.
type Vitals struct {
	Name    string
	Holding int
	Waiting int
	Longest time.Duration // wait of the waiting clients
}

// Vitals returns the gauges of the lock.
func (q *Queue) Vitals(now time.Time) Vitals {
	q.mu.Lock()
	defer q.mu.Unlock()
	v := Vitals{Name: q.Entry.Name, Waiting: len(q.waiting)}
	for _, h := range q.holds {
		if !h.joined {
			v.Holding++
		}
	}
	for _, w := range q.waiting {
		v.Longest = max(v.Longest, now.Sub(w.queued))
	}
	return v
}

// InUse reports whether clients hold the lock, release it or wait for it.
func (q *Queue) InUse() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.holds)+len(q.waiting)+len(q.releasing) > 0
}
