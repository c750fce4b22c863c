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

// cell is a text, or a bar that shows a part, in the colour of a level. The last cell of a row has
// the rest of the line.
type cell struct {
	of   render.Level
	text string
	bar  bool
	part float64
}

func plain(text string) cell { return cell{text: text} }

// headings returns the cells of the first row of a table.
func headings(titles ...string) (row []cell) {
	for _, t := range titles {
		row = append(row, cell{of: render.Head, text: t})
	}
	return row
}

// grid adds aligned rows. It marks the row at an index, none if that is -1.
func (s *screen) grid(columns []column, rows [][]cell, marked int) {
	wide := make([]int, len(columns))
	for k, c := range columns {
		wide[k] = c.least
		for _, row := range rows {
			if wide[k] < c.most && k < len(row)-1 {
				wide[k] = max(wide[k], render.Width(render.Safe(row[k].text)))
			}
		}
		wide[k] = max(1, min(wide[k], c.most))
	}
	for i, row := range rows {
		l := s.line()
		if i == marked {
			l.Add(render.Head, s.g.Mark+" ")
		} else {
			l.Add(render.Plain, "  ")
		}
		for k, c := range row {
			switch {
			case k == len(row)-1:
				l.Add(c.of, c.text)
			case c.bar:
				l.Bar(c.of, c.part, wide[k], s.g)
				l.Add(render.Plain, "  ")
			default:
				l.Cell(c.of, c.text, wide[k], s.g)
			}
		}
	}
}

// part returns a fraction of the width, or free if the width has no limit.
func (s *screen) part(of, free int) int {
	if s.wide <= 0 {
		return free
	}
	return max(6, s.wide/of)
}

