package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/locks"
)

// standing is the state of a run with one fault that stays until the end: of one machine, the
// victim, or of one sector. The hosts of all other machines must get every lock, remove locks,
// join, and keep their leases, each within a bound. One after another they end and start again.
type standing struct {
	w      *world
	rng    *rand.Rand
	fault  standingFault
	victim *machine
	times  timing.Times
	slow   time.Duration // time of a victim's write; 0: as of others
	begun  time.Time     // start of the fault; zero: not yet
	waits  map[any]wait  // by client or machine
	bound  time.Duration // longest time that another host may wait for a lock
	join   time.Duration // longest time until it has joined

	shift      int  // 1: each host lacks other disks; otherwise 0
	keepsLocks bool // no lock is removed

	longest map[bool]time.Duration // longest wait of a host for a lock; true: for its join
}

// wait is what a client or a machine is waiting for.
type wait struct {
	waiter, what string
	removal      bool
	since        time.Time
}

const (
	standingFor  = 40 * time.Second // duration of the fault
	soonest      = time.Second      // earliest start of the fault
	latest       = 3 * time.Second  // latest start
	disturbances = 4 * time.Second  // longest time between two ends of other hosts
)

func newStanding(w *world) *standing {
	s := &standing{w: w, rng: w.random("standing", 0), times: timing.Of(w.sb), waits: map[any]wait{}, longest: map[bool]time.Duration{}}
	s.fault = standingFaults[w.seed%uint64(len(standingFaults))]
	s.victim = w.machines[0]
	if s.fault.name != failingDisk { // which tears copies: with another disk away, others cannot read them
		s.shift = s.rng.IntN(2)
	}
	s.keepsLocks = s.fault.several && (s.shift == 1 || s.fault.name == hangingDisk)
	s.slow = s.times.Budget() + time.Duration(s.rng.Int64N(int64(s.times.Lease-s.times.Budget())))
	// In addition to the fault: the end of another host, and the healthy clients ahead.
	s.bound = s.fault.lock(s) + silence(s) + 2*s.times.Lease
	s.join = s.fault.join(s) + silence(s) + 2*s.times.Lease + s.times.LongWait()
	return s
}

// exempt reports whether the fault may be noticed by a machine.
func (s *standing) exempt(m *machine) bool { return m == s.victim && !s.fault.several }

// play is the run.
func (s *standing) play() {
	w := s.w
	for _, m := range w.machines {
		w.after(m.rng, 0, 300*time.Millisecond, m.boot)
	}
	w.count(s.fault.name)
	w.trace.step(0, "FAULT THAT STAYS: "+s.fault.name)
	if w.sleep(soonest + time.Duration(s.rng.Int64N(int64(latest-soonest)))) {
		s.begun = time.Now()
		for key, x := range s.waits {
			x.since = s.begun
			s.waits[key] = x
		}
		w.trace.step(s.victim.n, "FAULT BEGINS")
		w.tasks.Go(func() { s.fault.begin(s) })
		w.tasks.Go(s.disturb)
		for end := time.Now().Add(standingFor); time.Now().Before(end) && w.sleep(s.times.Lease/10); {
			s.judge()
		}
	}
	w.finish()
}

// judge finds waits that are too long.
func (s *standing) judge() {
	for key, x := range s.waits {
		bound := s.bound
		if _, joins := key.(*machine); joins {
			bound = s.join
		}
		if waited := time.Since(x.since); waited > bound {
			delete(s.waits, key)
			s.w.rules.violate("PROGRESS", "%s waits for %v, want no more than %v, while a fault stays (%s): %s", x.waiter,
				waited.Round(time.Millisecond), bound, s.fault.name, x.what)
			return
		}
	}
}

// begins records the start of a wait, except for the victim's.
func (s *standing) begins(m *machine, key any, what string) {
	if s == nil || s.exempt(m) || s.waits[key].waiter != "" {
		return
	}
	s.w.trace.step(m.n, "waits "+what)
	s.waits[key] = wait{m.name(), what, strings.HasPrefix(what, "to remove"), time.Now()}
}

// ends records the end of a wait.
func (s *standing) ends(key any) {
	if s == nil {
		return
	}
	if x, ok := s.waits[key]; ok && !s.begun.IsZero() {
		s.w.trace.step(0, x.waiter+" had waited "+x.what)
		_, joins := key.(*machine)
		s.longest[joins] = max(s.longest[joins], time.Since(x.since))
	}
	delete(s.waits, key)
}

