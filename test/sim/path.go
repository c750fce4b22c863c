package sim

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
)

// path is a machine's path to a disk, with its faults.
type path struct {
	m       *machine
	d       *disk
	rng     *rand.Rand
	latency time.Duration // least latency of most requests; the greatest is twice that
	changed chan struct{} // closed and replaced at every change

	hangs    bool    // requests do not return
	failing  float64 // share of requests that fail
	slow     float64 // share of requests that are slow
	slowness time.Duration
	stray    float64 // share of requests that go to another record
	detached bool
	refused  *process // that noticed that it is detached

	writes time.Duration   // time of a write; 0: as of other requests
	stuck  map[int64]hangs // sectors with requests that do not return
}

// hangs says which requests of a sector do not return.
type hangs struct{ reads, writes bool }

// sticks reports whether a request does not return.
func (p *path) sticks(off int64, n int, write bool) bool {
	for at := off; at < off+int64(n); at += int64(p.d.g.Stride) {
		if h := p.stuck[at]; write && h.writes || !write && h.reads {
			return true
		}
	}
	return p.hangs || p.d.stopped
}

var (
	errKilled   = errors.New("the process was killed")
	errDetached = error(unix.ENODEV)
)

func newPath(m *machine, d *disk, latency time.Duration) *path {
	return &path{m: m, d: d, rng: m.w.random("path"+d.tag, m.n), latency: latency, changed: make(chan struct{})}
}

// set changes the path's faults.
func (p *path) set(f func(p *path)) {
	f(p)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *path) restore() {
	p.set(func(p *path) {
		p.hangs, p.failing, p.slow, p.stray, p.detached, p.writes, p.stuck = false, 0, 0, 0, false, 0, nil
	})
	for _, wr := range p.d.of(p.m) { // hanging writes land now
		if wr.stuck {
			wr.stuck = false
			wr.land.Reset(p.draw())
		}
	}
}

// away reports whether the disk is detached for a request of a process.
func (p *path) away(proc *process, hostWrite bool) bool {
	return p.detached || p.d.away && (hostWrite || !p.d.quietly || p.refused == proc)
}

func (p *path) troubled() bool { return p.hangs || p.detached || p.failing > 0 || p.slow > 0 }

func (p *path) chance(share float64) bool { return share > 0 && p.rng.Float64() < share }

// draw returns the time of the next request.
func (p *path) draw() time.Duration {
	if p.chance(p.slow) {
		return time.Duration(p.rng.Int64N(int64(p.slowness))) + p.latency
	}
	return p.latency + time.Duration(p.rng.Int64N(int64(p.latency)))
}

// handle is a process's handle of the disk.
type handle struct {
	p    *path
	proc *process
	info blockdev.Info
	busy int
	idle chan struct{} // closed when the handle is closed and nothing is in flight
	shut bool

	landing int      // number of its writes in flight, also of a process that was killed
	kept    *os.File // see Keep; nil if none

	searches bool // reads the head of the disk alone, to find a lockspace there
}

var _ blockdev.Device = (*handle)(nil)

func (p *path) open(proc *process) (*handle, error) {
	if p.away(proc, false) {
		p.refused = proc
		return nil, errDetached
	}
	g := p.m.w.sb.Geometry
	return &handle{p: p, proc: proc, idle: make(chan struct{}),
		info: blockdev.Info{Path: p.d.name(), LogicalBlock: g.Stride, PhysicalBlock: g.Stride, Size: g.Size()}}, nil
}

func (h *handle) Info() blockdev.Info { return h.info }

// Stats implements blockdev.Device; the simulation keeps none.
func (h *handle) Stats() blockdev.Stats { return blockdev.Stats{} }

// ready waits until the machine runs. It fails when the process is dead.
func (h *handle) ready() error {
	for {
		select {
		case <-h.proc.killed:
			return errKilled
		default:
		}
		running := h.p.m.running
		select {
		case <-running:
			return nil
		case <-h.proc.killed:
		}
	}
}

// sleep waits, at most until the process is dead.
func (h *handle) sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-h.proc.killed:
		return errKilled
	}
}

// answered waits while the request hangs and the machine is paused: only then does the process get
// the answer.
func (h *handle) answered(off int64, n int, write bool) error {
	for h.p.sticks(off, n, write) {
		changed := h.p.changed
		if d := h.p.d; d.stopped && !h.searches && h.proc.waits[d].IsZero() {
			h.proc.waits[d] = time.Now()
		}
		select {
		case <-changed:
		case <-h.proc.killed:
			return errKilled
		}
	}
	return h.ready()
}

func (h *handle) begin() error {
	if h.shut {
		return blockdev.ErrClosed
	}
	h.busy++
	return nil
}

func (h *handle) end() {
	h.busy--
	if h.busy == 0 && h.shut {
		close(h.idle)
	}
}

func (h *handle) fails() error {
	switch {
	case h.p.away(h.proc, false):
		h.p.refused = h.proc
		return errDetached
	case h.p.chance(h.p.failing):
		return unix.EIO
	}
	return nil
}

