package lease

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// mortalHost is the state of a simulated host outside of its process.
type mortalHost struct {
	term    *Term        // as stored last
	down    bool         // there is no process
	resume  *Term        // the term that the next machine resumes
	holds   []hold       // holders of earlier lives
	flights []flight     // with several members: the copies on their way
	pending []func(bool) // writes of this life, to be decided if they have not landed
}

type mortalSim struct {
	policy   layout.Policy
	evicted  map[uint64]bool // evicted, and perhaps silent: by an operator's command
	cut      map[uint64]bool // fenced: no write lands any more
	resumed  int
	declared int
	fenced   int
	asked    int
}

// fenceEarly sets a fence-after, or none.
func (s *sim) fenceEarly(early bool) {
	if s.times.FenceAfter = 0; early && s.policy == layout.PolicyFence {
		s.times.FenceAfter = layout.MinFenceAfter(s.times.Lease)
	}
}

// keep stores the term, at random times, and immediately when it is no longer clean.
func (h *simHost) keep(s *sim) {
	term, ok := h.m.Term()
	if !ok && h.m.members != nil && h.m.phase == leaving { // LEFT-FIRST
		h.term = nil
	}
	if ok && (h.term == nil || h.term.Incarnation != term.Incarnation || !term.Clean || h.term.ReadHorizon != term.ReadHorizon || s.rng.IntN(2) == 0) {
		h.term = &term
	}
}

// pend returns a function that makes a write land, or not, once: at its time, or when its process
// ends.
func (s *sim) pend(h *simHost, land func(bool)) func(bool) {
	done := false
	settle := func(lands bool) {
		if !done {
			done = true
			land(lands)
		}
	}
	h.pending = append(h.pending, settle)
	return settle
}

// crash ends a process. Its holders stay up until the deadline that they know.
func (s *sim) crash(h *simHost) {
	s.note(h, "crashes")
	if h.m.Live(s.now) && h.m.own.State == layout.StateLive {
		h.holds = append(h.holds, hold{h.m.ID(), h.m.Incarnation(), h.joined, h.m.Deadline()})
	}
}

// restart starts a new process on the same boot, after the old one and its write under way have
// ended. Writes that failed before may land at any time.
func (s *sim) restart(h *simHost) {
	if h.m.Writing() {
		h.pending[len(h.pending)-1](s.rng.IntN(2) == 0)
	}
	h.life++
	h.down = true
	s.after(s.delay(), func() {
		h.down, h.resume = false, h.term
		s.start(h)
		h.resume = nil
	})
}

// leave makes a host leave. Everything that it or its previous processes held is released.
func (s *sim) leave(h *simHost) []Action {
	if h.m.Live(s.now) {
		h.holds = slices.DeleteFunc(h.holds, func(x hold) bool { return x.incarnation == h.m.own.Incarnation })
	}
	return h.m.Leave(s.now)
}

// evict makes a host evict another one, which may be up.
func (s *sim) evict(h *simHost) {
	if h.m.Over() || s.now < h.paused {
		return
	}
	id := 1 + s.rng.IntN(len(s.disk))
	incarnation := h.m.Host(id).Incarnation
	actions, err := h.m.Evict(s.now, id, incarnation, s.rng.IntN(2) == 0)
	s.note(h, "evicts %d.%d: %v", id, incarnation, err)
	if err == nil && id != h.m.ID() {
		s.evicted[incarnation] = true
	}
	s.carry(h, actions)
}

// told handles a notification of a machine.
func (s *sim) told(h *simHost, a Action) {
	life := h.life
	switch a := a.(type) {
	case Joined:
		if a.Resumed {
			s.resumed++
		}
	case Lost:
		h.term = nil
		if a.Incarnation != 0 {
			h.left[h.m.ID()-1] = a.Incarnation
		}
	case Declared:
		s.declared++
		s.note(h, "learns that %d.%d is %v", a.Host, a.Incarnation, a.Verdict)
	case Asked:
		s.asked++
		s.after(0, func() {
			s.deliver(h, life, func() []Action { return s.leave(h) })
		})
	case Fence:
		s.fenced++
		s.note(h, "fences %d.%d", a.Host, a.Incarnation)
		for _, l := range s.living() {
			if l.incarnation == a.Incarnation && s.times.FenceAfter == 0 {
				s.broken = "FENCE"
			}
		}
		report := func() []Action { return h.m.Fenced(s.now, a.Host, a.Incarnation) }
		if s.times.FenceAfter > 0 {
			s.after(s.delay(), func() { // the device refuses its writes, whether or not that is reported
				s.cut[a.Incarnation] = true
				s.after(s.delay(), func() { s.deliver(h, life, report) })
			})
			return
		}
		if s.rng.IntN(3) == 0 { // it failed
			report = func() []Action { return h.m.Tick(s.now) }
		}
		s.after(s.delay(), func() { s.deliver(h, life, report) })
	}
}

