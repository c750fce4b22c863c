package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease/evict"
	"github.com/bakeryd/bakeryd/layout"
)

// faults injects faults, of some kinds in each run.
type faults struct {
	w      *world
	rng    *rand.Rand
	kinds  []kind
	every  time.Duration
	done   bool
	spares bool // of several disks a host always has a majority
}

// kind is a kind of fault of a machine. It ends by itself.
type kind struct {
	name string
	do   func(f *faults, m *machine)
}

var kinds = []kind{
	{"slow disk", func(f *faults, m *machine) {
		slowness := f.span(f.lease()/100, 2*f.lease())
		f.disturb(m, f.span(f.lease()/10, 3*f.lease()), func(p *path) { p.slow, p.slowness = f.rng.Float64(), slowness })
	}},
	{"disk hangs", func(f *faults, m *machine) {
		f.disturb(m, f.span(f.lease()/50, 3*f.lease()), func(p *path) { p.hangs = true })
	}},
	{"disk fails", func(f *faults, m *machine) {
		share := f.rng.Float64()
		f.disturb(m, f.span(f.lease()/10, 3*f.lease()), func(p *path) { p.failing = share * share })
	}},
	{"stray requests", func(f *faults, m *machine) {
		f.disturb(m, f.span(f.lease()/10, f.lease()), func(p *path) { p.stray = f.rng.Float64() / 20 })
	}},
	{"disk is detached", func(f *faults, m *machine) {
		f.disturb(m, f.span(f.lease()/10, 3*f.lease()), func(p *path) { p.detached = true })
	}},
	{"pause", func(f *faults, m *machine) {
		m.pause()
		f.w.after(f.rng, f.lease()/100, f.most(3*f.lease()), m.resume)
	}},
	{"bakeryd is killed", func(f *faults, m *machine) {
		kill := func() {
			m.kill()
			f.w.after(f.rng, f.lease()/100, f.most(3*f.lease()), m.start)
		}
		if f.w.disk.several() && f.rng.IntN(4) != 0 {
			m.doom = kill
		} else {
			kill()
		}
	}},
	{"bakeryd is stopped", func(f *faults, m *machine) {
		if m.proc != nil {
			m.proc.svc.Drain() // starts again, as after any end
		}
	}},
	{"bakeryd is restarted", func(f *faults, m *machine) { m.restart() }},
	{"power cut", func(f *faults, m *machine) {
		m.powerCut()
		f.w.after(f.rng, f.lease()/10, f.most(4*f.lease()), m.boot)
	}},
	{"clock step", func(f *faults, m *machine) {
		m.skew = time.Duration(f.rng.Int64N(int64(20*time.Hour))) - 10*time.Hour
		f.w.rules.clocksStand(f.w.machines)
	}},
	{"eviction", func(f *faults, m *machine) { f.evict(m) }},
	{"cloned id", func(f *faults, m *machine) {
		if m.hostID == 0 {
			return
		}
		w := f.w
		clone := newMachine(w, len(w.machines)+1)
		clone.hostID, clone.spare = m.hostID, true
		if f.rng.IntN(2) == 0 {
			clone.id = m.id
		}
		if len(w.machines) < 6 {
			w.machines = append(w.machines, clone)
			clone.boot()
		}
	}},
	{"bad sector", func(f *faults, m *machine) {
		if m.hostID == 0 {
			return // nothing repairs what an id leaves that no host takes again
		}
		g := f.w.sb.Geometry
		lock, host := 1+f.rng.IntN(3), 1+f.rng.IntN(g.Hosts)
		d := f.w.disk.members[f.rng.IntN(len(f.w.disk.members))]
		if rec := d.record(g.Slot(lock, host)); rec[0] != 0 {
			d.loses(g.Slot(lock, host), rec)
			rec[f.rng.IntN(len(rec))] ^= 1 << f.rng.IntN(8)
		}
	}},
}