// interrupted ends the wait of a client whose bakeryd is away. resume begins it again.
func (s *standing) interrupted(c *client) (resume func()) {
	if s == nil || s.waits[c].waiter == "" {
		return func() {}
	}
	what := s.waits[c].what
	delete(s.waits, c)
	return func() { s.begins(c.m, c, what) }
}

// lost records that a host has lost its lease.
func (s *standing) lost(m *machine) {
	if s != nil && !s.exempt(m) {
		s.w.rules.violate("PROGRESS", "m%d has lost its lease by a fault of m%d that stays (%s)", m.n, s.victim.n, s.fault.name)
	}
}

// disturb ends the other hosts and starts them again, one after another.
func (s *standing) disturb() {
	for s.w.sleep(s.within(disturbances/2, disturbances)) {
		m := s.w.machines[1+s.rng.IntN(len(s.w.machines)-1)]
		if m.proc == nil || s.waits[m].waiter != "" {
			continue
		}
		switch s.rng.IntN(3) {
		case 0:
			m.kill()
			least := time.Duration(s.rng.IntN(2)) * 3 * s.times.Lease / 2 // it resumes its lease, or the lease is over
			s.w.after(s.rng, least+1, least+s.times.Lease/2, m.start)
		case 1:
			m.powerCut()
			s.w.after(s.rng, s.times.Lease/10, 2*s.times.Lease, m.boot)
		default:
			m.proc.svc.Drain() // starts again, as after any end
		}
	}
}

func (s *standing) within(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rng.Int64N(int64(most-least)))
}

// probe takes every lock repeatedly, for a client of a healthy host.
func (c *client) probe() {
	for c.pause(time.Duration(c.rng.Int64N(int64(c.w.think)))) {
		subject := subjects[c.rng.IntN(len(subjects))]
		if subject.removed && c.w.standing.keepsLocks {
			continue
		}
		if subject.removed && c.rng.IntN(4) == 0 {
			c.tries("to remove "+subject.name, func() error { return c.removes(subject) })
			continue
		}
		c.tries("for "+subject.name, func() error {
			req := locks.Request{Name: subject.name, Permits: subject.permits, Mode: c.mode(subject)}
			return c.take(c.patience(), subject, req, c.w.sb.Lease/100)
		})
	}
}

// tries repeats an action until it succeeds.
func (c *client) tries(what string, do func() error) {
	c.w.standing.begins(c.m, c, what)
	defer c.w.standing.ends(c)
	for c.runs() {
		err := do()
		if err == nil {
			return
		}
		c.w.trace.step(c.m.n, fmt.Sprint("not yet ", what, ": ", err))
		if !c.wait(c.w.sb.Lease / 10) {
			return
		}
	}
}

func (c *client) removes(s subject) error {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	err := c.d.Remove(ctx, s.name, false)
	if err != nil && !expected(err) {
		c.w.rules.violate("ANSWER", "m%d: Remove(%s): %v", c.m.n, s.name, err)
	}
	// A host that died while it created the lock may still write its entry: ErrIntended is this limit.
	if errors.Is(err, api.ErrNoLock) || errors.Is(err, api.ErrIntended) {
		return nil
	}
	if st := c.w.standing; err == nil { // the lock is gone, so all waits to remove it end
		for key, x := range st.waits {
			if x.removal {
				x.since = time.Now()
				st.waits[key] = x
			}
		}
	}
	return err
}

// longest has the longest waits of the other hosts in all runs of a fault that stays, and the
// bounds.
type longest map[string]*[2]waited

type waited struct{ most, bound time.Duration }

func (l longest) add(s *standing) {
	if s == nil {
		return
	}
	if l[s.fault.name] == nil {
		l[s.fault.name] = new([2]waited)
	}
	row := l[s.fault.name]
	for i, bound := range []time.Duration{s.bound, s.join} {
		if is := s.longest[i == 1]; is > row[i].most || row[i].most == 0 {
			row[i] = waited{is, bound}
		}
	}
}

// print prints a table: the longest wait for a lock and to join, with their bounds.
func (l longest) print(w io.Writer) {
	for _, f := range standingFaults {
		if row := l[f.name]; row != nil {
			fmt.Fprintf(w, "%-28s lock %6.2f s of %6.2f s, join %6.2f s of %6.2f s\n", f.name, row[0].most.Seconds(), row[0].bound.Seconds(),
				row[1].most.Seconds(), row[1].bound.Seconds())
		}
	}
}
