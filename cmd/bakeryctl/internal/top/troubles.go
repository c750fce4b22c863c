package top

import (
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
	"github.com/bakeryd/bakeryd/layout"
)

// trouble is a problem and its remedy.
type trouble struct {
	level      render.Level // bad, warn or soft
	what, todo string
}

// sameAtMost is the number of troubles of one kind that are listed individually.
const sameAtMost = 5

// judge returns the problems, the worst first. The status page shows the same ones.
func (m model) judge() []trouble {
	j := &judgement{m: m}
	j.reach()
	if m.answer != nil && !m.stale() {
		j.device()
		j.self()
		j.hosts()
		j.locks()
		j.disk()
	}
	rank := func(l render.Level) int { return slices.Index([]render.Level{render.Bad, render.Warn, render.Soft}, l) }
	slices.SortStableFunc(j.found, func(a, b trouble) int { return rank(a.level) - rank(b.level) })
	return j.found
}

type judgement struct {
	m     model
	found []trouble
}

func (j *judgement) add(l render.Level, what, todo string) {
	j.found = append(j.found, trouble{l, what, todo})
}

// reach adds that bakeryd does not answer, or has no report.
func (j *judgement) reach() {
	m := j.m
	switch {
	case m.failed != nil:
		what, l := fmt.Sprintf("no answer for %s, since %s: %s", render.Seconds(m.now.Sub(m.since).Milliseconds()), m.since.Local().Format(time.TimeOnly), reason(m.failed)), render.Bad
		var todo string
		if m.answer != nil && m.answer.Report.ThisHost != nil {
			if left := m.left(); left > 0 {
				todo = "its lease ends in " + render.Seconds(left.Milliseconds()) + ": if bakeryd starts before that, it keeps every lock; "
			} else {
				todo = "its lease is over by now, unless it still runs; "
			}
			if m.now.Sub(m.since) < 5*time.Second && m.left() > m.lease()/2 {
				l = render.Warn // it may be a restart
			}
		}
		todo += "retrying"
		if f, ok := m.failed.(*cli.Failure); ok && f.Hint != "" {
			todo = f.Hint + "; " + todo
		}
		j.add(l, what, todo)
	case m.away != nil:
		j.add(render.Warn, fmt.Sprintf("nothing to show for %s: %s", render.Seconds(m.now.Sub(m.since).Milliseconds()), m.away.Message), m.away.Hint)
	}
}

// reason returns why bakeryd does not answer, without the socket's path, which is long.
func reason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err.Error()
	}
	return err.Error()
}

// device adds that the disk cannot be read, or a request hangs.
func (j *judgement) device() {
	m := j.m
	if e := m.answer.Error; e != nil {
		age := m.passed().Milliseconds() + m.answer.Read.AgoMS
		j.add(render.Bad, e.Message, "the data shown from the disk is "+render.Seconds(age)+" old; "+e.Hint)
	}
	self := m.answer.Report.ThisHost
	if self == nil || self.IO == nil {
		return
	}
	if lease := m.lease().Milliseconds(); self.IO.OldestMS > max(1000, lease/20) {
		l := render.Warn
		if self.IO.OldestMS > lease/6 {
			l = render.Bad
		}
		j.add(l, "a request to the device has not returned for "+render.Seconds(self.IO.OldestMS), "it hangs or is overloaded: run dmesg, multipath -ll, iostat -x 1")
	}
}

// self adds that the lease of this host is lost or at risk.
func (j *judgement) self() {
	m := j.m
	self := m.answer.Report.ThisHost
	if self == nil {
		return
	}
	left, lease := m.left(), m.lease()
	switch level := leaseLevel(left, lease); {
	case self.State == "lost" || left <= 0:
		j.add(render.Bad, "this host has lost its lease and its locks", "it rejoins automatically when its commands have ended and the device answers; see the log of bakeryd")
	case level != render.Good:
		j.add(level, "the lease of this host ends in "+render.Seconds(left.Milliseconds())+", it was last renewed "+render.Seconds((lease-left).Milliseconds())+" ago",
			"check the device: dmesg, multipath -ll")
	}
	if self.State == "leaving" {
		j.add(render.Warn, "this host is leaving the lockspace", "")
	}
}

