package sim

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// disks are the member disks of the lockspace, or its one disk.
type disks struct {
	w       *world
	g       layout.Geometry
	members []*disk
	all     []*disk             // these, and the one that replaces one of them
	keys    map[*machine]uint64 // registered for persistent reservations

	replacing *replacing // nil if no member is replaced
}

// numberOfDisks draws the number of disks: one in two thirds of the runs, else 3 or 5.
func numberOfDisks(w *world, stays bool) int {
	rng := w.random("members", 0)
	if stays {
		if f := standingFaults[w.seed%uint64(len(standingFaults))]; !f.several {
			return 1
		}
	} else if rng.IntN(3) != 0 {
		return 1
	}
	return []int{3, 3, 3, 5}[rng.IntN(4)]
}

func newDisks(w *world, replaces bool) *disks {
	ds := &disks{w: w, g: w.sb.Geometry, keys: map[*machine]uint64{}}
	for n := range max(1, w.sb.Members.Positions) {
		ds.members = append(ds.members, newDisk(w, n+1))
	}
	ds.all = ds.members
	if rng := w.random("replacement", 0); replaces && ds.several() && w.sb.Policy == layout.PolicyLease && rng.IntN(2) == 0 {
		ds.replacing = newReplacing(ds, rng)
		ds.all = append(slices.Clone(ds.members), ds.replacing.spare)
	}
	return ds
}

func (ds *disks) several() bool { return len(ds.members) > 1 }

// majority returns the number of members that are needed.
func (ds *disks) majority() int { return len(ds.members)/2 + 1 }

// spare returns the number of members that a host can do without.
func (ds *disks) spare() int { return len(ds.members) - ds.majority() }

func (ds *disks) damage(off int64, how badness) {
	for _, d := range ds.members {
		d.damage(off, how)
	}
}

func (ds *disks) forget(m *machine) {
	for _, d := range ds.all {
		d.forget(m)
	}
}

func (ds *disks) powerCut(m *machine) {
	for _, d := range ds.all {
		d.powerCut(m)
	}
}

func (ds *disks) of(m *machine) (found []*write) {
	for _, d := range ds.all {
		found = append(found, d.of(m)...)
	}
	return found
}

// newest returns the newest valid copy of a record, the number of members that have it, and that of
// members with any valid copy.
func (ds *disks) newest(off int64) (record []byte, have, valid int) {
	var of layout.CopyVersion
	for _, d := range ds.members {
		v, err := d.version(d.record(off), off)
		switch {
		case err != nil || d.forgot:
			continue
		case record == nil || less(of, v):
			record, of, have = d.record(off), v, 1
		case v == of:
			have++
		}
		valid++
	}
	return record, have, valid
}

// record returns the record at an address, as a read of all members finds it.
func (ds *disks) record(off int64) []byte {
	if !ds.several() {
		return ds.members[0].record(off)
	}
	record, _, valid := ds.newest(off)
	if valid < ds.majority() {
		return bytes.Repeat([]byte("garbled "), ds.g.Stride/8)
	}
	return record
}

// seemsWritten is that of disk. A record whose newest copy is on a minority is one that a read may
// return or not.
func (ds *disks) seemsWritten(off int64) bool {
	for _, d := range ds.members {
		if d.seemsWritten(off) {
			return true
		}
	}
	if !ds.several() {
		return false
	}
	_, have, _ := ds.newest(off)
	return have < ds.majority()
}

// loses notes that contents of a record on one disk become unreadable. Those of several disks are lost
// with the last majority.
func (d *disk) loses(off int64, contents ...[]byte) {
	ds := d.w.disk
	valid := 0
	for _, o := range ds.members {
		if o == d || o.forgot || ds.replacing != nil && !o.counts(ds.replacing.last) {
			continue
		}
		if _, err := o.version(o.record(off), off); err == nil {
			valid++
		}
	}
	if valid >= ds.majority() {
		return
	}
	for _, record := range contents {
		d.w.rules.recordMayBeLost(off, record)
	}
}

func (d *disk) name() string { return "simulated" + d.tag }

func (d *disk) version(record []byte, off int64) (layout.CopyVersion, error) {
	return d.w.sb.Space().CopyVersion(record, off, d.n)
}

func less(v, w layout.CopyVersion) bool {
	return v.Epoch < w.Epoch || v.Epoch == w.Epoch && v.Counter < w.Counter
}

// lockKey is a range that a machine has locked.
type lockKey struct {
	m   *machine
	off int64
}

var _ lockspace.Disk = (*handle)(nil)

