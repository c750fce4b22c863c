package top

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// trouble is something that is not well, and what to do about it.
type trouble struct {
	level      render.Level // bad, warn or soft
	what, todo string
}

// sameAtMost is how many troubles of one kind are told one by one.
const sameAtMost = 5

// judge returns what is not well, the worst first: what the status page says too.
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

// reach is whether there is anything to show, and since when not.
func (j *judgement) reach() {
	m := j.m
	switch {
	case m.failed != nil:
		what, l := fmt.Sprintf("no answer for %s, since %s: %s", render.Seconds(m.now.Sub(m.since).Milliseconds()), m.since.Local().Format(time.TimeOnly), reason(m.failed)), render.Bad
		var todo string
		if m.answer != nil && m.answer.report.ThisHost != nil {
			if left := m.left(); left > 0 {
				todo = "its lease ends in " + render.Seconds(left.Milliseconds()) + ": started before then, bakeryd keeps every lock; "
			} else {
				todo = "its lease is over by now, unless it still runs; "
			}
			if m.now.Sub(m.since) < 5*time.Second && m.left() > m.lease()/2 {
				l = render.Warn // a restart is no trouble
			}
		}
		todo += "asked again all the time"
		if f, ok := m.failed.(*cli.Failure); ok && f.Hint != "" {
			todo = f.Hint + "; " + todo
		}
		j.add(l, what, todo)
	case m.away != nil:
		j.add(render.Warn, fmt.Sprintf("nothing to show for %s: %s", render.Seconds(m.now.Sub(m.since).Milliseconds()), m.away.trouble), m.away.hint)
	}
}

// reason is why bakeryd cannot be asked, without the socket's path, which is the longest part of it.
func reason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err.Error()
	}
	return err.Error()
}

// device is whether the disk can be read.
func (j *judgement) device() {
	m := j.m
	if m.answer.trouble != "" {
		age := m.passed().Milliseconds() + m.answer.read.AgoMS
		j.add(render.Bad, m.answer.trouble, "what is shown of the disk is "+render.Seconds(age)+" old; "+m.answer.hint)
	}
	if lease := m.lease(); m.answer.oldest > max(time.Second, lease/20) {
		l := render.Warn
		if m.answer.oldest > lease/6 {
			l = render.Bad
		}
		j.add(l, "a request to the device has not returned for "+render.Seconds(m.answer.oldest.Milliseconds()), "it hangs, or is overloaded: dmesg, multipath -ll, iostat -x 1")
	}
}

// self is this host's lease.
func (j *judgement) self() {
	m := j.m
	self := m.answer.report.ThisHost
	if self == nil {
		return
	}
	left, lease := m.left(), m.lease()
	switch {
	case self.State == "lost" || left <= 0:
		j.add(render.Bad, "this host has lost its lease: what it held is over", "it joins anew by itself once its commands are gone and the device answers; the log of bakeryd says why")
	case left < lease*6/10:
		l := render.Warn
		if left < lease/3 {
			l = render.Bad
		}
		j.add(l, "the lease of this host ends in "+render.Seconds(left.Milliseconds())+", it was last renewed "+render.Seconds((lease-left).Milliseconds())+" ago",
			"is the device slow or gone? dmesg, multipath -ll")
	}
	if self.State == "leaving" {
		j.add(render.Warn, "this host is leaving the lockspace", "")
	}
}

func (j *judgement) hosts() {
	m := j.m
	policy := m.answer.report.Lockspace.Policy
	told := map[report.Health]int{}
	for _, i := range m.findHosts(nil) {
		h := m.aged(m.answer.report.Hosts[i])
		name, state := show.HostTitle(h.ID, h.Name), show.Health(h)
		if state == report.HealthSilent || state == report.HealthDead && !h.Forgotten {
			if told[state]++; told[state] > sameAtMost {
				continue
			}
		}
		switch {
		case state == report.HealthSilent:
			j.add(render.Bad, name+" is "+show.Seen(h, policy), silentRemedy(h, m.answer.report.ThisHost != nil, policy))
		case h.Unreadable:
			j.add(render.Bad, "the record of "+name+" cannot be read", "its next renewal writes it again; if it is down: bakeryctl check --repair "+m.answer.report.Lockspace.Device)
		case state == report.HealthDead && !h.Forgotten:
			j.add(render.Warn, name+" is dead: its locks are free", fmt.Sprintf("start it again; if it is gone for good: bakeryctl evict %d --forget", h.ID))
		}
		if h.AskedToLeave {
			j.add(render.Warn, name+" was asked to leave, and still renews", "it stops its holders and leaves; nobody acts on it before")
		}
	}
	if n := told[report.HealthSilent] - sameAtMost; n > 0 {
		j.add(render.Bad, render.Count(n, "more host")+" silent", "if they are many, look at the storage first")
	}
	if n := told[report.HealthDead] - sameAtMost; n > 0 {
		j.add(render.Warn, render.Count(n, "more host")+" dead", "")
	}
}

func silentRemedy(h report.Host, watched bool, policy layout.Policy) string {
	evict := fmt.Sprintf("bakeryctl evict %d", h.ID)
	switch {
	case !watched:
		return "whether it is declared dead a bakeryd tells"
	case h.DeadInMS == nil && policy == layout.PolicyManual:
		return "its locks wait for you; once it is off for certain: " + evict
	case h.DeadInMS == nil:
		return "it is not judged by time; once it is off for certain: " + evict
	}
	return "at once, if it is off for certain: " + evict
}

func (j *judgement) locks() {
	stuck, orphans := 0, 0
	for _, l := range j.m.answer.report.Locks {
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
				words := make([]string, min(8, len(pids)))
				for k := range words {
					words[k] = strconv.Itoa(pids[k])
				}
				todo = "it is let go when these end: " + strings.Join(words, ", ")
			}
			j.add(render.Soft, "lock "+show.LockName(l)+" is kept by what is left of a command: its bakeryctl is gone", todo)
		}
	}
	if stuck > sameAtMost {
		j.add(render.Bad, render.Count(stuck-sameAtMost, "more lock")+" stuck", "")
	}
}

func (j *judgement) disk() {
	r := j.m.answer.report
	for _, d := range r.Damaged[:min(sameAtMost, len(r.Damaged))] {
		j.add(render.Bad, "damaged: "+d.What+": "+d.Error, "what to do: bakeryctl check "+r.Lockspace.Device)
	}
	if n := len(r.Damaged) - sameAtMost; n > 0 {
		j.add(render.Bad, render.Count(n, "more record")+" damaged", "bakeryctl check "+r.Lockspace.Device+" lists them")
	}
	for _, w := range r.Lockspace.Warnings {
		j.add(render.Warn, w, "")
	}
}
