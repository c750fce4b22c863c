package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// The lines above the tables: the summary, the lease, the numbers of hosts and locks, and the
// device.

func (s *screen) title() {
	m, l := s.m, s.line()
	l.Add(render.Head, "bakeryctl top")
	if m.answer != nil {
		space := m.answer.Report.Lockspace
		l.Addf(render.Plain, "  %s on %s", text.Printable(cmp.Or(space.Name, space.UUID.String())), text.PrintableLine(space.Device))
	} else {
		l.Addf(render.Plain, "  %s", text.PrintableLine(m.source))
	}
	at := m.now.Local().Format(time.TimeOnly)
	switch {
	case m.failed != nil && m.answer != nil:
		l.Right(render.Warn, "as of "+m.got.Local().Format(time.TimeOnly), s.wide)
	case m.paused:
		l.Right(render.Warn, "paused at "+at, s.wide)
	default:
		l.Right(render.Soft, at, s.wide)
	}
}

// summary adds the problems, in at most most lines, or that all is well.
func (s *screen) summary(most int) {
	m := s.m
	found := m.troubles()
	if len(found) == 0 {
		l := s.line()
		switch {
		case m.answer == nil:
			l.Add(render.Warn, "asking "+m.source)
		case m.answer.Report.ThisHost == nil:
			l.Add(render.Plain, "read from the device, which does not show whether a host is alive")
		default:
			l.Add(render.Good, "all is well")
		}
		return
	}
	words := map[render.Level]string{render.Bad: "bad   ", render.Warn: "warn  ", render.Soft: "note  "}
	for i, t := range found[:min(most, len(found))] {
		l := s.line()
		l.Add(t.level, words[t.level])
		if i == most-1 && len(found) > most {
			l.Addf(render.Soft, "  (%d more)", len(found)-most)
		}
		l.Add(render.Plain, "  "+t.what)
		if t.todo != "" {
			l.Add(render.Soft, " "+s.g.Dot+" "+t.todo)
		}
	}
}

// state adds this host's lease, the numbers of hosts and locks, and the latency of the device.
func (s *screen) state() {
	m := s.m
	if m.answer == nil {
		return
	}
	r := m.answer.Report
	if self := r.ThisHost; self != nil {
		l, left, lease := s.line(), m.left(), m.lease()
		of := leaseLevel(left, lease)
		if self.State == "lost" {
			of = render.Bad
		} else if of == render.Good && self.State != "live" {
			of = render.Warn
		}
		l.Add(render.Soft, "lease   ")
		l.Bar(of, float64(left)/float64(max(1, lease)), s.barWidth(), s.g)
		l.Addf(of, "  %s", render.Seconds(left.Milliseconds()))
		l.Addf(render.Plain, " of %v left, this host is %s, %s", lease, show.HostTitle(self.ID, self.Name), self.State)
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

// tally adds the numbers of hosts and locks.
func (s *screen) tally() {
	m, l := s.m, s.line()
	hosts := map[report.Health]int{}
	for _, h := range m.answer.Report.Hosts {
		hosts[show.Health(h)]++
	}
	stuck, held, wanted, free := 0, 0, 0, 0
	for _, k := range m.answer.Report.Locks {
		held += min(1, len(k.Holders))
		wanted += min(1, len(k.Queue)+len(k.Local))
		stuck += min(1, len(k.Stuck))
		free += lockRank(k) / 4
	}
	between := ""
	part := func(n int, of render.Level, what string) {
		if n > 0 {
			l.Add(render.Plain, between)
			l.Addf(of, "%d %s", n, what)
			between = ", "
		}
	}
	l.Add(render.Soft, "hosts   ")
	part(hosts[report.HealthLive], render.Good, "live")
	part(hosts[report.HealthJoining], render.Warn, "joining")
	part(hosts[report.HealthSilent], render.Bad, "silent")
	part(hosts[report.HealthDead], render.Bad, "dead")
	part(hosts[report.HealthLeft], render.Soft, "left")
	if between == "" {
		l.Add(render.Plain, "none ever joined")
	}
	between = ""
	l.Add(render.Soft, " "+s.g.Dot+" locks ")
	part(stuck, render.Bad, "stuck")
	part(held, render.Good, "held")
	part(wanted, render.Warn, "waited for")
	part(free, render.Soft, "free")
	if between == "" {
		l.Add(render.Plain, "none yet")
	}
}

// latency adds the latencies of the device that bakeryd reports, and those of the read shown.
func (s *screen) latency() {
	m, l := s.m, s.line()
	l.Add(render.Soft, "device  ")
	speeds := speedsOf(m.answer.Report)
	for _, v := range speeds {
		l.Addf(render.Plain, "%s %s, p99 %s ", v.what, render.Short(micros(v.P50US)), render.Short(micros(v.P99US)))
		if s.wide >= 110 || s.wide <= 0 {
			l.Add(render.Soft, s.spark(m.speed[v.what], 10)+" ")
		}
		if v.Errors > 0 {
			l.Add(render.Bad, render.Count(int(min(v.Errors, 1<<30)), "error")+" ")
		}
		l.Add(render.Soft, s.g.Dot+" ")
	}
	read := m.answer.Read
	age := m.passed() + time.Duration(read.AgoMS)*time.Millisecond
	l.Addf(render.Plain, "read %s ago in %s ", render.Seconds(age.Milliseconds()), render.Short(time.Duration(read.TookMS)*time.Millisecond))
	if len(speeds) == 0 {
		l.Add(render.Soft, s.spark(m.speed[""], 20))
	}
}

// spark draws the most recent times.
func (s *screen) spark(all []time.Duration, most int) string {
	all = all[max(0, len(all)-most):]
	if len(all) < 2 {
		return ""
	}
	// The usual time has half the height, so that outliers are visible.
	usual := slices.Sorted(slices.Values(all))[len(all)/2]
	top := max(float64(slices.Max(all)), 2*float64(usual), 1)
	var b strings.Builder
	for _, d := range all {
		part := max(0, float64(d)) / top
		b.WriteString(s.g.Spark[min(len(s.g.Spark)-1, int(part*float64(len(s.g.Spark))))])
	}
	return b.String()
}
