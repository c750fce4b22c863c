package bakery

import (
	"strings"
	"testing"

	"github.com/bakeryd/bakeryd/layout"
)

// mutation leaves out or reverses a rule, to show that its loss is noticed.
type mutation struct {
	splitWrite bool            // a number is written after its flag
	staleHosts bool            // host records are those from before the slots were read
	earlyLook  bool            // the slots are read before the claim is written
	keepNote   bool            // the note of a grant outlives the hold
	keepMode   bool            // an upgrade under way is resumed as one that succeeded
	flicker    bool            // a write that was read may still never land
	forgets    bool            // members lose what they have acknowledged, but for fewer than a majority
	unordered  bool            // a new incarnation's first write does not outrank what its predecessor left
	unnoted    func(step) bool // a successor does not complete its predecessor's writes in these steps
	writesBack bool            // it completes what it reads, not what was noted
	liveOnly   bool            // an end is reported only for an incarnation that is taken for current

	sightless bool                             // local grants do not wait for a look
	deaf      bool                             // a look that finds another host counts as clean
	lateMark  bool                             // a look counts the grants since its end
	oldLook   bool                             // a look of an earlier hold counts
	sameToken bool                             // a local grant has the token of the one before
	unused    bool                             // a ticket that an earlier driver has used serves local grants
	lingers   func(m *Machine, g *Grants) bool // replaces Machine.MayLinger

	views     func(w *world, m *Machine, views []View)                        // changes the result of a read
	hosts     func(m *Machine, h *Host, view View)                            // changes the result of a read of the host table
	event     func(w *world, m *Machine, report func(*Machine) Action) Action // replaces the report of every event
	joined    func(m *Machine)                                                // changes the machine of a host that rejoins
	made      func(m *Machine)                                                // changes every new machine
	remove    func(m *Machine) Action                                         // replaces Machine.Remove
	upgrade   func(m *Machine) Action
	downgrade func(m *Machine) Action
	resume    func(m *Machine, slot Slot, entered bool) Action // replaces Machine.Resume
}

// others calls f for each slot but the machine's own.
func others(m *Machine, views []View, f func(v *View)) {
	for i := range views {
		if i != m.cfg.Host-1 {
			f(&views[i])
		}
	}
}

// instead returns a mutation by which a machine enters instead of going to another step.
func instead(from, to step, when func(m *Machine, was Machine) bool) *mutation {
	return &mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
		was := *m
		a := report(m)
		if was.step != from || m.step != to || !when(m, was) {
			return a
		}
		m.ownSlot, m.last = was.ownSlot, was.last
		return m.enter()
	}}
}

// admitted repeats the look's survey and reports whether it admits.
func admitted(m *Machine, was Machine) (survey, bool) {
	now := m.ownSlot
	m.ownSlot = was.ownSlot
	s := m.survey(nil, true)
	m.ownSlot = now
	return s, !s.unsure && s.newer == 0 && s.ahead.admits(was.ownSlot.Mode, m.cfg.Permits)
}

var (
	twoByTwo = scenario{hosts: 2, rounds: 2, permits: 1, modes: exclusive, clocks: noClock, settles: 1}
	removing = scenario{hosts: 2, rounds: 2, permits: 1, modes: exclusive, clocks: noClock, removes: 1}
)

func with(sc scenario, change func(sc *scenario)) scenario {
	change(&sc)
	return sc
}

// mutated is a lost rule and the fault that must be found then.
type mutated struct {
	rule  string
	fault string
	scenario
	mutation *mutation
}

