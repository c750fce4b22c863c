package daemon

import (
	"cmp"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/layout"
)

// Status reads the disk and adds what only this host knows: its lease, the hosts that it has not
// seen renew, and its local holders and waiters. It returns an error if the device hangs.
func (d *Daemon) Status() (*report.Report, error) {
	snapshot, err := d.inspect()
	if err != nil {
		return nil, err
	}
	return d.tell(snapshot), nil
}

// tell adds what this host knows now to a snapshot.
func (d *Daemon) tell(snapshot *lockspace.Snapshot) *report.Report {
	hosts, _ := d.mem.Known()
	r := report.Build(snapshot, &report.Knowledge{Now: d.clock.Now(), Times: d.times(), Hosts: hosts})
	left, _ := d.mem.LeaseLeft()
	r.ThisHost = &report.ThisHost{
		ID: d.mem.ID(), Name: d.ids.Name, Incarnation: d.mem.Incarnation(), State: d.state(), LeaseLeftMS: left.Milliseconds(),
		IO: ioReport(blockdev.StatsOf(d.opened)), Renewals: renewalsReport(d.cfg.Tally),
	}
	for i := range r.Locks {
		d.mu.Lock()
		lk := d.locks[r.Locks[i].Lock]
		d.mu.Unlock()
		if lk != nil {
			r.Locks[i].Local = lk.waiting()
			addHolds(&r.Locks[i], r.ThisHost, lk.inside())
		}
	}
	r.ExplainStuck()
	return r
}

func ioReport(s blockdev.Stats) *report.IO {
	of := func(l blockdev.Latency) report.Latency {
		return report.Latency{Count: l.Count, Errors: l.Errors, P50US: l.P50.Microseconds(), P99US: l.P99.Microseconds(), MaxUS: l.Max.Microseconds()}
	}
	return &report.IO{Read: of(s.Read), Write: of(s.Write), InFlight: s.InFlight, OldestMS: s.Oldest.Milliseconds()}
}

func renewalsReport(t *tally.Tally) *report.Latency {
	times := t.Renewals.Times()
	return &report.Latency{Count: times.Count, Errors: t.RenewalFailures.Load(), P50US: times.Quantile(0.5).Microseconds(),
		P99US: times.Quantile(0.99).Microseconds(), MaxUS: times.Max.Microseconds()}
}

func (d *Daemon) state() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.mem.Lost():
		return StateLost
	default:
	}
	if d.closing {
		return StateLeaving
	}
	return StateLive
}

// addHolds adds the local clients that hold the lock. The disk shows the host as choosing or
// waiting until a hold has lasted for settleAfter, and then only the first client.
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
		if c := h.req.client; c != nil {
			r.Processes, r.Orphan = c.leftOver()
			r.Containment = c.containment()
		}
		l.Holders = append(l.Holders, r)
	}
	slices.SortFunc(l.Holders, func(a, b report.Holder) int { return cmp.Compare(a.Token, b.Token) })
}

// inside returns the local holds of the lock.
func (lk *lock) inside() []*Hold {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	return slices.Clone(lk.holds)
}

// waiting reports the clients in the queue.
func (lk *lock) waiting() []report.Local {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	var out []report.Local
	for i, w := range lk.queue {
		l := report.Local{PID: w.req.PID, Command: w.req.Command, Mode: w.req.Mode,
			Since: w.since.UTC().Truncate(time.Microsecond), Place: i + 1}
		if c := w.req.client; c != nil {
			if under := c.nestedUnder(); under != nil {
				l.Under, l.UnderSince = under.PID, under.Since
			}
		}
		out = append(out, l)
	}
	return out
}