func (h *handle) Read(b []byte, off int64) error {
	if err := h.begin(); err != nil {
		return err
	}
	defer h.end()
	if err := h.ready(); err != nil {
		return err
	}
	p, d := h.p, h.p.d
	stride := int64(d.g.Stride)
	if kind := p.m.w.disk.sectorAt(off).kind; d.changed && !h.searches && kind != superSector && kind != hostSector {
		p.m.w.rules.violate("IDENTITY", "m%d reads %d from a disk that forgot what it had%s", p.m.n, off/stride, d.tag)
	}
	p.m.w.trace.step(p.m.n, "read"+d.tag, off/stride, int64(len(b))/stride)
	err := h.fails()
	// The records of a vector are read at different moments, in any order.
	records := len(b) / d.g.Stride
	moment := make([]int, records)
	moments := 1 + p.rng.IntN(min(records, 3))
	for i := range moment {
		moment[i] = p.rng.IntN(moments)
	}
	latency := p.draw()
	for now := range moments {
		if err := h.sleep(latency / time.Duration(moments+1)); err != nil {
			return err
		}
		for i := range records {
			if moment[i] != now {
				continue
			}
			at := off + int64(i)*stride
			if other := p.rng.Int64N(d.g.Size()/stride) * stride; p.chance(p.stray) && d.bytes[other] != 0 {
				at = other // a blank record has no address that shows the error
			}
			d.look(b[i*d.g.Stride:(i+1)*d.g.Stride], at, p.rng.IntN)
		}
	}
	if err := h.sleep(latency / time.Duration(moments+1)); err != nil {
		return err
	}
	had := d.changed
	if err := h.answered(off, len(b), false); err != nil {
		return err
	}
	if d.changed && !had {
		copy(b, d.bytes[off:])
	}
	if err == nil {
		err = h.fails()
	}
	if d.fails(off, len(b)) {
		err = unix.EIO
	}
	p.m.w.trace.step(p.m.n, "was read"+d.tag, off/stride, int64(len(b))/stride)
	return err
}

func (h *handle) Write(b []byte, off int64) error {
	if err := h.begin(); err != nil {
		return err
	}
	defer h.end()
	w, p, d := h.p.m.w, h.p, h.p.d
	stride := int64(d.g.Stride)
	if h == h.proc.filler {
		return h.fill(b, off)
	}
	if int64(len(b)) != stride || off%stride != 0 {
		panic("sim: a write of other than one record")
	}
	submitted := time.Now() // by the process, which may be paused before the disk has it
	data := append([]byte(nil), b...)
	if err := h.ready(); err != nil {
		return err
	}
	if w.disk.several() { // the copies of a record do not begin at one moment
		if err := h.sleep(time.Duration(p.rng.Int64N(int64(p.latency)))); err != nil {
			return err
		}
	}
	where := w.disk.sectorAt(off)
	if w.disk.refuses(p.m) {
		w.count("write refused")
		w.trace.step(p.m.n, "write refused", off/stride)
		return cmp.Or(h.sleep(p.draw()), error(unix.EBADE))
	}
	w.trace.step(p.m.n, "write"+d.tag, off/stride)
	w.rules.written(h.proc, d, where, off, data, submitted)
	if p.away(h.proc, where.kind == hostSector) {
		p.refused = h.proc
		return errDetached
	}
	latency := cmp.Or(p.writes, p.draw())
	failed := p.chance(p.failing)
	if failed && p.rng.IntN(3) == 0 { // it never reaches the disk
		if err := h.sleep(latency); err != nil {
			return err
		}
		return errors.Join(unix.EIO, h.answered(off, len(b), true))
	}
	if p.chance(p.stray) {
		w.straysTo(p, data)
		failed = true
	}
	wr := d.submit(h, data, off, time.Duration(p.rng.Int64N(int64(latency))))
	if p.m.doom != nil && where.kind == slotSector && h.proc == p.m.proc {
		doom := p.m.doom
		p.m.doom = nil
		w.tasks.Go(doom)
	}
	if p.sticks(off, len(b), true) && p.rng.IntN(2) == 0 {
		wr.stuck = true
		wr.land.Stop()
	}
	if failed {
		after := time.Duration(p.rng.Int64N(int64(latency)))
		torn := p.rng.IntN(d.g.Stride/8+1) * 8
		if where.kind == hostSector {
			torn = p.rng.IntN(2) * d.g.Stride
		}
		time.AfterFunc(after, func() { d.complete(wr, torn) })
	}
	if err := h.sleep(latency); err != nil {
		return err
	}
	select {
	case <-wr.done:
	case <-h.proc.killed:
		return errKilled
	}
	if err := h.answered(off, len(b), true); err != nil {
		return err
	}
	w.trace.step(p.m.n, "was written"+d.tag, off/stride)
	if wr.cut {
		return unix.EBADE
	}
	if failed {
		return unix.EIO
	}
	if where.kind == hostSector {
		h.proc.acked[d] = data
	}
	w.rules.acknowledged(h.proc, d, where, off, data, submitted)
	return nil
}

func (h *handle) Close() error {
	if h.shut {
		return blockdev.ErrClosed
	}
	h.shut = true
	if h.busy == 0 {
		close(h.idle)
	}
	<-h.idle
	h.lets()
	return nil
}
