package sim

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// disk is a disk that all hosts share: the one of the lockspace, or a member. A record is written as
// a whole at one moment. Until then an overlapping read may return the old one, the new one, or parts
// of both.
type disk struct {
	w       *world
	n       int    // position, from 1
	tag     string // of its requests in the trace
	g       layout.Geometry
	bytes   []byte
	bad     map[int64]badness   // sectors that stay unreadable, whatever is written
	writing map[int64][]*write  // writes in flight, by address, in the order of their submission
	locked  map[lockKey]*handle // that locked a range last
	undone  map[int64]time.Time // when a write ended that did not land as a whole: a read during it may have returned it

	snapshot []byte // its earlier contents; nil if none
	away     bool   // detached from all hosts
	quietly  bool   // a process notices by a write of a host record first
	changed  bool   // it has forgotten
	forgot   bool   // it is blank, or has earlier contents, or will soon
	stopped  bool   // no request returns
}

// badness is how a sector is unreadable.
type badness int

const (
	garbled badness = iota + 1
	failing
)

// write is a write that the disk has not acknowledged yet.
type write struct {
	m     *machine
	h     *handle
	boot  int // boot of m when it submitted the write
	off   int64
	data  []byte
	land  *time.Timer
	stuck bool          // lands when the path recovers
	over  bool          // landed, or never will
	cut   bool          // aborted, because its host was fenced
	done  chan struct{} // closed when over
	begun time.Time
}

func newDisk(w *world, n int) *disk {
	g, sb := w.sb.Geometry, w.sb
	d := &disk{w: w, n: n, g: g, bytes: make([]byte, g.Size()), writing: map[int64][]*write{}, bad: map[int64]badness{},
		undone: map[int64]time.Time{}, locked: map[lockKey]*handle{}}
	if sb.Members.Several() {
		sb.Position, d.tag = n, fmt.Sprint("@", n)
	}
	for copy := range 2 {
		at := g.Superblock(copy)
		if err := sb.Encode(d.bytes[at:at+int64(g.Stride)], copy); err != nil {
			panic(err)
		}
	}
	return d
}

// submit begins a write of one record that lands after a delay.
func (d *disk) submit(h *handle, p []byte, off int64, after time.Duration) *write {
	m := h.p.m
	h.landing++
	wr := &write{m: m, h: h, boot: m.boots, off: off, data: append([]byte(nil), p...), done: make(chan struct{}), begun: time.Now()}
	d.writing[off] = append(d.writing[off], wr)
	wr.land = time.AfterFunc(after, func() { d.complete(wr, len(wr.data)) })
	return wr
}

// complete ends a write of which n bytes reach the disk.
func (d *disk) complete(wr *write, n int) {
	if wr.over {
		return
	}
	wr.over = true
	wr.land.Stop()
	if n != d.g.Stride {
		d.undone[wr.off] = time.Now()
	}
	if n != 0 && n != d.g.Stride || d.bad[wr.off] != 0 {
		d.loses(wr.off, d.record(wr.off), wr.data)
	}
	copy(d.bytes[wr.off:], wr.data[:n])
	d.w.trace.step(wr.m.n, "landed"+d.tag, wr.off/int64(d.g.Stride), int64(n))
	left := d.writing[wr.off][:0]
	for _, x := range d.writing[wr.off] {
		if x != wr {
			left = append(left, x)
		}
	}
	d.writing[wr.off] = left
	wr.h.landing--
	wr.h.lets()
	close(wr.done)
}

// powerCut decides what happens to a machine's writes: they land or not, whole or torn, immediately
// or later.
func (d *disk) powerCut(m *machine) {
	for _, wr := range d.of(m) {
		wr.stuck = false
		switch r := m.rng.IntN(10); {
		case r < 3:
			d.complete(wr, 0)
		case r < 5 && d.w.disk.sectorAt(wr.off).kind != hostSector: // a torn record of a lost host stays: README.md
			d.complete(wr, m.rng.IntN(d.g.Stride/8)*8)
		case r < 7:
			d.complete(wr, d.g.Stride)
		default:
			wr.land.Reset(time.Duration(m.rng.Int64N(int64(4 * d.w.sb.Lease))))
		}
	}
}

// forget drops a machine's writes in flight; the disk is attached again.
func (d *disk) forget(m *machine) {
	for _, wr := range d.of(m) {
		d.complete(wr, 0)
	}
}

// of returns a machine's writes, in the order of the disk.
func (d *disk) of(m *machine) (found []*write) {
	for off := int64(0); off < int64(len(d.bytes)); off += int64(d.g.Stride) {
		for _, wr := range d.writing[off] {
			if wr.m == m {
				found = append(found, wr)
			}
		}
	}
	return found
}

// look reads one record now, with any of the effects of overlapping writes.
func (d *disk) look(p []byte, off int64, pick func(n int) int) {
	copy(p, d.record(off))
	if d.bad[off] != 0 {
		return
	}
	for _, wr := range d.writing[off] {
		if wr.stuck && d.w.standing != nil {
			continue // a write that never lands would be read forever
		}
		switch pick(4) {
		case 0:
			copy(p, wr.data)
		case 1:
			copy(p, wr.data[:8*(1+pick(d.g.Stride/8-1))])
		}
	}
}

// sector says which record is at an address: its host, and its lock.
type sector struct {
	kind sectorKind
	host int
	lock int
}

type sectorKind int

const (
	superSector sectorKind = iota
	hostSector
	entrySector
	slotSector
)

// sectorAt is the inverse of the geometry.
func (d *disks) sectorAt(off int64) sector {
	n := int(off / int64(d.g.Stride))
	switch {
	case n < 2:
		return sector{kind: superSector}
	case n < 2+d.g.Hosts:
		return sector{kind: hostSector, host: n - 1}
	case n < 2+d.g.Hosts+d.g.Locks:
		return sector{kind: entrySector, lock: n - 1 - d.g.Hosts}
	}
	n -= 2 + d.g.Hosts + d.g.Locks
	return sector{kind: slotSector, lock: n / d.g.Hosts, host: n%d.g.Hosts + 1}
}