var mutations = []mutated{
	{"the wait does not look at choosing", "EXCLUSION", twoByTwo,
		&mutation{views: func(_ *world, m *Machine, views []View) {
			others(m, views, func(v *View) {
				if m.step == stepWait && v.Slot.Phase == layout.Choosing {
					v.Slot.Phase = layout.Idle
				}
			})
		}}},
	{"RESERVED: a number below the one reserved is taken", "EXCLUSION",
		with(twoByTwo, func(sc *scenario) { sc.clocks = anyClock }),
		&mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
			was := *m
			a := report(m)
			if was.step == stepLook && m.step == stepNumber {
				now := m.ownSlot
				m.ownSlot = was.ownSlot
				s := m.survey(nil, true)
				m.ownSlot = now
				m.ownSlot.Ticket = layout.MakeTicket(s.highest+1, m.cfg.Host)
				a.Slot = m.ownSlot
			}
			return a
		}}},
	{"CLAIM-FIRST: the look comes before the claim", "EXCLUSION", twoByTwo,
		&mutation{earlyLook: true}},
	{"the fast path does not compare numbers", "TOKENS", twoByTwo,
		instead(stepLook, stepNumber, func(m *Machine, was Machine) bool {
			_, ok := admitted(m, was)
			return ok
		})},
	{"the fast path is content with an equal number", "TOKENS", twoByTwo,
		instead(stepLook, stepNumber, func(m *Machine, was Machine) bool {
			s, ok := admitted(m, was)
			return ok && was.ownSlot.Ticket.Number() == s.highest
		})},
	{"equal numbers are not ahead of each other", "EXCLUSION", twoByTwo,
		&mutation{views: func(_ *world, m *Machine, views []View) {
			others(m, views, func(v *View) {
				if t := m.ownSlot.Ticket; m.step == stepWait && v.Slot.Ticket.Number() == t.Number() {
					v.Slot.Ticket = layout.MakeTicket(t.Number(), layout.MaxHosts)
				}
			})
		}}},
	{"equal numbers are ahead of each other", "DEADLOCK", twoByTwo,
		&mutation{views: func(_ *world, m *Machine, views []View) {
			others(m, views, func(v *View) {
				if t := m.ownSlot.Ticket; m.step == stepWait && v.Slot.Ticket.Number() == t.Number() {
					v.Slot.Ticket = t - t%layout.MakeTicket(1, 1)
				}
			})
		}}},
	{"TICKET-FIRST: the number is written after the flag is cleared", "EXCLUSION", twoByTwo,
		&mutation{splitWrite: true}},
	{"READABLE-LOOK: a torn slot counts as choosing without a number", "EXCLUSION", twoByTwo,
		&mutation{views: func(_ *world, m *Machine, views []View) {
			others(m, views, func(v *View) {
				if m.step == stepLook && !v.Readable {
					*v = View{Readable: true, Slot: Slot{Incarnation: 1, Creation: m.cfg.Creation, Phase: layout.Choosing}}
				}
			})
		}}},
	{"fewer than k in conflict, counted over both modes", "EXCLUSION",
		with(twoByTwo, func(sc *scenario) { sc.permits, sc.modes = 2, mixed }),
		&mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
			was := *m
			a := report(m)
			if was.step == stepWait && a.Kind == Poll {
				s := m.survey(nil, false)
				if m.ownSlot.Mode == layout.Shared && !s.unsure && s.ahead.blocked == 0 && s.ahead.exclusive < 2 {
					return m.enter()
				}
			}
			return a
		}}},
	{"VOID: the host record is read before the slot", "EXCLUSION",
		with(twoByTwo, func(sc *scenario) { sc.crashes, sc.rejoin = 1, true }),
		&mutation{staleHosts: true}},
	{"the own last ticket is not learned before the claim", "TOKENS",
		with(twoByTwo, func(sc *scenario) { sc.crashes, sc.rejoin = 1, true }),
		&mutation{joined: func(m *Machine) { m.attached = true }}},
	{"an unreadable slot of a dead host hides no number", "TOKENS",
		with(twoByTwo, func(sc *scenario) { sc.crashes, sc.corrupt = 1, 1 }),
		&mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
			for i := range m.peers {
				m.peers[i].hidden, m.peers[i].hider = 1, uint64(i+1)
			}
			return report(m)
		}}},
	{"the own slot is rewritten without its ticket", "TOKENS",
		with(twoByTwo, func(sc *scenario) { sc.settles, sc.crashes, sc.rejoin, sc.rewrites = 0, 1, true, 2 }),
		&mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
			was := *m
			a := report(m)
			if was.step == stepAttach && m.step == stepIdle {
				m.ownSlot.Ticket = 0
			}
			return a
		}}},
	{"the entry is cleared before the slot tells of it", "EXCLUSION",
		with(removing, func(sc *scenario) { sc.crashes, sc.rejoin = 1, true }),
		&mutation{remove: func(m *Machine) Action {
			m.ownSlot.Creation = m.last + 1
			m.step = stepClear
			return Action{Kind: ClearDirectory, Slot: m.ownSlot}
		}}},
	{"the remover does not wait for the others to go", "EXCLUSION",
		with(removing, func(sc *scenario) { sc.permits, sc.modes = 2, mixed }),
		&mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
			was := m.step
			a := report(m)
			if was == stepDrain && m.step == stepDrain && a.Kind == Poll {
				m.ownSlot.Creation = m.last + 1
				m.step = stepClear
				return Action{Kind: ClearDirectory, Slot: m.ownSlot}
			}
			return a
		}}},
	{"an upgrade does not look", "EXCLUSION",
		with(twoByTwo, func(sc *scenario) { sc.modes, sc.changes = mixed, 1 }),
		&mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
			was := *m
			a := report(m)
			if was.step == stepAlone && m.step == stepBack {
				m.ownSlot = was.ownSlot
				return m.enter()
			}
			return a
		}}},
	{"an upgrade takes a new ticket", "EXCLUSION",
		with(twoByTwo, func(sc *scenario) { sc.modes, sc.changes = mixed, 1 }),
		&mutation{upgrade: func(m *Machine) Action {
			m.last++
			m.ownSlot.Ticket = layout.MakeTicket(m.last, m.cfg.Host)
			return m.Upgrade()
		}}},
	{"a downgrade next to another exclusive holder", "EXCLUSION",
		with(twoByTwo, func(sc *scenario) { sc.permits, sc.changes = 2, 1 }),
		&mutation{downgrade: func(m *Machine) Action {
			m.ownSlot.Mode = layout.Shared
			return m.write(stepDowngrade, layout.Held)
		}}},
	{"an upgrade next to another exclusive claim", "EXCLUSION",
		with(twoByTwo, func(sc *scenario) { sc.permits, sc.modes, sc.changes = 2, mixed, 1 }),
		&mutation{upgrade: func(m *Machine) Action {
			m.ownSlot.Mode = layout.Exclusive
			return m.write(stepUpgrade, layout.Choosing)
		}}},
	{"what could not be told is not asked again", "DEADLOCK",
		with(twoByTwo, func(sc *scenario) { sc.rounds, sc.crashes, sc.fails = 1, 1, 1 }),
		&mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
			a := report(m)
			m.doubt = false
			return a
		}}},
	{"a death told of while the entry is read is forgotten", "DEADLOCK",
		with(removing, func(sc *scenario) { sc.rounds, sc.crashes = 1, 1 }),
		&mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
			a := report(m)
			m.doubt = false
			return a
		}}},
	{"a record that is unreadable tells nothing of an end", "DEADLOCK",
		with(twoByTwo, func(sc *scenario) { sc.rounds, sc.crashes, sc.blind, sc.whole = 1, 1, 1, true }),
		&mutation{liveOnly: true, hosts: func(_ *Machine, h *Host, _ View) {
			if !h.Readable {
				*h = Host{}
			}
		}}},
	{"an end is forgotten once the record shows the next incarnation", "DEADLOCK",
		with(twoByTwo, func(sc *scenario) { sc.rounds, sc.crashes, sc.joins, sc.restive, sc.whole = 1, 1, 1, true, true }),
		&mutation{liveOnly: true, hosts: func(_ *Machine, h *Host, _ View) { h.Ended = nil }}},
	{"the slots of a host that stays joining are waited for", "DEADLOCK",
		with(twoByTwo, func(sc *scenario) { sc.rounds, sc.crashes, sc.joins = 1, 1, 1 }),
		&mutation{hosts: func(_ *Machine, h *Host, _ View) { h.Joining = false }}},
	{"VOID: a claim that is not settled proves that who was there before is over", "EXCLUSION",
		with(twoByTwo, func(sc *scenario) { sc.crashes, sc.joins = 1, 1 }),
		&mutation{hosts: func(_ *Machine, h *Host, v View) { h.Unsettled = h.Unsettled && !v.Readable }}},
	{"VOID: an unreadable slot is nobody's under a claim that is not settled", "EXCLUSION",
		with(twoByTwo, func(sc *scenario) { sc.crashes, sc.joins = 1, 1 }),
		&mutation{hosts: func(_ *Machine, h *Host, v View) { h.Unsettled = h.Unsettled && (v.Readable || !h.Joining) }}},
	{"VOID: a host whose record is unreadable is gone", "EXCLUSION",
		with(twoByTwo, func(sc *scenario) { sc.crashes, sc.blind = 1, 1 }),
		&mutation{hosts: func(_ *Machine, h *Host, _ View) {
			if !h.Readable {
				h.Readable, h.Gone = true, true
			}
		}}},
	{"numbers do not begin at the creation id", "TOKENS", removing,
		&mutation{made: func(m *Machine) { m.last = 0 }}},
	{"a cleared entry keeps the creation id of the mark", "TOKENS",
		with(removing, func(sc *scenario) { sc.permits, sc.rounds, sc.removes = 2, 3, 2 }),
		&mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
			mark := m.ownSlot.Creation
			a := report(m)
			if a.Kind == ClearDirectory {
				m.ownSlot.Creation = mark
				a.Slot = m.ownSlot
			}
			return a
		}}},
}

