package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// The tables of top: hosts, locks and events, with as many rows as fit.

// rows returns the range of visible rows, which includes the selected one.
func rows(all, room, selected int) (from, to int) {
	room = max(0, room)
	from = min(max(0, selected-room/2), max(0, all-room))
	return from, min(all, from+room)
}

// selected returns the position of the selected row in a table, or -1.
func (s *screen) selected(lock bool, table []int) int {
	if s.m.at.lock != lock {
		return -1
	}
	return slices.IndexFunc(table, func(i int) bool { return s.m.keyOf(lock, i) == s.m.at })
}

// marker adds the selection marker of a row.
func (s *screen) marker(l *render.Line, here bool) {
	if here {
		l.Add(render.Head, s.g.Mark+" ")
	} else {
		l.Add(render.Plain, "  ")
	}
}

// widest returns the width of a column of names, within bounds.
func widest(least, most int, names []string) int {
	wide := least
	for _, n := range names {
		wide = max(wide, render.Width(render.Safe(n)))
	}
	return max(1, min(wide, most))
}

// part returns a fraction of the width, or free if the width has no limit.
func (s *screen) part(of, free int) int {
	if s.wide <= 0 {
		return free
	}
	return max(6, s.wide/of)
}

// hostTable adds the hosts and a heading, at most room lines, and returns the number of lines.
func (s *screen) hostTable(room int, moves bool) int {
	m := s.m
	if room <= 0 {
		return 0
	}
	at := s.selected(false, m.hosts)
	from, to := rows(len(m.hosts), room-1, at)
	names := []string{}
	for _, i := range m.hosts[from:to] {
		h := m.answer.report.Hosts[i]
		names = append(names, show.HostTitle(h.ID, h.Name))
	}
	title := s.heading("HOSTS", len(m.hosts), len(m.answer.report.Hosts), from, to)
	wide := widest(render.Width(title), s.part(3, 60), names)
	l := s.line()
	s.marker(l, false)
	l.Cell(render.Head, title, wide, s.g)
	l.Cell(render.Head, "STATE", 8, s.g)
	l.Cell(render.Head, "LEASE", s.barWidth(), s.g)
	l.Add(render.Head, "SEEN")
	for k, i := range m.hosts[from:to] {
		h := m.aged(m.answer.report.Hosts[i])
		l := s.line()
		s.marker(l, moves && from+k == at)
		l.Cell(render.Plain, show.HostTitle(h.ID, h.Name), wide, s.g)
		l.Cell(show.HostLevel(h), string(show.Health(h)), 8, s.g)
		s.hostLease(l, h)
		s.hostNotes(l, h)
	}
	return to - from + 1
}

// heading returns the title of a table with the number of rows.
func (s *screen) heading(what string, found, all, from, to int) string {
	text := fmt.Sprintf("%s %d", what, found)
	if found != all {
		text += fmt.Sprintf(" of %d", all)
	}
	if to-from < found && to > from {
		text += fmt.Sprintf(", %d-%d", from+1, to)
	}
	return text
}

// hostLease adds a bar of the remaining lease of a host, or of the time until it is declared dead.
func (s *screen) hostLease(l *render.Line, h report.Host) {
	m, wide := s.m, s.barWidth()
	part := -1.0
	of := show.HostLevel(h)
	lease := m.lease()
	switch state := show.Health(h); {
	case state == report.HealthSilent && h.DeadInMS != nil:
		watchdog := time.Duration(0)
		if h.WatchdogArmed {
			watchdog = time.Duration(h.WatchdogSeconds) * time.Second
		}
		part = float64(*h.DeadInMS) / float64(max(1, (lease*6/5+watchdog).Milliseconds()))
	case state == report.HealthSilent:
		part = 0
	case state == report.HealthLive:
		left := time.Duration(-1)
		if m.own(h.ID) {
			left = m.left()
		} else if h.SilentMS != nil {
			left = max(0, lease-time.Duration(*h.SilentMS)*time.Millisecond)
		}
		if left >= 0 {
			part = float64(left) / float64(max(1, lease))
			if left < lease/3 {
				of = render.Bad
			} else if left < lease*6/10 {
				of = render.Warn
			}
		}
	}
	if part < 0 {
		l.Add(render.Plain, strings.Repeat(" ", wide+2))
		return
	}
	l.Bar(of, part, wide, s.g)
	l.Add(render.Plain, "  ")
}

func (s *screen) hostNotes(l *render.Line, h report.Host) {
	m := s.m
	var notes []string
	switch {
	case m.own(h.ID) && show.Health(h) == report.HealthLive:
		notes = append(notes, "this host")
	case show.Health(h) == report.HealthSilent:
		notes = append(notes, show.Seen(h, m.answer.report.Lockspace.Policy))
	case h.SilentMS != nil:
		notes = append(notes, show.Seen(h, m.answer.report.Lockspace.Policy))
	case show.Health(h) == report.HealthDead:
		notes = append(notes, "its locks are free")
	}
	if state := show.HostState(h); state != string(show.Health(h)) {
		notes = append(notes, strings.TrimPrefix(state, string(show.Health(h))+", "))
	}
	if h.WatchdogArmed {
		notes = append(notes, fmt.Sprintf("watchdog %d s", h.WatchdogSeconds))
	}
	of := render.Plain
	if show.Health(h) == report.HealthSilent {
		of = render.Bad
	}
	l.Add(of, strings.Join(notes, ", "))
}

