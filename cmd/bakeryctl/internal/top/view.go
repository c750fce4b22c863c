package top

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// unlimited is more columns than any line has.
const unlimited = 1 << 20

// screen collects the lines of a view. It creates only visible rows.
type screen struct {
	model
	paint render.Paint
	g     render.Glyphs
	lines []string
}

// of returns coloured text, escaped so that it moves no cursor and its width is known.
func (s *screen) of(l render.Level, text string) string { return s.paint.Of(l, render.Safe(text)) }

// line appends a line of coloured texts.
func (s *screen) line(texts ...string) { s.lines = append(s.lines, strings.Join(texts, "")) }

// right puts coloured text at the right end of line i, if it fits.
func (s *screen) right(i int, text string) {
	if s.width == unlimited {
		s.lines[i] += "  " + text
	} else if gap := s.width - render.Width(s.lines[i]) - render.Width(text); gap > 0 {
		s.lines[i] += strings.Repeat(" ", gap) + text
	}
}

// bar returns a bar that shows part of whole, "" on a narrow screen.
func (s *screen) bar(of render.Level, part, whole time.Duration) string {
	if s.barWidth() == 0 {
		return ""
	}
	return s.g.Bar(s.paint, of, float64(part)/float64(max(1, whole)), s.barWidth())
}

func (s *screen) barWidth() int {
	switch {
	case s.width >= 110:
		return 20
	case s.width >= 60:
		return 10
	case s.width >= 50:
		return 5
	}
	return 0 // the words need the room
}

// view returns the screen of the model, at most height lines of at most width columns.
func (m model) view(p render.Paint, g render.Glyphs) string {
	if m.width <= 0 {
		m.width = unlimited
	}
	s := &screen{model: m, paint: p, g: g}
	if m.failed != nil && m.answer != nil && m.passed() > m.lease() { // hosts that were live may be dead by now
		s.answer = &report.Glance{At: m.answer.At, Report: m.answer.Report.Unanswered(m.passed()), Read: m.answer.Read}
	}
	high := m.height
	if high <= 0 {
		s.all()
		high = len(s.lines)
	} else {
		s.fill(high)
	}
	text := make([]string, min(high, len(s.lines)))
	for i := range text {
		text[i] = g.Fit(s.lines[i], s.width)
	}
	return strings.Join(text, "\n")
}

// all adds the whole view, without a limit of lines, for --once.
func (s *screen) all() {
	s.title()
	s.summary(1 << 20)
	s.state()
	if s.answer != nil {
		s.line()
		s.hostTable(len(s.hosts) + 1)
		s.line()
		s.lockTable(len(s.locks) + 1)
	}
}

// fill adds the view of a screen of high lines. If there is little room, the most important lines
// remain.
func (s *screen) fill(high int) {
	if high >= 2 {
		s.title()
	}
	troubles := 1
	if high >= 20 {
		troubles = min(8, high/4)
	}
	s.summary(troubles)
	if high >= 8 && !s.help {
		s.state()
	}
	foot := 0
	if high >= 4 || s.typing {
		foot = 1
	}
	room := max(0, high-len(s.lines)-foot)
	switch {
	case s.help:
		s.window((*screen).helpLines, room)
	case s.opened:
		s.window((*screen).details, room)
	case s.answer != nil:
		s.tables(room)
	}
	if foot == 0 {
		return
	}
	for len(s.lines) < high-foot {
		s.line()
	}
	s.lines = s.lines[:high-foot]
	s.footer()
}

// tables divides the room between hosts, locks and events.
func (s *screen) tables(room int) {
	gap := 0
	if room >= 16 {
		gap = 1
	}
	events := 0
	if room >= 10 && (len(s.events) > 0 || s.eventsFailed != nil) {
		events = min(len(s.events)+1, max(3, room/4))
	}
	hosts := 0
	if room >= 6 {
		hosts = min(len(s.hosts)+1, max(3, (room-events)/3))
	} else if !s.at.lock && len(s.hosts) > 0 { // a host is selected
		hosts = room
	}
	locks := room - hosts - events - gap*(1+min(1, hosts)+min(1, events)) // gaps are above and between the tables
	if lack := len(s.locks) + 1 - locks; lack > 0 && events > 4 {
		give := min(lack, events-4)
		locks, events = locks+give, events-give
	}
	// A table that needs less leaves room to the others.
	grow := func(table *int, rows int) {
		if spare := locks - max(1, len(s.locks)) - 1; *table > 0 && spare > 0 {
			more := max(0, min(spare, rows+1-*table))
			*table, locks = *table+more, locks-more
		}
	}
	grow(&hosts, len(s.hosts))
	grow(&events, len(s.events))
	if gap > 0 {
		s.line()
	}
	if hosts > 0 {
		s.hostTable(hosts)
		if gap > 0 {
			s.line()
		}
	}
	end := len(s.lines) + locks
	s.lockTable(locks)
	if events > 0 {
		for len(s.lines) < end {
			s.line()
		}
		if gap > 0 {
			s.line()
		}
		s.eventTable(events)
	}
}

func (s *screen) footer() {
	line := ""
	if s.typing {
		s.line(s.of(render.Head, "/ "), s.of(render.Plain, s.filter+"_"), s.of(render.Soft, "   enter: apply, esc: cancel"))
		return
	}
	if s.filter != "" {
		line = s.of(render.Warn, "only "+strconv.Quote(s.filter)) + s.of(render.Soft, " (esc: all)  ")
	}
	keys := [][2]string{{"q", "quit"}, {"?", "help"}, {"enter", "details"}, {"/", "filter"}, {"s", "sort"}, {"p", "pause"}, {"tab", "hosts, locks"}}
	if s.paused {
		keys[5][1] = "resume"
	}
	if s.help || s.opened {
		keys = [][2]string{{"q", "quit"}, {"esc", "back"}, {"up, down", "scroll"}}
	}
	for _, k := range keys {
		line += s.of(render.Head, k[0]) + s.of(render.Soft, " "+k[1]+"  ")
	}
	s.line(line)
}

// window adds the lines of add from the scroll position on, as many as there is room for.
func (s *screen) window(add func(*screen), room int) {
	before := len(s.lines)
	add(s)
	s.lines = slices.Delete(s.lines, before, before+min(s.scroll, max(0, len(s.lines)-before-room)))
	s.lines = s.lines[:min(len(s.lines), before+room)]
}
