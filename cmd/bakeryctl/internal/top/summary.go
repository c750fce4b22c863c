package top

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// The lines above the tables: the summary, the lease, the numbers of hosts and locks, and the
// device.

func (s *screen) title() {
	of, at := render.Soft, s.now.Local().Format(time.TimeOnly)
	switch {
	case s.failed != nil && s.answer != nil:
		of, at = render.Warn, "as of "+s.got.Local().Format(time.TimeOnly)
	case s.paused:
		of, at = render.Warn, "paused at "+at
	}
	head := s.of(render.Head, "bakeryctl top") + "  "
	if s.answer != nil {
		space := s.answer.Report.Lockspace
		head += s.of(render.Plain, text.Printable(cmp.Or(space.Name, space.UUID.String()))+" on ")
	}
	room := s.width - render.Width(head)
	if withTime := room - render.Width(at) - 2; withTime >= leastPath {
		room = withTime
	}
	s.line(head, s.of(render.Plain, s.where(room)))
	s.right(len(s.lines)-1, s.of(of, at))
}

// leastPath is the number of columns below which the path of one of several devices is not shown.
const leastPath = 12

// where returns the devices of the lockspace, or what is asked, in a number of columns. Each path
// keeps its start and its end.
func (s *screen) where(room int) string {
	paths := []string{s.source}
	if s.answer != nil {
		paths[0] = s.answer.Report.Lockspace.Device
		if disks := s.answer.Report.Disks; len(disks) > 0 {
			paths = nil
			for _, d := range disks {
				paths = append(paths, show.DiskName(d))
			}
		}
	}
	n := len(paths)
	share := (room - 2*(n-1)) / n
	if n > 1 && share < leastPath {
		return render.Count(n, "disk")
	}
	for i := range paths {
		paths[i] = s.g.Middle(render.Safe(text.PrintableLine(paths[i])), share)
	}
	return strings.Join(paths, ", ")
}

// summary adds the problems, in at most most lines, or that all is well.
func (s *screen) summary(most int) {
	found := s.problems()
	if len(found) == 0 {
		switch {
		case s.answer == nil:
			s.line(s.of(render.Warn, "asking "+s.source))
		case s.answer.Report.ThisHost == nil:
			s.line("read from the device: a host that is shown as live may be dead")
		default:
			s.line(s.of(render.Good, "all is well"))
		}
		return
	}
	// The remedy of the worst problem matters more than a list of all.
	shown := min(len(found), max(1, most+1-len(s.problem(found[0]))))
	room := most - shown // lines beyond one for each problem
	for i, p := range found[:shown] {
		lines, more := s.problem(p), ""
		if left := len(found) - shown; i == shown-1 && left > 0 {
			more = fmt.Sprintf("(%d more)", left)
		}
		switch further := len(lines) - 1; {
		case i == 0 && room > 0 && further > room:
			s.lines = append(s.lines, lines[:room]...)
			last, wide := lines[room], s.width-render.Width(more)-1
			if render.Width(last) < wide { // else Fit marks that it is cut
				last += s.of(render.Soft, s.g.More)
			}
			s.line(s.g.Fit(last, wide), s.of(render.Soft, " "+more))
			room = 0
		case further > room || more != "":
			s.line(s.problemInLine(p, more))
		default:
			s.lines, room = append(s.lines, lines...), room-further
		}
	}
}

var levelWords = map[render.Level]string{render.Bad: "bad   ", render.Warn: "warn  ", render.Soft: "note  "}

// problemInLine returns a problem in one line, which may be too long.
func (s *screen) problemInLine(p report.Problem, more string) string {
	level, remedy := show.SeverityLevel(p.Severity), ""
	if more != "" {
		more = "  " + more
	}
	if p.Remedy != "" {
		remedy = " " + s.g.Dot + " " + p.Remedy
	}
	return s.of(level, levelWords[level]) + s.of(render.Soft, more) + s.of(render.Plain, "  "+show.ProblemText(p)) + s.of(render.Soft, remedy)
}

