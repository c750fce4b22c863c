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

// column is a column of a table, as wide as its widest cell within bounds.
type column struct{ least, most int }

func fixed(wide int) column { return column{wide, wide} }

// cells returns cells of one colour.
func (s *screen) cells(of render.Level, texts ...string) (row []string) {
	for _, t := range texts {
		row = append(row, s.of(of, t))
	}
	return row
}

// grid adds aligned rows of coloured cells. The last cell of a row has the rest of the line. grid marks
// the row at an index, none if that is -1.
func (s *screen) grid(columns []column, rows [][]string, marked int) {
	wide := make([]int, len(columns))
	for k, c := range columns {
		wide[k] = c.least
		most := c.most
		if s.width == unlimited {
			most = unlimited
		}
		for _, row := range rows {
			if wide[k] < most && k < len(row)-1 {
				wide[k] = max(wide[k], render.Width(row[k]))
			}
		}
		wide[k] = max(1, min(wide[k], most))
	}
	for i, row := range rows {
		line := "  "
		if i == marked {
			line = s.of(render.Head, s.g.Mark) + " "
		}
		last := len(row) - 1
		for k, cell := range row[:last] {
			line += s.g.Pad(cell, wide[k]) + "  "
		}
		s.line(line, row[last])
	}
}

// name returns a name for the first column. If it is too long it keeps its start and its end, where
// names differ, and where the id of a host is.
func (s *screen) name(of render.Level, text string) string {
	return s.of(of, s.g.Middle(render.Safe(text), s.part(3)))
}

// part returns a fraction of the width.
func (s *screen) part(of int) int { return max(6, s.width/of) }

// visible returns the range of the rows of a table of hosts or locks that are visible in room lines
// with the heading, and the index of the selected one among these lines, -1 if none is.
func (s *screen) visible(table []row, room int) (from, to, marked int) {
	at := slices.IndexFunc(table, func(r row) bool { return r.rowID == s.at })
	room = max(0, room-1)
	from = min(max(0, at-room/2), max(0, len(table)-room))
	to = min(len(table), from+room)
	if at < 0 || s.height <= 0 { // all rows are printed once
		return from, to, -1
	}
	return from, to, at - from + 1
}

// title returns the title of a table with the number of rows.
func title(what string, found, all, from, to int) string {
	text := fmt.Sprintf("%s %d", what, found)
	if found != all {
		text += fmt.Sprintf(" of %d", all)
	}
	if to-from < found && to > from {
		text += fmt.Sprintf(", %d-%d", from+1, to)
	}
	return text
}

// hostTable adds the hosts and a heading, at most room lines.
func (s *screen) hostTable(room int) {
	all := s.answer.Report.Hosts
	from, to, marked := s.visible(s.hosts, room)
	rows := [][]string{s.cells(render.Head, title("HOSTS", len(s.hosts), len(all), from, to), "STATE", "LEASE", "SEEN")}
	for _, r := range s.hosts[from:to] {
		h := all[r.i].Aged(s.known())
		rows = append(rows, []string{s.name(render.Plain, show.HostTitle(h.ID, h.Name)), s.of(show.HostLevel(h), string(h.Health)), s.hostLease(h), s.hostNotes(h)})
	}
	columns := []column{{1, s.part(3)}, fixed(8), fixed(s.barWidth())}
	if s.barWidth() == 0 {
		columns = columns[:2]
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 2, 3)
		}
	}
	s.grid(columns, rows, marked)
}

// hostLease returns a bar of the remaining lease of a host, or of the time until it is declared dead.
func (s *screen) hostLease(h report.Host) string {
	state, of := h.Health, show.HostLevel(h)
	left, whole := time.Duration(0), s.lease()
	switch {
	case state == report.HealthSilent && h.SilentMS != nil && h.DeadInMS != nil:
		left = time.Duration(*h.DeadInMS) * time.Millisecond
		whole = left + time.Duration(*h.SilentMS)*time.Millisecond
	case state == report.HealthSilent: // the time is not known
	case state == report.HealthLive && s.answer.Report.IsThisHost(h.ID):
		left = s.left()
	case state == report.HealthLive && h.SilentMS != nil:
		left = max(0, whole-time.Duration(*h.SilentMS)*time.Millisecond)
	default:
		return ""
	}
	if l := leaseLevel(left, whole); state == report.HealthLive && l != render.Good {
		of = l
	}
	return s.bar(of, left, whole)
}

func (s *screen) hostNotes(h report.Host) string {
	health, of := h.Health, render.Plain
	var notes []string
	switch {
	case s.answer.Report.IsThisHost(h.ID) && health == report.HealthLive:
	case h.Silence != "", h.SilentMS != nil:
		notes = append(notes, show.Seen(h))
	}
	if s.answer.Report.IsThisHost(h.ID) {
		notes = append(notes, "this host")
	}
	if health == report.HealthDead {
		notes = append(notes, "its locks are free")
	}
	if more, found := strings.CutPrefix(show.HostState(h), string(health)+", "); found {
		notes = append(notes, more)
	}
	if h.WatchdogArmed {
		notes = append(notes, fmt.Sprintf("watchdog %d s", h.WatchdogMS/1000))
	}
	if health == report.HealthSilent || health == report.HealthLost {
		of = render.Bad
	}
	return s.of(of, strings.Join(notes, ", "))
}

