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

// TableRead reports the requested read: record i is that of host i+1. Each may have been read at
// any time since the request. The machine does not keep records.
func (m *Machine) TableRead(now time.Duration, records []Record) []Action {
	m.returned(&m.reading, "TableRead")
	if len(records) != m.extent {
		panic(fmt.Sprintf("lease: %d host records, want %d", len(records), m.extent))
	}
	m.begin(now)
	if m.phase == over { // begin ended the machine
		return m.end()
	}
	m.observe(records)
	switch m.phase {
	case looking:
		if !m.resumeTerm(records) {
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

// ReadFailed reports that the requested read returned no records.
func (m *Machine) ReadFailed(now time.Duration) []Action {
	m.returned(&m.reading, "ReadFailed")
	m.begin(now)
	m.timer, m.failed = m.now+m.t.Retry(), true
	return m.end()
}

// Written reports that the record of the last [Write] is durable.
func (m *Machine) Written(now time.Duration) []Action {
	m.returned(&m.writing, "Written")
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

// WrittenOn is Written with several members: those that had acknowledged the record by now, a majority.
func (m *Machine) WrittenOn(now time.Duration, members []int) []Action {
	m.counted = members
	return m.Written(now)
}

// WriteFailed reports that the last [Write] returned, but may not be durable. It may still land.
func (m *Machine) WriteFailed(now time.Duration) []Action {
	m.returned(&m.writing, "WriteFailed")
	m.clean, m.failed = false, true
	m.complaints.Failed()
	m.begin(now)
	m.timer, m.wrote = m.now+m.t.Retry(), m.now
	if m.phase == claiming || m.phase == entering {
		m.startOver(m.timer)
	}
	return m.end()
}

// Tick reports that time has passed.
func (m *Machine) Tick(now time.Duration) []Action {
	m.begin(now)
	return m.end()
}

// Refresh requests a read of the host table begun after this event, for [Machine.Hosts] to be
// newer than a slot.
func (m *Machine) Refresh(now time.Duration) []Action {
	m.begin(now)
	if m.phase == live {
		m.again = true
	}
	return m.end()
}

// Lose ends the lease, or the attempt to join, for a reason that the machine cannot see: the
// superblock has changed.
func (m *Machine) Lose(now time.Duration, reason error) []Action {
	m.begin(now)
	m.lose(reason)
	return m.end()
}

// returned records that the IO under way has returned.
func (m *Machine) returned(underWay *bool, event string) {
	if !*underWay {
		panic("lease: " + event + " of what was not asked for")
	}
	*underWay = false
}

// begin starts an event. Drivers may stamp events out of order; the machine's time never decreases.
func (m *Machine) begin(now time.Duration) {
	m.now = max(m.now, now)
	m.out = nil
	if m.leased() && m.now >= m.Deadline() { // FINAL
		m.lose(ErrExpired)
	}
}

// end finishes an event: it requests the IO that is due, then the next wake-up.
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
		m.emit(Wait{Until: until})
	}
	return m.out
}

// wake returns when the machine needs a Tick.
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
		if len(m.complaints.Received) > 0 {
			next = min(next, m.complaints.ReportAt)
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

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }

// finish emits the machine's last action.
func (m *Machine) finish(a Action) {
	m.phase = over
	m.emit(a)
}

// lose ends the lease, or the attempt to join or leave. Lost names the incarnation if no other host can
// have been live while its record still stands: see "Ended cleanly" in the package comment. All
// deadlines that its holders know must have passed, because this process may end before them.
func (m *Machine) lose(reason error) {
	switch m.phase {
	case live:
		lost := Lost{Reason: reason}
		expired := errors.Is(reason, ErrExpired) && !m.takenOver
		if expired && m.clean && !m.writing {
			lost.Incarnation = m.own.Incarnation
		}
		m.finish(lost)
	case leaving:
		m.finish(Left{})
	case idle, looking, claiming, entering:
		m.finish(Refused{Reason: reason})
	}
}

func (m *Machine) read() {
	m.extent = m.reach()
	m.reading, m.readAt, m.again = true, m.now, false
	m.floor = m.acked
	m.emit(ReadTable{Hosts: m.extent, Counted: m.counted})
}

// write requests a write of the own record in a state.
func (m *Machine) write(state layout.HostState, sequence uint64) {
	if m.writing { // ONE-WRITE
		panic("lease: a write of the own record is under way")
	}
	m.own.State, m.own.Sequence, m.own.ReadHorizon, m.own.Epoch = state, sequence, m.proven, m.cfg.Self.Epoch
	if state == layout.StateLeft && !(m.held && m.ready) {
		m.own.ReadHorizon = 0 // it took no tickets, and no host may conclude that it could: see covered
	}
	m.own.Complaints = nil
	if state == layout.StateLive {
		m.own.Complaints = m.complaints.Next(m.now, m.t)
	}
	m.own.Verdicts = nil
	for _, v := range m.verdicts {
		m.own.Verdicts = append(m.own.Verdicts, v.Verdict)
	}
	m.writing, m.writeAt, m.term0 = true, m.now, m.now
	m.emit(Write{Record: m.own})
}

// ID returns the host id, or 0 if none was chosen yet.
func (m *Machine) ID() int { return m.id }

// Incarnation returns that of this join, or 0 before the host is live.
func (m *Machine) Incarnation() uint64 {
	if !m.held {
		return 0
	}
	return m.own.Incarnation
}

// Live reports whether the lease runs at a time: whether holders may continue.
func (m *Machine) Live(now time.Duration) bool { return m.leased() && max(now, m.now) < m.Deadline() }

// MayWrite reports whether locks may be granted and slots written at a time.
func (m *Machine) MayWrite(now time.Duration) bool {
	return m.phase == live && max(now, m.now)+m.t.Budget() < m.Deadline()
}

// Deadline returns the end of the lease, or 0 if there was no lease.
func (m *Machine) Deadline() time.Duration {
	if !m.held {
		return 0
	}
	return m.t0 + m.t.Lease
}

// SureUntil returns until when locks may be granted without another renewal (SURE).
func (m *Machine) SureUntil() time.Duration { return m.Deadline() - m.t.Lease + m.t.Sure() }

// WarnAt returns when holders must be notified to stop, if the lease was not renewed by then.
func (m *Machine) WarnAt() time.Duration { return m.Deadline() - m.t.Grace() }

// Over reports whether the machine has returned its last action: [Lost], [Refused] or [Left].
func (m *Machine) Over() bool { return m.phase == over }

// leased reports whether there is a lease that was not lost yet.
func (m *Machine) leased() bool { return m.held && (m.phase == live || m.phase == leaving) }

// room reports whether the rest of the lease is long enough to write (LAST-CALL).
func (m *Machine) room() bool { return m.now+m.t.Budget() < m.Deadline() }