func newFaults(w *world) *faults {
	f := &faults{w: w, rng: w.random("faults", 0)}
	for _, k := range kinds {
		if f.rng.IntN(3) == 0 {
			f.kinds = append(f.kinds, k)
		}
	}
	f.chooseMembers()
	f.every = time.Duration(100+f.rng.IntN(2000)) * time.Millisecond
	return f
}

func (f *faults) lease() time.Duration { return f.w.sb.Lease }

func (f *faults) span(least, most time.Duration) time.Duration {
	return least + time.Duration(f.rng.Int64N(int64(most-least)))
}

// most draws a duration between a fifth of a lease and longest.
func (f *faults) most(longest time.Duration) time.Duration {
	return max(longest/time.Duration(1+f.rng.IntN(8)), f.lease()/5)
}

// run injects faults until the end.
func (f *faults) run() {
	for f.w.sleep(f.span(f.every/10, f.every)) && !f.done {
		if len(f.kinds) == 0 {
			continue
		}
		k, m := f.kinds[f.rng.IntN(len(f.kinds))], f.w.machines[f.rng.IntN(len(f.w.machines))]
		f.w.trace.step(m.n, "FAULT "+k.name)
		f.w.count(k.name)
		k.do(f, m)
		f.attend()
	}
}

// operate is the operator at the end: it declares dead the hosts that do not come back, and frees
// the ids that no host takes again.
func (f *faults) operate() {
	for _, m := range f.w.machines {
		if m.proc == nil {
			continue
		}
		d, err := m.proc.svc.Joined()
		if err != nil {
			continue
		}
		report, err := d.Status()
		if err != nil {
			return
		}
		for _, h := range report.Hosts {
			l := f.w.rules.leases[uint64(h.Incarnation)]
			if l == nil || f.w.rules.runs(l) || time.Now().Before(l.deadline) || h.State != layout.StateLive || h.Dead && !l.m.spare {
				continue
			}
			f.w.tasks.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 5*f.lease())
				defer cancel()
				dead, err := d.Evict(ctx, h.ID, uint64(h.Incarnation), l.m.spare)
				if !errors.Is(err, evict.ErrDead) {
					f.w.trace.step(m.n, fmt.Sprint("operator evicts ", h.Name, ": ", dead, " ", err), int64(h.ID))
				}
			})
		}
		return
	}
}

// attend is the operator under policy manual: only it declares hosts dead.
func (f *faults) attend() {
	if f.w.sb.Policy != layout.PolicyManual {
		return
	}
	for _, m := range f.w.machines {
		if !m.up && f.rng.IntN(2) == 0 {
			f.evict(m)
		}
	}
}

// evict makes one host evict another.
func (f *faults) evict(victim *machine) {
	by := f.w.machines[f.rng.IntN(len(f.w.machines))]
	if by.proc == nil || by == victim {
		return
	}
	d, err := by.proc.svc.Joined()
	if err != nil {
		return
	}
	report, err := d.Status()
	if err != nil {
		return
	}
	for _, h := range report.Hosts {
		if h.Name != victim.name() {
			continue
		}
		// The operator must not declare dead a host that is stopped but not known to be off.
		if victim.up && (victim.paused || victim.troubled()) {
			return
		}
		f.w.rules.evictedLive[uint64(h.Incarnation)] = true
		f.w.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), f.lease())
			defer cancel()
			dead, err := d.Evict(ctx, h.ID, uint64(h.Incarnation), false)
			f.w.trace.step(by.n, "evicted", int64(h.ID), boolean(dead), boolean(err == nil))
		})
	}
}

func boolean(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// end ends all faults.
func (f *faults) end() {
	f.done = true
	for _, m := range f.w.machines {
		m.doom = nil
		m.resume()
		m.restore()
		if !m.up {
			f.w.tasks.Go(m.boot)
		} else {
			f.w.tasks.Go(m.start)
		}
		if m.spare { // it must complete what it began, which no other host can
			f.w.after(f.rng, 4*f.lease(), 4*f.lease()+1, m.leave)
		}
	}
}