func (j *judgement) hosts() {
	m := j.m
	policy := m.answer.Report.Lockspace.Policy
	counts := map[report.Health]int{}
	for _, i := range m.findHosts(nil) {
		h := m.aged(m.answer.Report.Hosts[i])
		name, state := show.HostTitle(h.ID, h.Name), show.Health(h)
		if state == report.HealthSilent || state == report.HealthDead && !h.Forgotten {
			if counts[state]++; counts[state] > sameAtMost {
				continue
			}
		}
		switch {
		case state == report.HealthSilent:
			j.add(render.Bad, name+" is "+show.Seen(h, policy), silentRemedy(h, m.answer.Report.ThisHost != nil, policy))
		case h.Unreadable:
			j.add(render.Bad, "the record of "+name+" cannot be read", "its next renewal repairs that; if the host is down, run bakeryctl check --repair "+m.answer.Report.Lockspace.Device)
		case state == report.HealthDead && !h.Forgotten:
			j.add(render.Warn, name+" is dead: its locks are free", fmt.Sprintf("start it again; if it will not return, run bakeryctl evict %d --forget", h.ID))
		}
		if h.AskedToLeave {
			j.add(render.Warn, name+" was asked to leave, and still renews", "it stops its holders and leaves; until then its locks stay held")
		}
	}
	if n := counts[report.HealthSilent] - sameAtMost; n > 0 {
		j.add(render.Bad, render.Count(n, "more host")+" silent", "if many hosts are silent, check the storage first")
	}
	if n := counts[report.HealthDead] - sameAtMost; n > 0 {
		j.add(render.Warn, render.Count(n, "more host")+" dead", "")
	}
}

func silentRemedy(h report.Host, watched bool, policy layout.Policy) string {
	evict := fmt.Sprintf("bakeryctl evict %d", h.ID)
	switch {
	case !watched:
		return "run top against a bakeryd to see whether it is declared dead"
	case h.DeadInMS == nil && policy == layout.PolicyManual:
		return "its locks are blocked until you evict it; if you are certain that it is off: " + evict
	case h.DeadInMS == nil:
		return "it is not declared dead by time; if you are certain that it is off: " + evict
	}
	return "if you are certain that it is off: " + evict
}

func (j *judgement) locks() {
	stuck, orphans := 0, 0
	for _, l := range j.m.answer.Report.Locks {
		if l.Stuck != "" {
			if stuck++; stuck <= sameAtMost {
				j.add(render.Bad, "lock "+show.LockName(l)+" is stuck: "+l.Stuck, "")
			}
			continue
		}
		i := slices.IndexFunc(l.Holders, func(h report.Holder) bool { return h.Orphan })
		if i < 0 {
			continue
		}
		if orphans++; orphans <= sameAtMost {
			todo := ""
			if pids := l.Holders[i].Processes; len(pids) > 0 {
				todo = "it is released when these processes end: " + strings.ReplaceAll(pidList(pids, 8), " ", ", ")
			}
			j.add(render.Soft, "lock "+show.LockName(l)+" is kept by remaining processes of a command: its bakeryctl has ended", todo)
		}
	}
	if stuck > sameAtMost {
		j.add(render.Bad, render.Count(stuck-sameAtMost, "more lock")+" stuck", "")
	}
}

// pidList returns at most most pids, separated by spaces.
func pidList(pids []int, most int) string {
	return strings.Trim(fmt.Sprint(pids[:min(most, len(pids))]), "[]")
}

func (j *judgement) disk() {
	r := j.m.answer.Report
	for _, d := range r.Damaged[:min(sameAtMost, len(r.Damaged))] {
		j.add(render.Bad, "damaged: "+d.What+": "+d.Error, "run bakeryctl check "+r.Lockspace.Device)
	}
	if n := len(r.Damaged) - sameAtMost; n > 0 {
		j.add(render.Bad, render.Count(n, "more record")+" damaged", "run bakeryctl check "+r.Lockspace.Device+" to list them")
	}
	for _, w := range r.Lockspace.Warnings {
		j.add(render.Warn, w, "")
	}
}