// living returns the hosts whose holders may be up.
func (s *sim) living() (all []hold) {
	for _, h := range s.hosts {
		if h.m.Live(s.now) && h.m.phase == live {
			all = append(all, hold{h.m.ID(), h.m.Incarnation(), h.joined, h.m.Deadline()})
		}
		for _, x := range h.holds {
			if x.until > s.now {
				all = append(all, x)
			}
		}
	}
	return all
}

// checkHolds returns the rule that conclusions about hosts with holders break, or "".
func (s *sim) checkHolds() string {
	if s.broken != "" {
		return s.broken
	}
	for _, h := range s.hosts {
		m := h.m
		mayGrant := m.MayWrite(s.now) && s.now < min(m.WarnAt(), m.SureUntil())
		if s.cut[m.Incarnation()] && !s.evicted[m.Incarnation()] && mayGrant && s.condemned(m.ID(), m.Incarnation()) {
			return "SURE"
		}
	}
	for _, l := range s.living() {
		if s.cut[l.incarnation] {
			continue // its holders may not know
		}
		for _, o := range s.hosts {
			if o.m.Live(s.now) && o.m.ID() == l.id && o.m.Incarnation() != l.incarnation {
				return "SINGLE"
			}
			seen := o.m.Host(l.id)
			if !s.evicted[l.incarnation] && o.m.ID() != l.id && seen.Read > l.joined && seen.Void(l.incarnation) {
				return "VOID"
			}
		}
		if !s.evicted[l.incarnation] && s.condemned(l.id, l.incarnation) {
			return "VERDICT"
		}
	}
	return ""
}

// condemned reports whether the disk shows a verdict on an incarnation.
func (s *sim) condemned(id int, incarnation uint64) bool {
	all := slices.Clone(s.disk)
	for _, member := range s.copies {
		for _, c := range member {
			all = append(all, c.HostRecord)
		}
	}
	return slices.ContainsFunc(all, func(r layout.HostRecord) bool {
		return slices.ContainsFunc(r.Verdicts, func(v layout.Verdict) bool {
			return v.Kind.Dead() && v.Host == id && v.Incarnation == incarnation
		})
	})
}

// TestSimulationDeaths: every host that is gone for good is declared dead for all live hosts, in
// time.
func TestSimulationDeaths(t *testing.T) {
	for seed := range uint64(60) {
		s := newSim(seed + 1)
		s.calm = true
		s.policy = []layout.Policy{layout.PolicyLease, layout.PolicyFence}[seed%2]
		s.fenceEarly(seed%4 == 1)
		for _, h := range s.hosts {
			h.m = New(Config{Hosts: len(s.disk), Times: s.times, Policy: s.policy})
		}
		for _, h := range s.hosts {
			s.after(time.Duration(s.rng.Int64N(int64(s.times.Renew()))), func() { s.start(h) })
		}
		died := make(map[*simHost]time.Duration)
		for _, h := range s.hosts[:1+s.rng.IntN(3)] {
			s.after(2*s.times.Lease+time.Duration(s.rng.Int64N(int64(s.times.Lease))), func() {
				died[h] = s.now
				s.crash(h)
				h.life++
			})
		}
		within := s.times.Dead() + s.times.Alive()
		if s.policy == layout.PolicyFence { // a third of the attempts fail
			within += 20 * s.times.FenceWindow()
		}
		unknown := func(after time.Duration) string {
			for h, at := range died {
				for _, o := range s.hosts {
					if _, dead := died[o]; !dead && s.now >= at+after && !o.m.Host(h.m.ID()).Gone {
						return fmt.Sprintf("%s does not know at %v that %s died at %v", o.name, s.now, h.name, at)
					}
				}
			}
			return ""
		}
		// A host that did not declare it itself reads that by its next renewal.
		for leases := 4; leases < 60 && (leases < 6 || unknown(0) != ""); leases++ {
			s.run(leases)
			require.Empty(t, s.broken)
			require.Empty(t, unknown(within+s.times.Alive()), "seed %d\n%s", seed, strings.Join(s.log, "\n"))
		}
		require.Empty(t, unknown(0), "seed %d\n%s", seed, strings.Join(s.log, "\n"))
		for _, h := range s.hosts {
			if _, dead := died[h]; !dead {
				require.True(t, h.m.Live(s.now), "seed %d", seed)
			}
		}
	}
}