// visible returns the range of the rows of a table of hosts or locks that are visible in room lines
// with the heading, and the index of the selected one among these lines, -1 if none is.
func (s *screen) visible(table []row, room int) (from, to, marked int) {
	at := slices.IndexFunc(table, func(r row) bool { return r.rowID == s.m.at })
	room = max(0, room-1)
	from = min(max(0, at-room/2), max(0, len(table)-room))
	to = min(len(table), from+room)
	if at < 0 || s.m.height <= 0 { // all rows are printed once
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
	m, all := s.m, s.m.answer.Report.Hosts
	from, to, marked := s.visible(m.hosts, room)
	rows := [][]cell{headings(title("HOSTS", len(m.hosts), len(all), from, to), "STATE", "LEASE", "SEEN")}
	for _, r := range m.hosts[from:to] {
		h := m.aged(all[r.i])
		rows = append(rows, []cell{plain(show.HostTitle(h.ID, h.Name)), {of: show.HostLevel(h), text: string(show.Health(h))}, s.hostLease(h), s.hostNotes(h)})
	}
	s.grid([]column{{1, s.part(3, 60)}, fixed(8), fixed(s.barWidth())}, rows, marked)
}

// hostLease returns a bar of the remaining lease of a host, or of the time until it is declared dead.
func (s *screen) hostLease(h report.Host) cell {
	m, state, of := s.m, show.Health(h), show.HostLevel(h)
	left, whole := time.Duration(0), m.lease()
	switch {
	case state == report.HealthSilent && h.DeadInMS != nil:
		left, whole = time.Duration(*h.DeadInMS)*time.Millisecond, whole*6/5
		if h.WatchdogArmed {
			whole += time.Duration(h.WatchdogSeconds) * time.Second
		}
	case state == report.HealthSilent: // the time is not known
	case state == report.HealthLive && m.own(h.ID):
		left = m.left()
	case state == report.HealthLive && h.SilentMS != nil:
		left = max(0, whole-time.Duration(*h.SilentMS)*time.Millisecond)
	default:
		return cell{}
	}
	if l := leaseLevel(left, whole); state == report.HealthLive && l != render.Good {
		of = l
	}
	return cell{of: of, bar: true, part: float64(left) / float64(max(1, whole))}
}

func (s *screen) hostNotes(h report.Host) cell {
	m, health, of := s.m, show.Health(h), render.Plain
	var notes []string
	switch {
	case m.own(h.ID) && health == report.HealthLive:
		notes = append(notes, "this host")
	case health == report.HealthSilent, h.SilentMS != nil:
		notes = append(notes, show.Seen(h, m.answer.Report.Lockspace.Policy))
	case health == report.HealthDead:
		notes = append(notes, "its locks are free")
	}
	if more, found := strings.CutPrefix(show.HostState(h), string(health)+", "); found {
		notes = append(notes, more)
	}
	if h.WatchdogArmed {
		notes = append(notes, fmt.Sprintf("watchdog %d s", h.WatchdogSeconds))
	}
	if health == report.HealthSilent {
		of = render.Bad
	}
	return cell{of: of, text: strings.Join(notes, ", ")}
}

// lockState returns the state of a lock in one or two words.
func lockState(l report.Lock) cell {
	n := len(l.Holders)
	switch {
	case l.Stuck != "":
		return cell{of: render.Bad, text: "stuck"}
	case slices.ContainsFunc(l.Holders, func(h report.Holder) bool { return h.Orphan }):
		return cell{of: render.Warn, text: "orphan"}
	case n > 0 && l.Holders[0].Mode == layout.Shared:
		return cell{of: render.Good, text: fmt.Sprintf("shared %d", n)}
	case n > 0 && l.Permits > 1:
		return cell{of: render.Good, text: fmt.Sprintf("held %d/%d", n, l.Permits)}
	case n > 0:
		return cell{of: render.Good, text: "held"}
	case len(l.Queue)+len(l.Local) > 0:
		return cell{of: render.Warn, text: "entering"}
	}
	return cell{of: render.Soft, text: "free"}
}

// lockTable adds the locks and a heading, at most room lines.
func (s *screen) lockTable(room int) {
	if room <= 0 {
		return
	}
	m, all, before := s.m, s.m.answer.Report.Locks, len(s.lines)
	from, to, marked := s.visible(m.locks, room)
	rows := [][]cell{headings(title("LOCKS", len(m.locks), len(all), from, to), "STATE", "HELD BY", "FOR", "WAIT", "COMMAND")}
	for _, r := range m.locks[from:to] {
		l := all[r.i]
		name, waits, last := plain(show.LockName(l)), plain(""), plain("")
		if n := m.waits(l); n > 0 {
			waits = cell{of: render.Warn, text: fmt.Sprintf("%4d", n)}
		}
		if l.Stuck != "" {
			name.of, last = render.Bad, cell{of: render.Bad, text: l.Stuck}
		} else if len(l.Holders) > 0 {
			last = plain(text.PrintableLine(l.Holders[0].Command))
		}
		rows = append(rows, []cell{name, lockState(l), plain(heldBy(l)), plain(m.heldFor(oldest(l))), waits, last})
	}
	s.grid([]column{{1, s.part(3, 128)}, fixed(8), {7, s.part(5, 60)}, fixed(6), fixed(4)}, rows, marked)
	if s.wide > 0 {
		s.lines[before].Right(render.Soft, m.order.String(), s.wide)
	}
	if len(all) == 0 && room > 1 {
		s.line().Add(render.Soft, "  none yet: a lock is created on first use")
	}
}

// heldBy returns the names of the hosts that hold a lock.
func heldBy(l report.Lock) string {
	var names []string
	for _, h := range l.Holders {
		name := show.EventHost(h.Host, h.HostName)
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if len(names) > 8 {
			break // it is cut anyway
		}
	}
	return strings.Join(names, ", ")
}

// eventTable adds the last events of the host, newest first, in at most room lines.
func (s *screen) eventTable(room int) {
	if room <= 0 {
		return
	}
	l := s.line()
	l.Add(render.Head, "  EVENTS of this host, newest first")
	if s.m.eventsFailed != nil {
		l.Add(render.Warn, "  no new events at the moment")
	}
	var rows [][]cell
	for _, e := range s.m.events[:min(len(s.m.events), room-1)] {
		of := show.EventHost(e.Host, e.HostName)
		if e.Lock != "" {
			of = text.Printable(e.Lock)
		}
		row := eventCells(e)
		rows = append(rows, slices.Insert(row, 2, plain(of)))
	}
	s.grid([]column{fixed(8), fixed(show.KindWidth), {4, s.part(4, 60)}}, rows, -1)
}

// eventCells returns the time, kind and details of an event. bakeryctl events also shows its ticket
// and token.
func eventCells(e events.Event) []cell {
	e.Token, e.Ticket = 0, 0
	return []cell{{of: render.Soft, text: e.At.Local().Format(time.TimeOnly)}, {of: show.EventLevel(e.Kind), text: show.EventKind(&e)},
		plain(strings.Join(show.EventDetails(&e), "  "))}
}