// lockState returns the state of a lock in one or two words.
func (s *screen) lockState(l report.Lock) string {
	n := len(l.Holders)
	switch {
	case l.Stuck != "":
		return s.of(render.Bad, "stuck")
	case l.Doubt() == report.HealthLost:
		return s.of(render.Bad, "lost")
	case l.Doubt() != "":
		return s.of(render.Warn, string(l.Doubt()))
	case slices.ContainsFunc(l.Holders, func(h report.Holder) bool { return h.Orphan }):
		return s.of(render.Warn, "orphan")
	case n > 0 && l.Holders[0].Mode == layout.Shared:
		return s.of(render.Good, fmt.Sprintf("shared %d", n))
	case n > 0 && l.Permits > 1:
		return s.of(render.Good, fmt.Sprintf("held %d/%d", n, l.Permits))
	case n > 0:
		return s.of(render.Good, "held")
	case len(l.Queue)+len(l.Local) > 0:
		return s.of(render.Warn, "entering")
	}
	return s.of(render.Soft, s.answer.Report.Free(&l))
}

// lockTable adds the locks and a heading, at most room lines.
func (s *screen) lockTable(room int) {
	if room <= 0 {
		return
	}
	all, before := s.answer.Report.Locks, len(s.lines)
	from, to, marked := s.visible(s.locks, room)
	var names show.HostNames
	names.AddHosts(s.answer.Report.Hosts)
	rows := [][]string{s.cells(render.Head, title("LOCKS", len(s.locks), len(all), from, to), "STATE", "HELD BY", "FOR", "WAIT", "COMMAND")}
	for _, r := range s.locks[from:to] {
		l := all[r.i]
		of, waits, last := render.Plain, "", s.stuck(l)
		if n := s.waits(l); n > 0 {
			waits = fmt.Sprintf("%4d", n)
		}
		if l.Stuck != "" {
			of = render.Bad
		} else if len(l.Holders) > 0 {
			last = text.PrintableLine(l.Holders[0].Command)
		}
		rows = append(rows, []string{s.name(of, show.LockName(l)), s.lockState(l), s.of(render.Plain, s.heldBy(l, &names)), s.heldFor(oldest(l)),
			s.of(render.Warn, waits), s.of(of, last)})
	}
	s.grid([]column{{1, s.part(3)}, fixed(8), {7, s.part(5)}, fixed(6), fixed(4)}, rows, marked)
	if s.height > 0 { // there are keys to change it
		s.right(before, s.of(render.Soft, s.order.String()))
	}
	if len(all) == 0 && room > 1 {
		s.line(s.of(render.Soft, "  none yet: a lock is created on first use"))
	}
}

// stuck returns why a lock is stuck, with the present times.
func (s *screen) stuck(l report.Lock) string { return report.Aged(l.Stuck, l.Times, s.known()) }

// heldBy returns the names of the hosts that hold a lock.
func (s *screen) heldBy(l report.Lock, names *show.HostNames) string {
	var all []string
	for _, h := range l.Holders {
		name := names.Of(h.Host, h.HostName)
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
		if len(all) > 8 && s.width < unlimited {
			break // it is cut anyway
		}
	}
	return strings.Join(all, ", ")
}

// eventTable adds the last events of the host, newest first, in at most room lines.
func (s *screen) eventTable(room int) {
	if room <= 0 {
		return
	}
	failed := ""
	if s.eventsFailed != nil {
		failed = s.of(render.Warn, "  no new events at the moment")
	}
	s.line(s.of(render.Head, "  EVENTS of this host, newest first"), failed)
	var rows [][]string
	names := s.hostNames()
	for _, e := range s.events[:min(len(s.events), room-1)] {
		of := names.Host(&e)
		if e.Lock != "" {
			of = text.Printable(e.Lock)
		}
		rows = append(rows, slices.Insert(s.eventCells(e, names), 2, s.of(render.Plain, of)))
	}
	s.grid([]column{fixed(8), fixed(show.KindWidth), {4, s.part(4)}}, rows, -1)
}

// hostNames returns the names of the hosts in the events.
func (s *screen) hostNames() *show.HostNames {
	var names show.HostNames
	for i := range s.events {
		names.Add(&s.events[i])
	}
	return &names
}

// eventCells returns the time, kind and details of an event. bakeryctl events also shows its ticket
// and token.
func (s *screen) eventCells(e events.Event, names *show.HostNames) []string {
	e.Token, e.Ticket = 0, 0
	return []string{s.of(render.Soft, e.At.Local().Format(time.TimeOnly)), s.of(show.EventLevel(e.Kind), show.EventKind(&e)),
		s.of(render.Plain, strings.Join(show.EventDetails(&e, names), "  "))}
}