// Lock implements lockspace.Disk. The lock of a process that was killed remains while a write of it is
// in flight.
func (h *handle) Lock(off, _ int64) error {
	key, d := lockKey{h.p.m, off}, h.p.d
	if o := d.locked[key]; o != nil && o != h && o.open() {
		h.p.m.w.count("locked by an earlier process")
		return fmt.Errorf("%w: another process has it, or a request is in flight", blockdev.ErrBusy)
	}
	d.locked[key] = h
	return nil
}

// open reports whether the file is open for its process, or for a write.
func (h *handle) open() bool {
	return h.landing > 0 || h.proc.alive && (!h.shut || h.busy > 0)
}

// Keep is that of [blockdev.Disk]: the locks on the file last while h is open.
func (h *handle) Keep(f *os.File) {
	h.kept = f
	h.proc.keep = append(h.proc.keep, h)
	h.lets()
}

// lets closes the file of Keep unless h is open.
func (h *handle) lets() {
	if h.kept != nil && !h.open() {
		h.kept.Close()
		h.kept = nil
	}
}

// opens makes a process open the machine's disks.
func (p *process) opens(cfg *daemon.Config) {
	m := p.m
	if !m.w.disk.several() {
		cfg.Devices = []string{m.w.disk.members[0].name()}
		cfg.Open = func() (blockdev.Device, error) { return m.paths[0].open(p) }
		return
	}
	for _, path := range m.paths {
		cfg.Devices = append(cfg.Devices, path.d.name())
	}
	cfg.Disks = lockspace.DiskOptions{
		Timeout: m.w.sb.Lease / 10, Retry: m.w.sb.Lease / 20,
		Open: func(path string, readOnly bool) (lockspace.Disk, error) {
			i := slices.Index(cfg.Devices, path)
			select {
			case <-p.killed:
				<-m.w.over
			default:
			}
			if d := m.paths[i].d; readOnly { // a new term
				p.behind[d] = d.forgot
			} else if p.behind[d] {
				return nil, errDetached // its operator knows about the disk
			}
			h, err := m.paths[i].open(p)
			if err != nil {
				return nil, err
			}
			h.searches = readOnly
			if x := m.w.disk.replacing; x != nil && m == x.m && h.p.d == x.spare && !readOnly && p.filler == nil {
				p.filler = h
			}
			return h, nil
		},
	}
}

// restore ends the faults of all paths.
func (m *machine) restore() {
	for _, p := range m.paths {
		p.restore()
	}
}

// troubled reports whether a path has a fault.
func (m *machine) troubled() bool { return slices.ContainsFunc(m.paths, (*path).troubled) }

// without returns the number of disks other than d that the machine may not have.
func (m *machine) without(d *disk) (n int) {
	for _, p := range m.paths {
		if p.d != d && (p.troubled() || p.stray > 0 || p.d.forgot || p.d.stopped) {
			n++
		}
	}
	return n
}

// writer is a process as that of one record.
type writer struct {
	p   *process
	off int64
}

// copies are the copies of one record as a process writes them to several disks.
type copies struct {
	newest layout.CopyVersion
	writes []*copied // that are not done
}

// copied is one write.
type copied struct {
	version   layout.CopyVersion
	data      []byte
	submitted time.Time // the first copy
	acked     map[*disk]bool
}

// firstCopy reports whether the write of a record on one disk is the first of this version.
func (r *rules) firstCopy(p *process, d *disk, off int64, data []byte, submitted time.Time) bool {
	if !r.w.disk.several() {
		return true
	}
	v, err := d.version(data, off)
	if err != nil {
		r.violate("WRITER", "m%d writes a bad copy: %v", p.m.n, err)
		return false
	}
	key := writer{p, off}
	c := r.copies[key]
	if c == nil {
		c = &copies{}
		r.copies[key] = c
	}
	if !less(c.newest, v) {
		return false
	}
	c.newest = v
	c.writes = append(c.writes, &copied{v, data, submitted, map[*disk]bool{}})
	return true
}

// acknowledged follows the writes that one disk has acknowledged. With several a write is done once a
// majority acknowledged its version or a later one.
func (r *rules) acknowledged(p *process, d *disk, where sector, off int64, data []byte, submitted time.Time) {
	if !r.w.disk.several() {
		r.done(p, where, data, submitted)
		return
	}
	v, err := d.version(data, off)
	c := r.copies[writer{p, off}]
	if err != nil || c == nil {
		return
	}
	var open []*copied
	for _, wr := range c.writes {
		if !less(v, wr.version) {
			wr.acked[d] = true
		}
		votes := 0
		for d := range wr.acked {
			if p.trusts(d) {
				votes++
			}
		}
		if votes < r.w.disk.majority() {
			open = append(open, wr)
			continue
		}
		r.done(p, where, wr.data, wr.submitted)
		open = nil
	}
	c.writes = open
}
