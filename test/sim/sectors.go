package sim

import (
	"bytes"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// record returns the record at an address.
func (d *disk) record(off int64) []byte {
	if d.bad[off] != 0 {
		return bytes.Repeat([]byte("garbled "), d.g.Stride/8)
	}
	return d.bytes[off : off+int64(d.g.Stride)]
}

// seemsWritten reports whether a read may have returned something else than the record: of a write
// in flight, or of one that did not land.
func (d *disk) seemsWritten(off int64) bool {
	at, undone := d.undone[off]
	return len(d.writing[off]) > 0 || undone && time.Since(at) < 2*d.w.sb.Lease // no read takes longer
}

// damage makes a sector unreadable: until it is written again, or permanently if how is set.
func (d *disk) damage(off int64, how badness) {
	d.loses(off, d.record(off))
	if how != 0 {
		d.bad[off] = how
		return
	}
	copy(d.record(off), bytes.Repeat([]byte("garbled "), d.g.Stride/8))
}

// fails reports whether a read covers a sector that fails.
func (d *disk) fails(off int64, n int) bool {
	for at := off; at < off+int64(n); at += int64(d.g.Stride) {
		if d.bad[at] == failing {
			return true
		}
	}
	return false
}

// written checks a write at the moment that it reaches the disk.
func (r *rules) written(p *process, d *disk, where sector, off int64, data []byte, submitted time.Time) {
	m, space := p.m, r.w.sb.Space()
	for _, wr := range d.writing[off] {
		if wr.m == m && wr.boot == m.boots {
			r.violate("WRITER", "m%d writes sector %d while a write of it is under way%s", m.n, off/int64(d.g.Stride), d.tag)
		}
	}
	if !r.firstCopy(p, d, off, data, submitted) {
		return
	}
	switch where.kind {
	case superSector:
		r.lists(m, data)
	case hostSector:
		rec, err := space.DecodeHost(data, where.host)
		if err != nil {
			r.violate("WRITER", "m%d writes a bad record of host %d: %v", m.n, where.host, err)
			return
		}
		p.epoch = max(p.epoch, rec.Epoch)
		l := r.leases[rec.Incarnation]
		if l == nil {
			l = &term{incarnation: rec.Incarnation, m: m, host: where.host, joined: submitted}
			r.leases[rec.Incarnation] = l
		}
		if l.m != m {
			r.violate("WRITER", "m%d writes incarnation %016x of m%d", m.n, rec.Incarnation, l.m.n)
		}
		if rec.State == layout.StateLeft {
			l.live = false
		}
		for _, v := range rec.Verdicts { // they are dropped when the id has a new host
			if of := r.leases[v.Incarnation]; of != nil && of.host == v.Host && v.Kind != layout.VerdictWish {
				of.declaredDead = true
			}
		}
	case slotSector:
		s, err := space.DecodeSlot(data, where.lock, where.host)
		if err != nil {
			r.violate("WRITER", "m%d writes a bad slot of host %d in lock %d: %v", m.n, where.host, where.lock, err)
			return
		}
		if l := r.leases[s.Incarnation]; l == nil || l.m != m || l.host != where.host {
			r.violate("WRITER", "m%d writes the slot of host %d in lock %d for incarnation %016x, which is not its own", m.n, where.host,
				where.lock, s.Incarnation)
			return
		}
		r.doorway(where, s, submitted)
	}
}

// doorway follows a host's doorway of a lock.
func (r *rules) doorway(where sector, s layout.Slot, submitted time.Time) {
	key := [2]int{where.lock, where.host}
	d := r.doorways[key]
	if d == nil || d.inc != s.Incarnation {
		d = &doorway{inc: s.Incarnation}
		r.doorways[key] = d
	}
	if s.Phase == layout.Choosing && d.phase == layout.Idle {
		d.began = submitted
	}
	if s.Phase != layout.Waiting {
		d.waiting, d.ticket = time.Time{}, 0
	}
	d.phase, d.mode = s.Phase, s.Mode
}

// done follows leases and doorways by writes that were acknowledged, by a majority of the members.
func (r *rules) done(p *process, where sector, data []byte, submitted time.Time) {
	now, space := time.Now(), r.w.sb.Space()
	switch where.kind {
	case hostSector:
		rec, err := space.DecodeHost(data, where.host)
		if err != nil || rec.State != layout.StateLive {
			return
		}
		l, deadline := r.leases[rec.Incarnation], submitted.Add(p.m.lasts(r.w.sb.Lease))
		if !now.Before(deadline) || l.live && !now.Before(l.deadline) {
			return // too late to count
		}
		l.live, l.deadline = true, deadline
		r.single(l)
	case slotSector:
		s, err := space.DecodeSlot(data, where.lock, where.host)
		d := r.doorways[[2]int{where.lock, where.host}]
		if err == nil && s.Phase == layout.Waiting && d.inc == s.Incarnation && d.phase == layout.Waiting && d.waiting.IsZero() {
			d.waiting = now
		}
	}
}

// single checks that no other incarnation of the id is live.
func (r *rules) single(l *term) {
	for p, o := range r.current {
		if o != l && o.host == l.host && o.live && p.alive && time.Now().Before(o.deadline) && p.m != l.m && !lost(p) {
			r.violate("SINGLE", "host %d is live as incarnation %016x of m%d and %016x of m%d", l.host, l.incarnation, l.m.n, o.incarnation, o.m.n)
		}
	}
}

// lost reports whether a process knows that its lease is over.
func lost(p *process) bool {
	d, err := p.svc.Joined()
	return err != nil || d.Err() != nil
}

// straysTo writes to another record, of a host that can repair it.
func (w *world) straysTo(p *path, data []byte) {
	var targets []int64
	for id := 1; id <= w.sb.Geometry.Hosts; id++ {
		for lock := 1; lock <= w.sb.Geometry.Locks; lock++ {
			targets = append(targets, w.sb.Geometry.Slot(lock, id))
		}
	}
	at := targets[p.rng.IntN(len(targets))]
	if p.m.hostID == 0 || slices.Equal(p.d.record(at)[:8], make([]byte, 8)) {
		return // like a bad sector; a blank record belongs to no host
	}
	p.d.loses(at, p.d.record(at))
	copy(p.d.bytes[at:], data)
	w.count("stray write")
	w.trace.step(p.m.n, "strays to", at/int64(w.sb.Geometry.Stride))
}
