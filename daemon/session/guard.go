package session

import (
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/command"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/observe"
	"github.com/bakeryd/bakeryd/daemon/process"
)

// guard stops the commands of locks that are about to be lost if no other process does. A grace
// before the end of the lease it sends SIGTERM to commands whose wrapper is gone. At the end it
// sends SIGKILL to all that remain. It waits for no IO on the device. It ends with the host,
// because there may be commands to stop until then.
func (ss *Table) guard() {
	mem, ending := ss.cfg.Member, ss.cfg.Ending
	alarm, err := ss.cfg.Clock.NewAlarm()
	if err != nil {
		ss.cfg.Log.Error("no timer, commands of lost locks are stopped only by their wrappers", "err", err)
		return
	}
	rings := make(chan struct{}, 1)
	go func() {
		for alarm.Wait() == nil {
			select {
			case rings <- struct{}{}:
			default:
			}
		}
	}()
	defer alarm.Close()
	// deadline for which orphans were sent SIGTERM; time at which they are killed
	var warned, gone time.Duration
	pause, drained, leaving := command.KillPause, ending.Drained, false
	var killing killing
	set := time.Duration(-1) // time for which the alarm is set
	for {
		m := mem.Moments()
		if leaving {
			m.Warn, m.Deadline = 0, min(m.Deadline, gone)
		}
		next := m.Warn
		switch now := ss.cfg.Clock.Now(); {
		case m.Deadline == 0 && mem.IsOver(): // was never live
			return
		case m.Deadline == 0: // is not live yet
			next = now + time.Hour
		case now >= m.Deadline:
			if ss.stopCommands("their lease is over", pause >= time.Second, anySession, syscall.SIGKILL) {
				if killing.overdue(m.Deadline, now) {
					ss.noteRemains()
				}
				pause = min(2*pause, time.Second)
			} else {
				pause = command.KillPause
			}
			next = now + pause
		case m.Lost || now >= m.Warn:
			if warned != m.Deadline {
				warned = m.Deadline
				ss.noteAtRisk(m, leaving)
				why := "their lease is about to end"
				if leaving {
					why = ending.DrainedFor
				}
				ss.stopCommands(why, false, (*Session).IsOrphan, syscall.SIGTERM, syscall.SIGCONT)
			}
			next = m.Deadline
		}
		if next != set { // most events of the lease change nothing
			_ = alarm.Set(next) // fails only once closed
			set = next
		}
		select {
		case <-rings:
			set = -1
		case <-m.Changed:
		// the host must leave: no other process stops its orphans
		case <-drained:
			drained, leaving, gone = nil, true, ss.cfg.Clock.Now()+ss.cfg.Times.Lease
		case <-ending.Ended:
			return
		}
	}
}

func anySession(*Session) bool { return true }

// IsOrphan reports whether the client is gone and its command runs.
func (s *Session) IsOrphan() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orphan || s.awaitingClient
}

// KillCommands sends SIGKILL to the commands of all holds, and reports whether there were any.
func (ss *Table) KillCommands(why string) bool {
	return ss.stopCommands(why, false, anySession, syscall.SIGKILL)
}

// stopCommands signals the commands of holds, and reports whether there were any. It signals the
// clients themselves only if hard is set.
func (ss *Table) stopCommands(why string, hard bool, whose func(*Session) bool, signals ...syscall.Signal) (found bool) {
	type target struct {
		*Session
		containment string // before the cgroup is killed and removed
		killed      int
		err         error
	}
	var targets []target
	var table []process.Stat
	held, _ := ss.Holding()
	for _, s := range held {
		if !whose(s) || !s.Remains() {
			continue
		}
		t := target{Session: s, containment: s.Containment()}
		if signals[0] == syscall.SIGKILL {
			// All cgroups first: the search for other processes reads all of /proc for each
			// session.
			if table == nil {
				table, _ = process.Table() // left reads it again, and reports errors
			}
			t.killed, t.err = s.KillGroup(table)
		}
		targets = append(targets, t)
	}
	for _, t := range targets {
		left, err := t.Signal(why, hard, t.killed, signals...)
		if ss.warn.Allow() { // in the background: a log that blocks must not delay the kill
			attrs := []any{"reason", why, "lock", t.req.Name, "signal", signals[0].String(),
				"processes", max(t.killed, len(left)), "containment", t.containment}
			if err = errors.Join(t.err, err); err != nil {
				attrs = append(attrs, "err", err)
			}
			go ss.cfg.Log.Warn("stopping commands", attrs...)
		}
	}
	return len(targets) > 0
}

// killing records since when the commands of a lease have been sent SIGKILL, on boottime. That is
// not the end of the lease: this process may not have run then.
type killing struct{ deadline, since time.Duration }

// overdue reports whether processes take longer than RemainWithin to end. Called after SIGKILL was
// sent.
func (k *killing) overdue(deadline, now time.Duration) bool {
	if k.deadline != deadline {
		*k = killing{deadline: deadline, since: now}
	}
	return now > k.since+command.RemainWithin
}

// noteAtRisk reports that the lease is about to end, unless it is over already or the host is leaving.
func (ss *Table) noteAtRisk(m membership.Moments, leaving bool) {
	if !m.Lost && !leaving {
		left := max(0, m.Deadline-ss.cfg.Clock.Now()).Round(time.Millisecond)
		ss.cfg.Observer.Observe(observe.Happening{Event: events.Event{Kind: events.AtRisk, Reason: "its lease is not renewed and ends in " + left.String()}})
	}
}

// Ending is how far the end of a host has come.
type Ending struct {
	Drained    chan struct{} // closed when holders must stop, for DrainedFor
	DrainedFor string
	Ended      chan struct{} // closed when no commands must be watched any more
	once       sync.Once
}

func NewEnding() *Ending {
	return &Ending{Drained: make(chan struct{}), Ended: make(chan struct{})}
}

// Drain makes every holder stop.
func (e *Ending) Drain(why string) {
	e.DrainedFor = why
	close(e.Drained)
}

func (e *Ending) End() { e.once.Do(func() { close(e.Ended) }) }