// problem returns the lines of a problem: one, or if that is too long as many as show all of it.
func (s *screen) problem(p report.Problem) (lines []string) {
	const indent = 8
	line, wide := s.problemInLine(p, ""), s.width-indent
	if render.Width(line) <= s.width || wide < indent {
		return []string{line}
	}
	level := show.SeverityLevel(p.Severity)
	for _, text := range render.Wrap(render.Safe(show.ProblemText(p)), wide) {
		lines = append(lines, strings.Repeat(" ", indent)+s.of(render.Plain, text))
	}
	lines[0] = s.of(level, levelWords[level]) + lines[0][indent-2:]
	if p.Remedy != "" {
		for _, text := range render.Wrap(render.Safe(p.Remedy), wide) {
			lines = append(lines, strings.Repeat(" ", indent)+s.of(render.Soft, text))
		}
	}
	return lines
}

// state adds this host's lease, the numbers of hosts and locks, and the latency of the device.
func (s *screen) state() {
	if s.answer == nil {
		return
	}
	if self := s.answer.Report.ThisHost; self != nil {
		left, lease := s.left(), s.lease()
		of := leaseLevel(left, lease)
		if self.State == report.StateLost {
			of = render.Bad
		} else if of == render.Good && self.State != report.StateLive {
			of = render.Warn
		}
		bar := s.bar(of, left, lease)
		if bar != "" {
			bar += "  "
		}
		s.line(s.of(render.Soft, "lease   "), bar, s.of(of, report.Left(left)),
			s.of(render.Plain, fmt.Sprintf(" of %s left, this host is %s, %s", report.Left(lease), show.HostTitle(self.ID, self.Name), self.State)))
	}
	s.tally()
	s.disks()
	s.latency()
}

// disks adds the member disks of a lockspace on several: a line for each, or one for all on a low
// screen.
func (s *screen) disks() {
	const low = 30
	all, states := s.answer.Report.Disks, map[string]int{}
	for i, d := range all {
		states[d.State]++
		if s.height > 0 && s.height < low {
			continue
		}
		of, head := show.DiskLevel(d), "        "
		if i == 0 {
			head = "disks   "
		}
		line := s.of(render.Soft, head) + s.of(render.Plain, fmt.Sprintf("%d %s ", d.Position, s.g.Middle(render.Safe(show.DiskName(d)), s.part(3)))) +
			s.of(of, fmt.Sprintf("%s for %s", d.State, s.heldFor(d.Since)))
		if d.Behind > 0 {
			line += s.of(render.Soft, " "+s.g.Dot+" ") + s.of(render.Warn, render.Count(d.Behind, "record")+" behind")
		}
		for _, v := range []speed{{"read", d.IO.Read}, {"write", d.IO.Write}} {
			if v.Count == 0 {
				continue
			}
			line += s.of(render.Soft, " "+s.g.Dot+" ") + v.what + " " + render.Short(micros(v.P50US))
			if s.width >= 100 {
				line += ", p99 " + render.Short(micros(v.P99US))
			}
		}
		s.line(line)
	}
	if len(all) > 0 && s.height > 0 && s.height < low {
		s.line(s.of(render.Soft, "disks   "), s.counts("", count{states["up"], render.Good, "up"}, count{states["checking"], render.Warn, "checking"},
			count{states["hangs"], render.Bad, "hanging"}, count{states["down"], render.Bad, "down"}, count{states["vacant"], render.Bad, "vacant"}))
	}
}

// count is a number of hosts or locks in a state.
type count struct {
	n    int
	of   render.Level
	what string
}

// counts lists those that are not 0.
func (s *screen) counts(none string, all ...count) string {
	var words []string
	for _, c := range all {
		if c.n > 0 {
			words = append(words, s.of(c.of, fmt.Sprintf("%d %s", c.n, c.what)))
		}
	}
	return cmp.Or(strings.Join(words, ", "), none)
}

// tally adds the numbers of hosts and locks.
func (s *screen) tally() {
	hosts := map[report.Health]int{}
	for _, h := range s.answer.Report.Hosts {
		hosts[h.Health]++
	}
	stuck, held, wanted, free, doubt := 0, 0, 0, 0, map[report.Health]int{}
	for _, k := range s.answer.Report.Locks {
		switch d := k.Doubt(); { // each lock counts once, by the state that matters most
		case k.Stuck != "":
			stuck++
		case d != "":
			doubt[d]++
		case len(k.Queue)+len(k.Local) > 0:
			wanted++
		case len(k.Holders) > 0:
			held++
		case s.answer.Report.Old():
			doubt[report.HealthUnknown]++
		default:
			free++
		}
	}
	s.line(s.of(render.Soft, "hosts   "), s.counts("none ever joined", count{hosts[report.HealthLive], render.Good, "live"},
		count{hosts[report.HealthJoining], render.Warn, "joining"}, count{hosts[report.HealthSilent], render.Bad, "silent"},
		count{hosts[report.HealthLost], render.Bad, "lost"}, count{hosts[report.HealthUnknown], render.Warn, "unknown"},
		count{hosts[report.HealthDead], render.Bad, "dead"}, count{hosts[report.HealthLeft], render.Soft, "left"}),
		s.of(render.Soft, " "+s.g.Dot+" locks "), s.counts("none yet", count{stuck, render.Bad, "stuck"}, count{doubt[report.HealthLost], render.Bad, "lost"},
			count{doubt[report.HealthUnknown], render.Warn, "unknown"},
			count{held, render.Good, "held"}, count{wanted, render.Warn, "waited for"}, count{free, render.Soft, "free"}))
}

