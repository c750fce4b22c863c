package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

const topHelp = `
up, down, page up, page down   select a host or a lock; or k, j, g, G
tab      hosts, or locks       enter    all that is known of it; esc: back
/        only what some words are about: locks, hosts, commands; esc: all
s        sort locks            p        pause: nothing is asked
?        this                  q        quit; or ctrl-c

LEASE    what is left of a host's lease, which each renewal fills, six times
         in its course; of a silent host, until it is declared dead
live     it renews its lease                 left     it has left
silent   it has not done so for a while      joining  about to be live
dead     declared dead: its locks are free
held     by one alone; 2/3: two of three     shared   by so many who share it
stuck    it does not move, and why           orphan   its bakeryctl is gone,
entering somebody draws a number                      its command goes on
WAIT     how many wait: hosts, and of this host its clients

Of locks that are in use is shown what was read at most 2 s ago, of the
others in turn: all who look, here or by the status page, share that.`

func helpLines() (all []topLine) {
	for text := range strings.SplitSeq(topHelp, "\n") {
		var l topLine
		l.add(plain, "  "+text)
		all = append(all, l)
	}
	return all
}

// sheet is a list of facts.
type sheet struct {
	lines []topLine
	g     glyphs
}

func (s *sheet) title(of level, text string) {
	var l topLine
	l.add(plain, "  ")
	l.add(of, text)
	s.lines = append(s.lines, nil, l)
}

func (s *sheet) fact(name string, of level, text string) {
	if text == "" {
		return
	}
	var l topLine
	l.add(plain, "  ")
	l.cell(soft, name, 12, s.g)
	l.add(of, text)
	s.lines = append(s.lines, l)
}

// row is a line of cells below a title; the last one is as wide as it is.
func (s *sheet) row(of level, first string, cells ...string) {
	var l topLine
	l.add(plain, "    ")
	l.cell(of, first, 14, s.g)
	for i, c := range cells {
		if i == len(cells)-1 {
			l.add(plain, c)
		} else {
			l.cell(plain, c, []int{20, 9, 7, 10}[min(i, 3)], s.g)
		}
	}
	s.lines = append(s.lines, l)
}

// details are those of the selected row.
func (s *screen) details() []topLine {
	m, d := s.m, &sheet{g: s.g}
	at, there := m.place()
	switch {
	case !there:
		d.title(plain, "it is gone")
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
	d.title(head, "lock "+lockName(l))
	d.fact("state", of, state)
	d.fact("stuck", bad, l.Stuck)
	d.fact("permits", plain, strconv.Itoa(l.Permits))
	d.fact("number", plain, fmt.Sprintf("%d, creation %d", l.Lock, l.Creation))
	if len(l.Holders) > 0 {
		d.title(head, "held by")
	}
	for _, h := range l.Holders {
		since, pid := "", ""
		if !h.Since.IsZero() {
			since = age(m.held(h.Since))
		}
		if h.PID != 0 {
			pid = fmt.Sprint("pid ", h.PID)
		}
		word, of := "held", good
		if h.Orphan {
			word, of, pid = "held, orphan", warn, "left: "+strings.Trim(fmt.Sprint(h.Processes[:min(4, len(h.Processes))]), "[]")
		}
		d.row(of, word, hostTitle(h.Host, h.HostName), h.Mode.String(), since, pid)
		if h.Command != "" {
			d.row(plain, "", text.PrintableLine(h.Command))
		}
		d.row(plain, "", "token "+h.Token.String())
	}
	if len(l.Queue) > 0 {
		d.title(head, "hosts that wait, in this order")
	}
	for _, q := range l.Queue {
		d.row(warn, fmt.Sprintf("%d. %v", q.Place, q.Phase), hostTitle(q.Host, q.HostName), q.Mode.String(), "ticket "+q.Ticket.String())
	}
	if len(l.Local) > 0 {
		d.title(head, "clients of this host that wait, in this order")
	}
	for _, c := range l.Local {
		since := ""
		if !c.Since.IsZero() {
			since = age(m.held(c.Since))
		}
		d.row(warn, fmt.Sprintf("%d.", c.Place), "pid "+strconv.Itoa(c.PID), c.Mode.String(), since, text.PrintableLine(c.Command))
	}
	s.eventsOf(d, func(e events.Event) bool { return e.Lock == l.Name && l.Lock != 0 })
}

func (s *screen) hostDetails(d *sheet, h report.Host) {
	m, r := s.m, s.m.answer.report
	d.title(head, "host "+hostTitle(h.ID, h.Name))
	state := hostState(h)
	if m.own(h.ID) {
		state += ", this host"
	}
	d.fact("state", hostLevel(h), state)
	if h.SilentMS != nil {
		d.fact("seen", plain, seen(h, r.Lockspace.Policy))
	}
	d.fact("renewals", plain, fmt.Sprint(h.Sequence))
	d.fact("watchdog", plain, watchdog(h))
	d.fact("incarnation", plain, fmt.Sprintf("%016x", h.Incarnation))
	d.fact("machine", plain, h.MachineID)
	d.fact("boot", plain, h.BootID)
	if h.PRKey != 0 {
		d.fact("pr key", plain, fmt.Sprintf("%016x", h.PRKey))
	}
	d.fact("says", plain, verdicts(h, r.Hosts))
	for _, other := range r.Hosts {
		for _, v := range other.Verdicts {
			if v.Host == h.ID && v.Incarnation == h.Incarnation {
				d.fact("said of it", warn, fmt.Sprintf("%v, by %s", v.Kind, hostTitle(other.ID, other.Name)))
			}
		}
	}
	has, wants := 0, 0
	for _, l := range r.Locks {
		for _, x := range l.Holders {
			if x.Host == h.ID {
				if has++; has == 1 {
					d.title(head, "it holds")
				}
				since := ""
				if !x.Since.IsZero() {
					since = age(m.held(x.Since))
				}
				d.row(good, x.Mode.String(), lockName(l), since, text.PrintableLine(x.Command))
			}
		}
	}
	for _, l := range r.Locks {
		if i := slices.IndexFunc(l.Queue, func(q report.Queued) bool { return q.Host == h.ID }); i >= 0 {
			if wants++; wants == 1 {
				d.title(head, "it waits for")
			}
			d.row(warn, fmt.Sprintf("place %d", l.Queue[i].Place), lockName(l))
		}
	}
	s.eventsOf(d, func(e events.Event) bool { return e.Lock == "" && e.Host == h.ID })
}

// eventsOf are the events that are still known of something.
func (s *screen) eventsOf(d *sheet, about func(events.Event) bool) {
	told := false
	for _, e := range s.m.events {
		if !about(e) {
			continue
		}
		if !told {
			d.title(head, "last events")
			told = true
		}
		var l topLine
		l.add(soft, "    "+e.At.Local().Format(time.TimeOnly)+"  ")
		l.cell(eventLevel(e.Kind), eventKind(&e), kindWidth, s.g)
		l.add(plain, eventWords(e))
		d.lines = append(d.lines, l)
	}
}
