package membership

import (
	"cmp"
	"encoding/hex"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// notedHost is the last recorded state of a host.
type notedHost struct {
	incarnation uint64
	state       layout.HostState
	silent      uint64 // the incarnation that was reported silent; 0 if none
}

// noteJoined begins the host's journal, before any client is served. Called with mu held.
func (mb *Member) noteJoined(a lease.Joined) {
	mb.cfg.Events.Keep(mb.cfg.Identity.EventsPath(a.ID), events.Self{Host: a.ID, Name: mb.cfg.Identity.Name, Incarnation: text.Hex(a.Incarnation)})
	kind := events.Joined
	if a.Resumed {
		kind = events.Resumed
	}
	e := events.Event{Kind: kind}
	if mb.boot != [16]byte{} {
		e.Boot = hex.EncodeToString(mb.boot[:])
	}
	mb.cfg.Events.Add(e)
}

// warnOfName logs the live hosts that have the name of this one: a person cannot tell them apart.
func (mb *Member) warnOfName(own int) {
	hosts, _ := mb.Known()
	for i, h := range hosts {
		if i+1 != own && h.State == layout.StateLive && !h.Gone && h.Name == mb.cfg.Identity.Name {
			mb.cfg.Log.Warn("another live host has the name of this one", "host", i+1, "host_name", h.Name,
				"remedy", "set --name or BAKERYD_NAME on one of them, and restart its bakeryd")
		}
	}
}

// report records an action in the event journal, in the metrics and in the log. carryOut counts
// renewals, because it knows their duration.
func (mb *Member) report(a lease.Action) {
	switch a := a.(type) {
	case lease.Delayed:
		d := mb.delayOf(a)
		mb.delayed.Store(d)
		var attrs []any
		if d.until != 0 {
			attrs = []any{"join_in", mb.secondsUntil(d.until)}
		}
		mb.cfg.Log.Warn("joining takes longer, waiting", append(attrs, "reason", d.reason)...)
	case lease.Joined:
		mb.cfg.Tally.Joins.Add(1)
		if a.Resumed {
			mb.cfg.Tally.Resumed.Add(1)
		}
		mb.cfg.Log.Info("live in lockspace", "lockspace", cmp.Or(mb.cfg.SB.Name, mb.cfg.SB.UUID.String()), "host", a.ID,
			"incarnation", text.Hex(a.Incarnation), "resumed", a.Resumed)
		if mb.cfg.WarnOfName {
			mb.warnOfName(a.ID)
		}
		mb.keepTerm()
	case lease.Renewed:
		mb.keepTerm()
	case lease.Lost:
		err := mb.Err()
		reason, attrs := err.Error(), []any{"err", err}
		if io := mb.trouble.Load(); io != nil {
			reason += ": " + io.err.Error()
			attrs = append(attrs, "io_err", io.err)
		}
		mb.cfg.Events.Add(events.Event{Kind: events.Lost, Reason: reason})
		mb.cfg.Tally.LeasesLost.Add(1)
		mb.cfg.Log.Error("lease lost, every hold is over", attrs...)
	case lease.Left:
		if mb.Moments().Deadline != 0 { // it was live
			mb.cfg.Events.Add(events.Event{Kind: events.Left})
		}
	case lease.Asked:
		mb.cfg.Events.Add(events.Event{Kind: events.Asked, ByHost: a.By, ByHostName: a.Name})
	case lease.Wished:
		mb.noteOther(events.Asked, a.Host, a.Name, a.Incarnation, "")
		mb.cfg.Log.Warn("host asked to leave", "host", a.Host, "host_name", a.Name, "incarnation", text.Hex(a.Incarnation))
	case lease.Declared:
		mb.reportDeath(a)
	}
}

func (mb *Member) reportDeath(a lease.Declared) {
	hosts, _ := mb.Known()
	e := events.Event{Kind: events.Dead, Host: a.Host, HostName: a.Name, Incarnation: text.Hex(a.Incarnation), ByHost: a.By, ByHostName: hosts[a.By-1].Name}
	live := mb.Live(mb.cfg.Clock.Now())
	switch {
	case a.Verdict == layout.VerdictForgotten:
		e.Reason = "forgotten: another machine may have its id"
	case !live:
		e.Reason = "before this host joined"
	}
	mb.cfg.Events.Add(e)
	switch {
	case a.Again, !live: // the first read may report deaths of long ago
	case a.By == mb.ID():
		mb.cfg.Tally.DeathsDeclared.Add(1)
	default:
		mb.cfg.Tally.DeathsLearned.Add(1)
	}
	mb.cfg.Log.Warn("host declared dead", "host", a.Host, "host_name", a.Name, "incarnation", text.Hex(a.Incarnation),
		"by_host", a.By, "verdict", a.Verdict)
}

// noteOther records an event about another host.
func (mb *Member) noteOther(kind events.Kind, host int, name string, incarnation uint64, reason string) {
	mb.cfg.Events.Add(events.Event{Kind: kind, Host: host, HostName: name, Incarnation: text.Hex(incarnation), Reason: reason,
		ByHost: mb.ID(), ByHostName: mb.cfg.Identity.Name})
}

// noteHosts records which hosts have joined and left since the last read of the host table. The
// first call records nothing, because it has no earlier state. Called with noting set.
func (mb *Member) noteHosts(hosts []lease.Host) {
	first, self := mb.noted == nil, mb.ID()
	if more := len(hosts) - len(mb.noted); more > 0 {
		mb.noted = append(mb.noted, make([]notedHost, more)...)
	}
	for i := range hosts {
		h, was := &hosts[i], mb.noted[i]
		mb.noted[i].incarnation, mb.noted[i].state = h.Incarnation, h.State
		if first || i+1 == self || mb.noted[i] == was {
			continue
		}
		switch h.State {
		case layout.StateLive:
			mb.noteOther(events.Joined, i+1, h.Name, h.Incarnation, "")
		case layout.StateLeft:
			if was.incarnation == h.Incarnation && was.state == layout.StateLive {
				mb.noteOther(events.Left, i+1, h.Name, h.Incarnation, "")
			}
		}
	}
}