// mediumMutations need -quick to be found.
var mediumMutations = []mutated{
	{"NEWEST: a dead remover's mark is spared without a look at the entry", "EXCLUSION",
		with(removing, func(sc *scenario) { sc.crashes, sc.rejoin = 1, true }),
		&mutation{event: func(w *world, m *Machine, report func(*Machine) Action) Action {
			a := report(m)
			if m.step == stepSuperseded && a.Kind == ReadDirectory && m.views[m.met-1].Slot.Incarnation == m.metOver {
				return m.DirectoryRead(m.cfg.Creation)
			}
			return a
		}}},
	{"NEWEST: an unreadable slot of a dead host tells of no removal", "EXCLUSION",
		with(removing, func(sc *scenario) { sc.crashes, sc.rejoin = 1, true }),
		&mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
			m.clear = true
			return report(m)
		}}},
}

// slowMutations need -full to be found, after millions of states.
var slowMutations = []mutated{
	{"NEWEST: the entry is read before the remover is known to be dead", "EXCLUSION",
		with(removing, func(sc *scenario) { sc.crashes, sc.rejoin = 1, true }),
		&mutation{event: func(_ *world, m *Machine, report func(*Machine) Action) Action {
			if m.step == stepSuperseded && m.met > 0 {
				m.metOver = m.peers[m.met-1].over
			}
			return report(m)
		}}},
}

// TestMutations leaves out each rule that the protocol rests on, in turn. The explorer must find
// a fault.
func TestMutations(t *testing.T) { findAll(t, ofRun(mutations, mediumMutations, slowMutations)) }

func findAll(t *testing.T, list []mutated) {
	for _, mu := range list {
		t.Run(mu.rule, func(t *testing.T) {
			t.Parallel()
			sc := mu.scenario.renumbered(usualGap)
			sc.mutate, sc.want = mu.mutation, mu.fault
			r := explore(sc)
			if !strings.HasPrefix(r.fault, mu.fault) {
				t.Fatalf("found %q after %d states in %.1fs, want %s\n%s",
					r.fault, r.states, r.took.Seconds(), mu.fault, strings.Join(r.trace, "\n"))
			}
			t.Logf("%-65s %-9s after %3d events, %8d states, %5.1fs", mu.rule, mu.fault, len(r.trace), r.states, r.took.Seconds())
		})
	}
}
