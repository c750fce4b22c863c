package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// Start begins the join.
func (m *Machine) Start(now time.Duration) []Action {
	m.begin(now)
	if m.phase != idle {
		panic("lease: Start of a machine that was started")
	}
	m.phase, m.timer = looking, m.now
	return m.end()
}

// TableRead reports the read that was asked for, of as many records: record i is that of host i+1. Each may have been
// read at any time since the asking. They are lent for the call.
func (m *Machine) TableRead(now time.Duration, records []Record) []Action {
	m.returned(&m.reading, "TableRead")
	if len(records) != m.extent {
		panic(fmt.Sprintf("lease: %d host records, want %d", len(records), m.extent))
	}
	m.begin(now)
	if m.phase == over { // by that: it has said its last word
		return m.end()
	}
	m.observe(records)
	switch m.phase {
	case looking:
		if !m.goOn(records) {
			m.look(records)
		}
	case claiming:
		m.confirm(records)
	case live:
		m.keep(records)
	case leaving:
		m.checkOut(records)
	}
	return m.end()
}

// ReadFailed reports that the read that was asked for returned nothing.
func (m *Machine) ReadFailed(now time.Duration) []Action {
	m.returned(&m.reading, "ReadFailed")
	m.begin(now)
	m.timer = m.now + m.t.Retry()
	return m.end()
}

// Written reports that the record of the last [Write] is durable.
func (m *Machine) Written(now time.Duration) []Action {
	m.returned(&m.writing, "Written")
	if m.mutation == revive && m.phase == live {
		m.t0 = m.writeAt
	}
	m.clean = m.clean && !(m.leased() && max(now, m.now) >= m.Deadline())
	m.begin(now)
	m.acked, m.shown, m.wrote = m.own.Sequence, m.own.ReadHorizon, m.now
	switch m.phase {
	case claiming:
		m.claimed()
	case entering:
		m.enter()
	case live:
		m.renewed()
	case leaving:
		m.checkedOut()
	}
	return m.end()
}

// WriteFailed reports that the last [Write] returned, but may not be durable. It may land yet.
func (m *Machine) WriteFailed(now time.Duration) []Action {
	m.returned(&m.writing, "WriteFailed")
	m.clean = false
	m.unsaid()
	m.begin(now)
	m.timer, m.wrote = m.now+m.t.Retry(), m.now
	if m.phase == claiming || m.phase == entering {
		m.startOver(m.timer)
	}
	return m.end()
}

// Tick reports that time passed.
func (m *Machine) Tick(now time.Duration) []Action {
	m.begin(now)
	return m.end()
}

// Refresh asks for a read of the host table begun after this event, for [Machine.Hosts] to be newer than a slot.
func (m *Machine) Refresh(now time.Duration) []Action {
	m.begin(now)
	if m.phase == live {
		m.again = true
	}
	return m.end()
}

// Lose ends the lease, or the attempt to join, for a reason that the machine cannot see: the superblock is another.
func (m *Machine) Lose(now time.Duration, reason error) []Action {
	m.begin(now)
	switch m.phase {
	case live:
		m.lose(reason)
	case leaving:
		m.finish(Left{})
	case idle, looking, claiming, entering:
		m.finish(Refused{Reason: reason})
	}
	return m.end()
}

// returned notes that the IO under way has returned.
func (m *Machine) returned(underWay *bool, event string) {
	if !*underWay {
		panic("lease: " + event + " of what was not asked for")
	}
	*underWay = false
}

// begin opens an event. Drivers may stamp events a little out of order; time never runs back here.
func (m *Machine) begin(now time.Duration) {
	m.now = max(m.now, now)
	m.out = nil
	if m.leased() && m.now >= m.Deadline() { // FINAL
		if m.phase == live {
			m.lose(ErrExpired)
		} else {
			m.finish(Left{})
		}
	}
}

// end closes an event: what is due is asked for, then the next wake-up.
func (m *Machine) end() []Action {
	switch m.phase {
	case looking, claiming:
		if !m.reading && !m.writing && m.now >= m.timer {
			m.read()
		}
	case live:
		m.stepLive()
	case leaving:
		m.stepLeaving()
	}
	if until, ok := m.wake(); ok {
		m.tell(Wait{Until: until})
	}
	return m.out
}

