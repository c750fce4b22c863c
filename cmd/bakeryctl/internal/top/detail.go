package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

const helpText = `
up, down, page up, page down   select a host or a lock; or k, j, g, G
tab      hosts or locks        enter    details of the selected row; esc: back
/        filter: names of locks and hosts, commands, pids; esc: show all
s        sort locks            p        pause
?        help                  q        quit; or ctrl-c

LEASE    time left of a host's lease; it is renewed six times per lease.
         For a silent host: the time until it is declared dead
live     renews its lease                    left     has left
silent   has not renewed as expected         joining  not live yet
dead     declared dead: its locks are free
held     exclusively; 2/3: two of three      shared   number of shared holders
stuck    blocked; the reason is shown        orphan   its bakeryctl has ended,
entering a host draws a number                        its command runs
WAIT     number of waiters: clients of this host, and other hosts

Locks in use are at most 2 s old, other locks are read in turn. All viewers,
here and on the status page, share these reads.`

func helpLines() (all []render.Line) {
	for text := range strings.SplitSeq(helpText, "\n") {
		var l render.Line
		l.Add(render.Plain, "  "+text)
		all = append(all, l)
	}
	return all
}

// sheet collects lines of facts.
type sheet struct {
	lines []render.Line
	g     render.Glyphs
}

func (s *sheet) title(of render.Level, text string) {
	var l render.Line
	l.Add(render.Plain, "  ")
	l.Add(of, text)
	s.lines = append(s.lines, nil, l)
}

func (s *sheet) fact(name string, of render.Level, text string) {
	if text == "" {
		return
	}
	var l render.Line
	l.Add(render.Plain, "  ")
	l.Cell(render.Soft, name, 12, s.g)
	l.Add(of, text)
	s.lines = append(s.lines, l)
}

// row adds a line of cells below a title; the last cell has no fixed width.
func (s *sheet) row(of render.Level, first string, cells ...string) {
	var l render.Line
	l.Add(render.Plain, "    ")
	l.Cell(of, first, 14, s.g)
	for i, c := range cells {
		if i == len(cells)-1 {
			l.Add(render.Plain, c)
		} else {
			l.Cell(render.Plain, c, []int{20, 9, 7, 10}[min(i, 3)], s.g)
		}
	}
	s.lines = append(s.lines, l)
}

// details returns the details of the selected row.
func (s *screen) details() []render.Line {
	m, d := s.m, &sheet{g: s.g}
	at, there := m.place()
	switch {
	case !there:
		d.title(render.Plain, "it does not exist any more")
	case m.at.lock:
		s.lockDetails(d, m.answer.report.Locks[m.locks[at-len(m.hosts)]])
	default:
		s.hostDetails(d, m.aged(m.answer.report.Hosts[m.hosts[at]]))
	}
	return d.lines
}

func (s *screen) lockDetails(d *sheet, l report.Lock) {
	m := s.m
	of, state := s.lockState(l)
	d.title(render.Head, "lock "+show.LockName(l))
	d.fact("state", of, state)
	d.fact("stuck", render.Bad, l.Stuck)
	d.fact("permits", render.Plain, strconv.Itoa(l.Permits))
	d.fact("number", render.Plain, fmt.Sprintf("%d, creation %d", l.Lock, l.Creation))
	if len(l.Holders) > 0 {
		d.title(render.Head, "held by")
	}
	for _, h := range l.Holders {
		since, pid := "", ""
		if !h.Since.IsZero() {
			since = render.Age(m.held(h.Since))
		}
		if h.PID != 0 {
			pid = fmt.Sprint("pid ", h.PID)
		}
		word, of := "held", render.Good
		if h.Orphan {
			word, of, pid = "held, orphan", render.Warn, "left: "+strings.Trim(fmt.Sprint(h.Processes[:min(4, len(h.Processes))]), "[]")
		}
		d.row(of, word, show.HostTitle(h.Host, h.HostName), h.Mode.String(), since, pid)
		if h.Command != "" {
			d.row(render.Plain, "", text.PrintableLine(h.Command))
		}
		d.row(render.Plain, "", "token "+h.Token.String())
	}
	if len(l.Queue) > 0 {
		d.title(render.Head, "waiting hosts, in order")
	}
	for _, q := range l.Queue {
		d.row(render.Warn, fmt.Sprintf("%d. %v", q.Place, q.Phase), show.HostTitle(q.Host, q.HostName), q.Mode.String(), "ticket "+q.Ticket.String())
	}
	if len(l.Local) > 0 {
		d.title(render.Head, "waiting clients of this host, in order")
	}
	for _, c := range l.Local {
		since := ""
		if !c.Since.IsZero() {
			since = render.Age(m.held(c.Since))
		}
		d.row(render.Warn, fmt.Sprintf("%d.", c.Place), "pid "+strconv.Itoa(c.PID), c.Mode.String(), since, text.PrintableLine(c.Command))
	}
	s.eventsOf(d, func(e events.Event) bool { return e.Lock == l.Name && l.Lock != 0 })
}

