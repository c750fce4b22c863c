package daemon

import (
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// Status reads the disk, and adds what only this host knows: its lease, which
// hosts it has not seen renew, and who waits inside it.
func (d *Daemon) Status() (*Report, error) {
	snapshot, err := Inspect(d.dev)
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	r := snapshot.Report()
	hosts, _ := d.mem.known()
	left, _ := d.mem.leaseLeft()
	r.ThisHost = &ThisHostReport{
		ID: d.mem.id(), Name: d.mem.ids.name, Incarnation: d.mem.incarnation(), State: d.state(), LeaseLeftMS: left.Milliseconds(),
	}
	for i := range r.Hosts {
		r.Hosts[i].silent(hosts)
	}
	for i := range r.Locks {
		d.mu.Lock()
		lk := d.locks[r.Locks[i].Lock]
		d.mu.Unlock()
		if lk != nil {
			r.Locks[i].Local = lk.waiting()
			r.Locks[i].addUnsettled(r.ThisHost, lk.inside())
		}
	}
	return r, nil
}

func (d *Daemon) state() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.mem.lost:
		return "lost"
	default:
	}
	if d.closing {
		return "leaving"
	}
	return "live"
}

// silent adds for how long a host has not been seen to renew.
func (h *HostReport) silent(hosts []lease.Host) {
	if h.ID > len(hosts) {
		return // the device was formatted anew, for more hosts
	}
	k := hosts[h.ID-1]
	if k.Incarnation != h.Incarnation || k.Gone {
		return
	}
	ms := max(0, boottime()-k.Since).Milliseconds()
	h.SilentMS = &ms
}

// addUnsettled shows a hold of this host that the disk shows as choosing or
// waiting until it has lasted a while.
func (l *LockReport) addUnsettled(self *ThisHostReport, h *Hold) {
	at := slices.IndexFunc(l.Queue, func(q QueueReport) bool { return q.Host == self.ID })
	if h == nil || at < 0 {
		return
	}
	l.Queue = slices.Delete(l.Queue, at, at+1)
	for i := range l.Queue {
		l.Queue[i].Place = i + 1
	}
	l.Holders = append(l.Holders, HolderReport{
		Host: self.ID, HostName: self.Name, PID: h.req.PID, Command: h.req.Command,
		Since: h.since.UTC().Truncate(time.Microsecond), Mode: h.req.Mode, Token: h.token, Phase: layout.Held,
	})
}

// inside is the first of the clients that hold the lock, or nil.
func (lk *lock) inside() *Hold {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if len(lk.holds) == 0 {
		return nil
	}
	return lk.holds[0]
}

// waiting reports the clients in the queue.
func (lk *lock) waiting() []LocalReport {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	var out []LocalReport
	for i, w := range lk.queue {
		out = append(out, LocalReport{PID: w.req.PID, Command: w.req.Command, Mode: w.req.Mode,
			Since: w.since.UTC().Truncate(time.Microsecond), Place: i + 1})
	}
	return out
}
