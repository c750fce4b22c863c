package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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
         For a silent host: the time until it is dead or fenced
device   time of half of the requests, and of 99 % of them (p99)
live     renews its lease                    left     has left
silent   has not renewed as expected         joining  not live yet
dead     declared dead: its locks are free   lost     its lease is over
unknown  not read for longer than a lease    entering a host draws a number
held     exclusively; 2/3: two of three      shared   number of shared holders
stuck    blocked; the reason is shown        orphan   its bakeryctl has ended,
WAIT     waiters: clients here, other hosts           its command runs
sequence grows with each renewal, and by more when bakeryd restarts

Locks in use are at most 2 s old, other locks are read in turn. All viewers,
here and on the status page, share these reads.`

func (s *screen) helpLines() {
	for text := range strings.SplitSeq(helpText, "\n") {
		s.line("  " + text)
	}
}

// section adds a title and rows below it, unless there are none.
func (s *screen) section(title string, columns []column, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	s.line()
	s.line("  ", s.of(render.Head, title))
	s.grid(columns, rows, -1)
}

func (s *screen) list(title string, rows [][]string) {
	s.section(title, []column{fixed(16), fixed(20), fixed(9), fixed(7), fixed(10)}, rows)
}

func (s *screen) item(of render.Level, first string, more ...string) []string {
	return slices.Insert(s.cells(render.Plain, more...), 0, "  "+s.of(of, first))
}

// facts adds a section of names and values. A fact without a value is left out.
func (s *screen) facts(title string, all [][]string) {
	s.section(title, []column{fixed(12)}, slices.DeleteFunc(all, func(row []string) bool { return row[1] == "" }))
}

func (s *screen) fact(name string, of render.Level, text string) []string {
	return []string{s.of(render.Soft, name), s.of(of, text)}
}

// details adds the details of the selected row.
func (s *screen) details() {
	i := s.rows[s.place()].i // opened only while the row exists
	if s.at.lock {
		s.lockDetails(s.answer.Report.Locks[i])
	} else {
		s.hostDetails(s.answer.Report.Hosts[i].Aged(s.known()))
	}
}

func (s *screen) lockDetails(l report.Lock) {
	s.facts("lock "+show.LockName(l), [][]string{
		{s.of(render.Soft, "state"), s.lockState(l)},
		s.fact("stuck", render.Bad, s.stuck(l)),
		s.fact("permits", render.Plain, strconv.Itoa(l.Permits)),
		s.fact("number", render.Plain, fmt.Sprintf("%d, creation %d", l.Number, l.Creation)),
	})
	var rows [][]string
	for _, h := range l.Holders {
		pid := ""
		if h.PID != 0 {
			pid = fmt.Sprint("pid ", h.PID)
		}
		word, of := show.HoldState(h)
		if h.Orphan {
			pids := h.Processes[:min(4, len(h.Processes))]
			pid = "left: " + strings.Trim(fmt.Sprint(pids), "[]")
		}
		rows = append(rows, s.item(of, word, show.HostTitle(h.Host, h.HostName), h.Mode.String(), s.heldFor(h.Since), pid))
		if h.Command != "" {
			rows = append(rows, s.item(render.Plain, "", text.PrintableLine(h.Command)))
		}
		rows = append(rows, s.item(render.Plain, "", "token "+h.Token.String()))
	}
	s.list("held by", rows)
	rows = nil
	for _, q := range l.Queue {
		rows = append(rows, s.item(render.Warn, fmt.Sprintf("%d. %v", q.Place, q.Phase), show.HostTitle(q.Host, q.HostName), q.Mode.String(), "ticket "+q.Ticket.String()))
	}
	s.list("waiting hosts, in order", rows)
	rows = nil
	for _, c := range l.Local {
		rows = append(rows, s.item(render.Warn, fmt.Sprintf("%d.", c.Place), "pid "+strconv.Itoa(c.PID), c.Mode.String(), s.heldFor(c.Since), text.PrintableLine(c.Command)))
	}
	s.list("waiting clients of this host, in order", rows)
	s.eventsOf(func(e events.Event) bool { return e.Lock == l.Name && l.Number != 0 })
}

func (s *screen) hostDetails(h report.Host) {
	r := s.answer.Report
	state, seen, key := show.HostState(h), "", ""
	if r.IsThisHost(h.ID) {
		state += ", this host"
	}
	if h.SilentMS != nil {
		seen = show.Seen(h)
	}
	if h.PRKey != 0 {
		key = h.PRKey.String()
	}
	all := [][]string{
		s.fact("state", show.HostLevel(h), state),
		s.fact("seen", render.Plain, seen),
		s.fact("sequence", render.Plain, fmt.Sprint(h.Sequence)),
		s.fact("watchdog", render.Plain, show.Watchdog(h)),
		s.fact("incarnation", render.Plain, h.Incarnation.String()),
		s.fact("machine", render.Plain, h.MachineID),
		s.fact("boot", render.Plain, h.BootID),
		s.fact("pr key", render.Plain, key),
		s.fact("verdicts", render.Plain, show.Verdicts(r, h)),
	}
	for _, other := range r.Hosts {
		for _, v := range other.Verdicts {
			if v.Host == h.ID && v.Incarnation == h.Incarnation {
				all = append(all, s.fact("verdict", render.Warn, fmt.Sprintf("%v, by %s", v.Kind, show.HostTitle(other.ID, other.Name))))
			}
		}
	}
	s.facts("host "+show.HostTitle(h.ID, h.Name), all)
	var holds, waits [][]string
	for _, l := range r.Locks {
		for _, x := range l.Holders {
			if x.Host == h.ID {
				holds = append(holds, s.item(render.Good, x.Mode.String(), show.LockName(l), s.heldFor(x.Since), text.PrintableLine(x.Command)))
			}
		}
		if i := slices.IndexFunc(l.Queue, func(q report.Queued) bool { return q.Host == h.ID }); i >= 0 {
			waits = append(waits, s.item(render.Warn, fmt.Sprintf("place %d", l.Queue[i].Place), show.LockName(l)))
		}
	}
	s.list("it holds", holds)
	s.list("it waits for", waits)
	s.eventsOf(func(e events.Event) bool { return e.Lock == "" && e.Host == h.ID })
}

// eventsOf adds the known events about something.
func (s *screen) eventsOf(about func(events.Event) bool) {
	var rows [][]string
	names := s.hostNames()
	for _, e := range s.events {
		if about(e) {
			row := s.eventCells(e, names)
			row[0] = "  " + row[0]
			rows = append(rows, row)
		}
	}
	s.section("last events", []column{fixed(10), fixed(show.KindWidth)}, rows)
}