// latency adds the latencies of the device that bakeryd reports, and those of the read shown.
func (s *screen) latency() {
	line := s.deviceLine(true, true)
	if render.Width(line) > s.width {
		line = s.deviceLine(true, false)
	}
	if render.Width(line) > s.width {
		line = s.deviceLine(false, false)
	}
	s.line(line)
}

// deviceLine returns the line of latency, without p99 or without sparklines if there is no room.
func (s *screen) deviceLine(p99, sparks bool) string {
	line := s.of(render.Soft, "device  ")
	speeds := speedsOf(s.answer.Report)
	for _, v := range speeds {
		line += v.what + " " + render.Short(micros(v.P50US))
		if p99 {
			line += ", p99 " + render.Short(micros(v.P99US))
		}
		line += " "
		if drawn := s.spark(s.speed[v.what], 10); sparks && drawn != "" {
			line += s.of(render.Soft, drawn+" ")
		}
		if v.Errors > 0 {
			line += s.of(render.Bad, render.Count(int(min(v.Errors, 1<<30)), "error")+" ")
		}
		line += s.of(render.Soft, s.g.Dot+" ")
	}
	read := s.answer.Read
	age := s.passed() + time.Duration(read.AgoMS)*time.Millisecond
	old := render.Seconds(age.Milliseconds())
	if whole := fmt.Sprintf("read %s ago in %s ", old, render.Short(time.Duration(read.TookMS)*time.Millisecond)); render.Width(line+whole) <= s.width+1 {
		line += whole
	} else {
		line += old + " old"
	}
	if len(speeds) == 0 {
		line += s.of(render.Soft, s.spark(s.speed[""], 20))
	}
	return strings.TrimRight(line, " ")
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

// problems returns the problems of the report, the worst first. If there is no current report, it
// returns only the reason, because the earlier problems may be over.
func (m model) problems() []report.Problem {
	why, joining := errors.AsType[*notReady](m.failed)
	switch {
	case joining:
		what := fmt.Sprintf("nothing to show for %s", report.Elapsed(m.now.Sub(m.since)))
		return []report.Problem{{Severity: report.SeverityWarning, Text: what, Why: why.Message, Remedy: why.Hint}}
	case m.failed != nil:
		return []report.Problem{m.noAnswer()}
	case m.answer == nil:
		return nil
	}
	var all []report.Problem
	for _, p := range m.answer.Report.Problems {
		all = append(all, p.Aged(m.known()))
	}
	return all
}

// noAnswer returns that bakeryd does not answer, and what that means for its lease.
func (m model) noAnswer() report.Problem {
	p := report.Problem{Severity: report.SeverityError, Why: reason(m.failed), Text: fmt.Sprintf("no answer for %s, since %s",
		report.Elapsed(m.now.Sub(m.since)), m.since.Local().Format(time.TimeOnly))}
	if m.answer != nil && m.answer.Report.ThisHost != nil {
		if left := m.left(); left > 0 {
			p.Remedy = "its lease ends in " + report.Left(left) + ": if bakeryd starts before that, it keeps every lock; "
		} else {
			p.Remedy = "its lease is over by now, unless it still runs; "
		}
		if m.now.Sub(m.since) < 5*time.Second && m.left() > m.lease()/2 {
			p.Severity = report.SeverityWarning // it may be a restart
		}
	}
	p.Remedy += "retrying"
	if f, ok := m.failed.(*cli.Failure); ok && f.Hint != "" {
		p.Remedy = f.Hint + "; " + p.Remedy
	}
	return p
}

// reason returns why bakeryd does not answer, without the socket's path, which is long.
func reason(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err.Error()
	}
	return err.Error()
}
