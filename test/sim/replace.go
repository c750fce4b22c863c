package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/bakeryd/bakeryd/daemon/replacement"
	"github.com/bakeryd/bakeryd/layout"
)

// replacing is the replacement of a member disk, by a machine of its own, which is killed at times. The disk
// before stays in its place with what it had.
type replacing struct {
	w     *world
	rng   *rand.Rand
	m     *machine
	old   *disk
	spare *disk
	lists map[uint64]layout.Members // that it wrote, by epoch
	last  layout.Members            // of these
	done  bool
}

func newReplacing(ds *disks, rng *rand.Rand) *replacing {
	r := &replacing{w: ds.w, rng: rng, lists: map[uint64]layout.Members{}, last: ds.w.sb.Members}
	r.old = ds.members[rng.IntN(len(ds.members))]
	r.spare = newDisk(ds.w, r.old.n)
	r.spare.tag = "@new"
	clear(r.spare.bytes)
	return r
}

// run replaces the disk, again until that is done.
func (r *replacing) run() {
	for r.w.sleep(r.within(r.w.sb.Lease/2, 3*r.w.sb.Lease)) {
		if err := r.attempt(); err == nil {
			r.done = true
			r.w.disk.members[r.old.n-1] = r.spare
			r.w.count("disk replaced")
			return
		}
	}
}

// attempt is one call of bakeryctl disk replace.
func (r *replacing) attempt() error {
	p := r.m.begin()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.cancel = cancel
	if !r.w.calm() && r.rng.IntN(3) != 0 {
		r.w.after(r.rng, 0, 4*r.w.sb.Lease, func() {
			if r.m.proc == p {
				r.w.count("replacement killed")
				r.m.kill()
			}
		})
	}
	_, err := replacement.Replace(ctx, p.config(), replacement.Order{Old: strconv.Itoa(r.old.n), New: r.spare.name(),
		Progress: func(message string) { r.w.trace.step(r.m.n, message) }})
	r.w.trace.step(r.m.n, fmt.Sprint("replacement ended: ", err))
	if !p.alive {
		return errKilled
	}
	r.m.retire(p)
	return err
}

func (r *replacing) within(least, most time.Duration) time.Duration {
	return least + time.Duration(r.rng.Int64N(int64(most-least)))
}

// lists records a list of members, by its superblock. Records that are on too few other disks are lost.
func (r *rules) lists(m *machine, data []byte) {
	ds := r.w.disk
	x := ds.replacing
	for which := range 2 {
		sb, err := layout.DecodeSuperblock(data, which)
		if err != nil || x == nil || m != x.m {
			continue
		}
		x.lists[sb.Members.Epoch], x.last = sb.Members, sb.Members
		for off := ds.g.Slot(0, 1); off < ds.g.Size() && !x.old.counts(x.last); off += int64(ds.g.Stride) {
			for _, d := range ds.members {
				x.old.loses(off, d.record(off))
			}
		}
		return
	}
	r.violate("WRITER", "m%d writes a superblock", m.n)
}

// counts reports whether a disk may have a vote by a list.
func (d *disk) counts(list layout.Members) bool {
	x := d.w.disk.replacing
	return x == nil || d != x.old || list.Disks[d.n-1] == d.w.sb.Members.Disks[d.n-1]
}

// trusts reports whether acknowledgements of a disk count for a process. By the epoch that it has shown it
// uses no older list.
func (p *process) trusts(d *disk) bool {
	x := p.m.w.disk.replacing
	if x == nil || d != x.old {
		return true
	}
	list, ok := x.lists[p.epoch]
	return !ok || d.counts(list)
}

// Zero implements blockdev.Device. It is used on a new disk alone.
func (h *handle) Zero(off, n int64) error {
	if x := h.p.m.w.disk.replacing; x == nil || h.p.d != x.spare {
		return errors.ErrUnsupported
	}
	if err := h.begin(); err != nil {
		return err
	}
	defer h.end()
	return h.fill(make([]byte, n), off)
}

// fill writes to a disk that is no member yet.
func (h *handle) fill(b []byte, off int64) error {
	if err := h.ready(); err != nil {
		return err
	}
	stride := int64(h.p.d.g.Stride)
	h.p.m.w.trace.step(h.p.m.n, "fill"+h.p.d.tag, off/stride, int64(len(b))/stride)
	err := h.sleep(h.p.draw())
	if err != nil {
		b = b[:h.p.rng.Int64N(int64(len(b))/stride+1)*stride]
	}
	copy(h.p.d.bytes[off:], b)
	return err
}