// lockState returns the state of a lock in one or two words.
func (s *screen) lockState(l report.Lock) (render.Level, string) {
	n := len(l.Holders)
	switch {
	case l.Stuck != "":
		return render.Bad, "stuck"
	case slices.ContainsFunc(l.Holders, func(h report.Holder) bool { return h.Orphan }):
		return render.Warn, "orphan"
	case n > 0 && l.Holders[0].Mode == layout.Shared:
		return render.Good, fmt.Sprintf("shared %d", n)
	case n > 0 && l.Permits > 1:
		return render.Good, fmt.Sprintf("held %d/%d", n, l.Permits)
	case n > 0:
		return render.Good, "held"
	case len(l.Queue)+len(l.Local) > 0:
		return render.Warn, "entering"
	}
	return render.Soft, "free"
}

// lockTable adds the locks and a heading, at most room lines, and returns the number of lines.
func (s *screen) lockTable(room int, moves bool) int {
	m := s.m
	if room <= 0 {
		return 0
	}
	all := m.answer.report.Locks
	at := s.selected(true, m.locks)
	from, to := rows(len(m.locks), room-1, at)
	names, holders := []string{}, []string{}
	for _, i := range m.locks[from:to] {
		names = append(names, show.LockName(all[i]))
		holders = append(holders, s.heldBy(all[i]))
	}
	title := s.heading("LOCKS", len(m.locks), len(all), from, to)
	wide, by := widest(render.Width(title), s.part(3, 128), names), widest(7, s.part(5, 60), holders)
	l := s.line()
	s.marker(l, false)
	for _, c := range []struct {
		title string
		wide  int
	}{{title, wide}, {"STATE", 8}, {"HELD BY", by}, {"FOR", 6}, {"WAIT", 4}} {
		l.Cell(render.Head, c.title, c.wide, s.g)
	}
	l.Add(render.Head, "COMMAND")
	if s.wide > 0 {
		l.Right(render.Soft, m.order.String(), s.wide)
	}
	for k, i := range m.locks[from:to] {
		lock := all[i]
		of, state := s.lockState(lock)
		l := s.line()
		s.marker(l, moves && from+k == at)
		name := render.Plain
		if of == render.Bad {
			name = render.Bad
		}
		l.Cell(name, names[k], wide, s.g)
		l.Cell(of, state, 8, s.g)
		l.Cell(render.Plain, holders[k], by, s.g)
		since := ""
		if t := oldest(lock); !t.IsZero() {
			since = render.Age(m.held(t))
		}
		l.Cell(render.Plain, since, 6, s.g)
		if n := m.waits(lock); n > 0 {
			l.Cell(render.Warn, fmt.Sprintf("%4d", n), 4, s.g)
		} else {
			l.Cell(render.Plain, "", 4, s.g)
		}
		switch {
		case lock.Stuck != "":
			l.Add(render.Bad, lock.Stuck)
		case len(lock.Holders) > 0:
			l.Add(render.Plain, text.PrintableLine(lock.Holders[0].Command))
		}
	}
	n := to - from + 1
	if len(all) == 0 && room > 1 {
		s.line().Add(render.Soft, "  none yet: a lock is created on first use")
		n++
	}
	return n
}

// heldBy returns the names of the hosts that hold a lock.
func (s *screen) heldBy(l report.Lock) string {
	var names []string
	for _, h := range l.Holders {
		name := text.Printable(h.HostName)
		if h.HostName == "" {
			name = fmt.Sprintf("host %d", h.Host)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if len(names) > 8 {
			break // it is cut anyway
		}
	}
	return strings.Join(names, ", ")
}

// eventTable adds the last events of the host, newest first.
func (s *screen) eventTable(room int) {
	m := s.m
	if room <= 0 {
		return
	}
	l := s.line()
	l.Add(render.Head, "  EVENTS of this host, newest first")
	if m.eventsFailed != nil {
		l.Add(render.Warn, "  no new events at the moment")
	}
	shown := m.events[:min(len(m.events), room-1)]
	names := []string{}
	for _, e := range shown {
		names = append(names, eventOf(e))
	}
	wide := widest(4, s.part(4, 60), names)
	for k, e := range shown {
		l := s.line()
		l.Add(render.Soft, "  "+e.At.Local().Format(time.TimeOnly)+"  ")
		l.Cell(show.EventLevel(e.Kind), show.EventKind(&e), show.KindWidth, s.g)
		l.Cell(render.Plain, names[k], wide, s.g)
		l.Add(render.Plain, eventWords(e))
	}
}

// eventWords returns the details of an event without its ticket and token, which bakeryctl events
// shows.
func eventWords(e events.Event) string {
	e.Token, e.Ticket = 0, 0
	return strings.Join(show.EventDetails(&e), "  ")
}

// eventOf returns the lock or host of an event.
func eventOf(e events.Event) string {
	if e.Lock != "" {
		return text.Printable(e.Lock)
	}
	return show.EventHost(e.Host, e.HostName)
}