// wake returns when the machine must be told the time.
func (m *Machine) wake() (time.Duration, bool) {
	quiet := !m.reading && !m.writing
	switch m.phase {
	case looking, claiming:
		return m.timer, quiet
	case live:
		next := m.Deadline()
		if quiet && m.room() {
			next = min(next, m.nextRead())
		}
		if len(m.heeded) > 0 {
			next = min(next, m.heedAt)
		}
		return next, true
	case leaving:
		if quiet && m.timer > m.now && (!m.held || m.room()) {
			return min(m.timer, m.lastMoment()), true
		}
		return m.lastMoment(), true
	}
	return 0, false
}

func (m *Machine) tell(a Action) { m.out = append(m.out, a) }

// finish says the machine's last word.
func (m *Machine) finish(a Action) {
	m.phase = over
	m.tell(a)
}

// lose ends the lease. The incarnation is named if nobody else can have been live where its record still stands: see
// "Ended cleanly" in the package comment; and only if all deadlines that its holders were told have passed, in case
// that this process ends before they do.
func (m *Machine) lose(reason error) {
	lost := Lost{Reason: reason}
	expired := errors.Is(reason, ErrExpired) && !m.takenOver
	if expired && m.clean && !m.writing || m.mutation == nameUnclean {
		lost.Incarnation = m.own.Incarnation
	}
	m.finish(lost)
}

func (m *Machine) read() {
	m.extent = m.reach()
	m.reading, m.readAt, m.again = true, m.now, false
	m.floor = m.acked
	m.tell(ReadTable{Hosts: m.extent})
}

// write publishes the own record in a state.
func (m *Machine) write(state layout.HostState, sequence uint64) {
	if m.writing { // ONE-WRITE
		panic("lease: a write of the own record is under way")
	}
	m.own.State, m.own.Sequence, m.own.ReadHorizon = state, sequence, m.proven
	if state == layout.StateLeft && !(m.held && m.ready) {
		m.own.ReadHorizon = 0 // it took no tickets, and nobody may conclude that it could: see covered
	}
	m.own.Complaints = nil
	if state == layout.StateLive {
		m.own.Complaints = m.complain()
	}
	m.own.Verdicts = nil
	for _, v := range m.verdicts {
		m.own.Verdicts = append(m.own.Verdicts, v.Verdict)
	}
	m.writing, m.writeAt, m.term0 = true, m.now, m.now
	m.tell(Write{Record: m.own})
}

// ID returns the host id, or 0 while none is chosen.
func (m *Machine) ID() int { return m.id }

// Incarnation returns the one of this join, or 0 before the host is live.
func (m *Machine) Incarnation() uint64 {
	if !m.held {
		return 0
	}
	return m.own.Incarnation
}

// Live says whether the lease runs at a time: whether holders may go on.
func (m *Machine) Live(now time.Duration) bool { return m.leased() && max(now, m.now) < m.Deadline() }

// MayWrite says whether anything may be granted or a slot be written at a time.
func (m *Machine) MayWrite(now time.Duration) bool {
	return m.phase == live && max(now, m.now)+m.t.Budget() < m.Deadline()
}

// Ready says whether tickets may be taken, as far as others' reads are concerned.
func (m *Machine) Ready() bool { return m.phase == live && m.ready }

// Deadline returns the end of the lease, or 0 if there was none.
func (m *Machine) Deadline() time.Duration {
	if !m.held {
		return 0
	}
	return m.t0 + m.t.Lease
}

// WarnAt returns when holders are to be told to stop, if the lease was not renewed by then.
func (m *Machine) WarnAt() time.Duration { return m.Deadline() - m.t.Grace() }

// Writing says whether a write of the own record is under way. While it is, nobody may join with this id on this
// machine, even when the machine is over.
func (m *Machine) Writing() bool { return m.writing }

// Over says whether the machine has said its last word: [Lost], [Refused] or [Left].
func (m *Machine) Over() bool { return m.phase == over }

// leased says whether there is a lease that was not lost yet.
func (m *Machine) leased() bool { return m.held && (m.phase == live || m.phase == leaving) }

// room says whether enough is left of the lease to write (LAST-CALL).
func (m *Machine) room() bool { return m.now+m.t.Budget() < m.Deadline() }
