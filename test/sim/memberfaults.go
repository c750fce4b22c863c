package sim

import (
	"slices"
	"time"
)

// disturb changes the paths of a machine to its disk for some time. With several disks it changes
// those of one machine or of all to one disk. If f.spares is not set it may take all of a machine.
func (f *faults) disturb(m *machine, during time.Duration, change func(p *path)) {
	changed := m.paths
	if f.w.disk.several() {
		changed = f.affected(m)
	}
	for _, p := range changed {
		f.w.trace.step(p.m.n, "to disk", int64(p.d.n))
		p.set(change)
	}
	f.w.after(f.rng, during, during+1, func() {
		for _, p := range changed {
			p.restore()
		}
	})
}

func (f *faults) affected(m *machine) (paths []*path) {
	if !f.spares && f.rng.IntN(3) == 0 {
		return m.paths
	}
	machines, k := []*machine{m}, f.rng.IntN(len(m.paths))
	if f.rng.IntN(2) == 0 {
		machines = f.w.machines
	}
	for _, m := range machines {
		if p := m.paths[k]; !f.spares || m.without(p.d) < f.w.disk.spare() {
			paths = append(paths, p)
		}
	}
	return paths
}

// chooseMembers chooses the faults of several disks.
func (f *faults) chooseMembers() {
	if !f.w.disk.several() {
		return
	}
	f.spares = f.rng.IntN(4) != 0
	// Slots of an id that no host takes again would stay half-written without that disk: README.md.
	replaces := f.w.disk.replacing != nil
	if f.rng.IntN(3) == 0 && f.w.machines[0].hostID != 0 && !replaces {
		f.kinds = append(f.kinds, kind{"disk forgets", (*faults).forgets}, kind{"disk forgets while it hangs", (*faults).forgetsSilently})
		for _, d := range f.w.disk.members {
			f.w.after(f.rng, f.lease(), storm, func() { d.snapshot = slices.Clone(d.bytes) })
		}
	}
	others := func(k kind) bool { return slices.Contains(losesLease, k.name) }
	f.w.rules.kept = f.spares && !replaces && f.w.machines[0].rate == 1 && !slices.ContainsFunc(f.kinds, others)
}

// losesLease are the faults by which a host may lose its lease while it has a majority of the disks.
var losesLease = []string{"pause", "eviction", "cloned id", "bad sector", "stray requests"}

// rejoined checks that a host lost its lease for a reason: it is also over if a process begins too late
// to renew it.
func (r *rules) rejoined(p *process) {
	if renewed := r.current[p].deadline.Sub(p.began) > r.w.sb.Lease; r.kept && renewed {
		r.violate("KEPT", "m%d lost its lease, and always had a majority of the disks", p.m.n)
	}
}

// forgets makes a disk blank, or sets it back to a snapshot, after it was detached from all hosts
// until every process noticed. A process or a term that begins later does not know what a disk had
// that was set back, so it does not get it; nor does a process of which it has the last record.
func (f *faults) forgets(*machine) {
	d := f.w.disk.members[f.rng.IntN(len(f.w.disk.members))]
	for _, m := range f.w.machines {
		if m.without(d) >= f.w.disk.spare() || d.forgot {
			return
		}
	}
	to := make([]byte, len(d.bytes))
	if d.snapshot != nil && f.rng.IntN(3) != 0 {
		to = d.snapshot
	}
	d.away, d.forgot, d.quietly = true, true, f.rng.IntN(2) == 0
	for _, m := range f.w.machines {
		m.paths[d.n-1].refused = nil
	}
	f.w.trace.step(0, "detached", int64(d.n))
	f.w.after(f.rng, f.lease()/10, 2*f.lease(), func() {
		for slices.ContainsFunc(f.w.machines, d.isTrusted) {
			if !f.w.sleep(f.lease() / 20) {
				return
			}
		}
		for _, m := range f.w.machines {
			if m.proc != nil && !d.misses(m.proc, to) {
				m.proc.behind[d] = true
			}
		}
		copy(d.bytes, to)
		d.away, d.changed = false, true
		f.w.count(map[bool]string{false: "disk became blank", true: "disk was set back"}[to[0] != 0])
		f.w.trace.step(0, "forgot", int64(d.n), boolean(to[0] != 0))
	})
}

// hung is longer than a member may give no answer until it is checked again.
const hung = 1100 * time.Millisecond

// forgetsSilently makes a disk blank while a request of every process hangs there for longer than hung. Then all
// requests are answered, without an error.
func (f *faults) forgetsSilently(*machine) {
	d := f.w.disk.members[f.rng.IntN(len(f.w.disk.members))]
	for _, m := range f.w.machines {
		if m.without(d) >= f.w.disk.spare() || d.forgot || d.stopped {
			return
		}
	}
	d.stopped = true
	f.w.after(f.rng, hung, 2*hung, func() {
		waits := func(m *machine) bool {
			return m.proc == nil || !m.proc.waits[d].IsZero() && time.Since(m.proc.waits[d]) > hung
		}
		for !f.done && f.w.sleep(f.lease()/20) {
			if !slices.ContainsFunc(f.w.machines, func(m *machine) bool { return !waits(m) }) {
				clear(d.bytes)
				d.forgot, d.changed = true, true
				f.w.count("disk became blank while it hung")
				f.w.trace.step(0, "forgot", int64(d.n))
				break
			}
		}
		d.stopped = false
		for _, m := range f.w.machines {
			if m.proc != nil {
				delete(m.proc.waits, d)
			}
			m.paths[d.n-1].restore()
		}
	})
}

// isTrusted reports whether a machine's process did not notice that the disk is detached.
func (d *disk) isTrusted(m *machine) bool {
	return m.proc != nil && !m.proc.behind[d] && m.paths[d.n-1].refused != m.proc
}

// misses reports whether contents of a disk lack the record that it acknowledged last to a process.
func (d *disk) misses(p *process, contents []byte) bool {
	last, off := p.acked[d], d.g.Host(p.m.hostID)
	if last == nil {
		return false
	}
	had, err := d.version(last, off)
	has, unread := d.version(contents[off:off+int64(d.g.Stride)], off)
	return err == nil && unread == nil && less(has, had)
}