func (s *screen) hostDetails(d *sheet, h report.Host) {
	m, r := s.m, s.m.answer.report
	d.title(render.Head, "host "+show.HostTitle(h.ID, h.Name))
	state := show.HostState(h)
	if m.own(h.ID) {
		state += ", this host"
	}
	d.fact("state", show.HostLevel(h), state)
	if h.SilentMS != nil {
		d.fact("seen", render.Plain, show.Seen(h, r.Lockspace.Policy))
	}
	d.fact("renewals", render.Plain, fmt.Sprint(h.Sequence))
	d.fact("watchdog", render.Plain, show.Watchdog(h))
	d.fact("incarnation", render.Plain, fmt.Sprintf("%016x", h.Incarnation))
	d.fact("machine", render.Plain, h.MachineID)
	d.fact("boot", render.Plain, h.BootID)
	if h.PRKey != 0 {
		d.fact("pr key", render.Plain, fmt.Sprintf("%016x", h.PRKey))
	}
	d.fact("verdicts", render.Plain, show.Verdicts(h, r.Hosts))
	for _, other := range r.Hosts {
		for _, v := range other.Verdicts {
			if v.Host == h.ID && v.Incarnation == h.Incarnation {
				d.fact("verdict", render.Warn, fmt.Sprintf("%v, by %s", v.Kind, show.HostTitle(other.ID, other.Name)))
			}
		}
	}
	has, wants := 0, 0
	for _, l := range r.Locks {
		for _, x := range l.Holders {
			if x.Host == h.ID {
				if has++; has == 1 {
					d.title(render.Head, "it holds")
				}
				since := ""
				if !x.Since.IsZero() {
					since = render.Age(m.held(x.Since))
				}
				d.row(render.Good, x.Mode.String(), show.LockName(l), since, text.PrintableLine(x.Command))
			}
		}
	}
	for _, l := range r.Locks {
		if i := slices.IndexFunc(l.Queue, func(q report.Queued) bool { return q.Host == h.ID }); i >= 0 {
			if wants++; wants == 1 {
				d.title(render.Head, "it waits for")
			}
			d.row(render.Warn, fmt.Sprintf("place %d", l.Queue[i].Place), show.LockName(l))
		}
	}
	s.eventsOf(d, func(e events.Event) bool { return e.Lock == "" && e.Host == h.ID })
}

// eventsOf adds the known events about something.
func (s *screen) eventsOf(d *sheet, about func(events.Event) bool) {
	titled := false
	for _, e := range s.m.events {
		if !about(e) {
			continue
		}
		if !titled {
			d.title(render.Head, "last events")
			titled = true
		}
		var l render.Line
		l.Add(render.Soft, "    "+e.At.Local().Format(time.TimeOnly)+"  ")
		l.Cell(show.EventLevel(e.Kind), show.EventKind(&e), show.KindWidth, s.g)
		l.Add(render.Plain, eventWords(e))
		d.lines = append(d.lines, l)
	}
}
