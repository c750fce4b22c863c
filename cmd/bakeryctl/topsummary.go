package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// What top shows above its tables: whether all is well, the lease, how many there are of what, and the device.

func (s *screen) title() {
	m, l := s.m, s.line()
	l.add(head, "bakeryctl top")
	if m.answer != nil {
		space := m.answer.report.Lockspace
		l.addf(plain, "  %s on %s", text.Printable(cmp.Or(space.Name, space.UUID.String())), text.PrintableLine(space.Device))
	} else {
		l.addf(plain, "  %s", text.PrintableLine(m.source))
	}
	at := m.now.Local().Format(time.TimeOnly)
	switch {
	case m.stale() && m.answer != nil:
		l.right(warn, "as of "+m.got.Local().Format(time.TimeOnly), s.wide)
		return
	case m.paused:
		l.right(warn, "paused at "+at, s.wide)
		return
	}
	l.right(soft, at, s.wide)
}

// summary says whether all is well, or what is not, in so many lines at most.
func (s *screen) summary(most int) {
	m := s.m
	found := m.judge()
	if len(found) == 0 {
		l := s.line()
		switch {
		case m.answer == nil:
			l.add(warn, "asking "+m.source)
		case m.answer.report.ThisHost == nil:
			l.add(plain, "read from the device: whether a host is alive, a bakeryd knows")
		default:
			l.add(good, "all is well")
		}
		return
	}
	words := map[level]string{bad: "bad   ", warn: "warn  ", soft: "note  "}
	for i, t := range found[:min(most, len(found))] {
		l := s.line()
		l.add(t.level, words[t.level])
		if i == most-1 && len(found) > most {
			l.addf(soft, "  (%d more)", len(found)-most)
		}
		l.add(plain, "  "+t.what)
		if t.todo != "" {
			l.add(soft, " "+s.g.dot+" "+t.todo)
		}
	}
}

// state is this host's lease, the numbers of hosts and locks, and how long the device takes.
func (s *screen) state() {
	m := s.m
	if m.answer == nil {
		return
	}
	r := m.answer.report
	if self := r.ThisHost; self != nil {
		l, left, lease := s.line(), m.left(), m.lease()
		of := good
		if self.State == "lost" || left < lease/3 {
			of = bad
		} else if left < lease*6/10 || self.State != "live" {
			of = warn
		}
		l.add(soft, "lease   ")
		l.bar(of, float64(left)/float64(max(1, lease)), s.barWidth(), s.g)
		l.addf(of, "  %s", seconds(left.Milliseconds()))
		l.addf(plain, " of %v left, this host is %s, %s", lease, hostTitle(self.ID, self.Name), self.State)
	}
	s.tally()
	s.latency()
}

func (s *screen) barWidth() int {
	switch {
	case s.wide >= 110 || s.wide <= 0:
		return 20
	case s.wide >= 60:
		return 10
	}
	return 5
}

func (s *screen) tally() {
	m, l := s.m, s.line()
	of := map[report.Health]int{}
	for _, h := range m.answer.report.Hosts {
		of[health(h)]++
	}
	l.add(soft, "hosts   ")
	part := func(n int, level level, what string) {
		if n > 0 {
			if len(*l) > 1 && (*l)[len(*l)-1].text != " "+s.g.dot+" locks " {
				l.add(plain, ", ")
			}
			l.addf(level, "%d %s", n, what)
		}
	}
	part(of[report.HealthLive], good, "live")
	part(of[report.HealthJoining], warn, "joining")
	part(of[report.HealthSilent], bad, "silent")
	part(of[report.HealthDead], bad, "dead")
	part(of[report.HealthLeft], soft, "left")
	if len(m.answer.report.Hosts) == 0 {
		l.add(plain, "none ever joined")
	}
	held, wanted, stuck, free := 0, 0, 0, 0
	for _, k := range m.answer.report.Locks {
		held += min(1, len(k.Holders))
		wanted += min(1, m.waits(k))
		stuck += min(1, len(k.Stuck))
		free += lockRank(k) / 4
	}
	l.add(soft, " "+s.g.dot+" locks ")
	part(stuck, bad, "stuck")
	part(held, good, "held")
	part(wanted, warn, "waited for")
	part(free, soft, "free")
	if len(m.answer.report.Locks) == 0 {
		l.add(plain, "none yet")
	}
}

// latency is how long the device takes: what bakeryd tells of its requests, and the reading of what is shown.
func (s *screen) latency() {
	m, l := s.m, s.line()
	l.add(soft, "device  ")
	for _, v := range m.answer.speeds {
		l.addf(plain, "%s %s, p99 %s ", v.what, short(v.p50), short(v.p99))
		if s.wide >= 110 || s.wide <= 0 {
			l.add(soft, s.spark(m.speed[v.what], 10)+" ")
		}
		if v.errors > 0 {
			l.add(bad, count(int(min(v.errors, 1<<30)), "error")+" ")
		}
		l.add(soft, s.g.dot+" ")
	}
	read := m.answer.read
	age := m.passed() + time.Duration(read.AgoMS)*time.Millisecond
	l.addf(plain, "this was read %s ago in %s ", seconds(age.Milliseconds()), short(time.Duration(read.TookMS)*time.Millisecond))
	if len(m.answer.speeds) == 0 {
		l.add(soft, s.spark(m.speed[""], 20))
	}
}

// spark draws the last of some times.
func (s *screen) spark(all []time.Duration, most int) string {
	all = all[max(0, len(all)-most):]
	if len(all) < 2 {
		return ""
	}
	// What is as always is half as high as there is room for, so that what is not stands out.
	usual := slices.Sorted(slices.Values(all))[len(all)/2]
	top := max(float64(slices.Max(all)), 2*float64(usual), 1)
	var b strings.Builder
	for _, d := range all {
		part := max(0, float64(d)) / top
		b.WriteString(s.g.spark[min(len(s.g.spark)-1, int(part*float64(len(s.g.spark))))])
	}
	return b.String()
}

// short is a latency in as few words as tell it.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d us", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return seconds(d.Milliseconds())
}
