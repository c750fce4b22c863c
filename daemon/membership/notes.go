package membership

import (
	"encoding/hex"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// notedHost is the last recorded state of a host.
type notedHost struct {
	incarnation uint64
	state       layout.HostState
}

// noteJoined begins the host's journal, before any client is served. Called with mu held.
func (mb *Member) noteJoined(a lease.Joined) {
	mb.notes.Keep(mb.ids.EventsPath(a.ID), events.Self{Host: a.ID, Name: mb.ids.Name, Incarnation: a.Incarnation})
	kind := events.Joined
	if a.Resumed {
		kind = events.Resumed
	}
	e := events.Event{Kind: kind}
	if boot := hostid.BootID(); boot != [16]byte{} {
		e.Boot = hex.EncodeToString(boot[:])
	}
	mb.notes.Add(e)
}

// note records the other actions of the lease.
func (mb *Member) note(a lease.Action) {
	if mb.notes == nil {
		return
	}
	switch a := a.(type) {
	case lease.Lost:
		reason := ""
		if a.Reason != nil {
			reason = a.Reason.Error()
		}
		if io := mb.trouble.Load(); io != nil {
			reason += ": " + io.err.Error()
		}
		mb.notes.Add(events.Event{Kind: events.Lost, Reason: reason})
	case lease.Left:
		if mb.Moments().Deadline != 0 { // it was live
			mb.notes.Add(events.Event{Kind: events.Left})
		}
	case lease.Asked:
		mb.notes.Add(events.Event{Kind: events.Asked, ByHost: a.By, ByHostName: a.Name})
	case lease.Wished:
		mb.noteOf(events.Event{Kind: events.Asked, Host: a.Host, HostName: a.Name, Incarnation: a.Incarnation})
	case lease.Declared:
		hosts, _ := mb.Known()
		e := events.Event{Kind: events.Dead, Host: a.Host, HostName: a.Name, Incarnation: a.Incarnation, ByHost: a.By, ByHostName: hosts[a.By-1].Name}
		if a.Verdict == layout.VerdictForgotten {
			e.Reason = "forgotten: another machine may have its id"
		}
		mb.notes.Add(e)
	}
}

// noteOf records an event about another host.
func (mb *Member) noteOf(e events.Event) {
	if mb.notes == nil {
		return
	}
	e.ByHost, e.ByHostName = mb.ID(), mb.ids.Name
	mb.notes.Add(e)
}

func (mb *Member) noteOther(kind events.Kind, id int, h *lease.Host, reason string) {
	mb.noteOf(events.Event{Kind: kind, Host: id, HostName: h.Name, Incarnation: h.Incarnation, Reason: reason})
}

func (mb *Member) noteFenced(a lease.Fence) {
	mb.noteOf(events.Event{Kind: events.Fenced, Host: a.Host, HostName: a.Name, Incarnation: a.Incarnation})
}

// noteHosts records which hosts have joined and left since the last read of the host table. The
// first call records nothing, because it has no earlier state. Called with noting held.
func (mb *Member) noteHosts(hosts []lease.Host) {
	if mb.notes == nil {
		return
	}
	first, self := mb.noted == nil, mb.ID()
	if more := len(hosts) - len(mb.noted); more > 0 {
		mb.noted = append(mb.noted, make([]notedHost, more)...)
	}
	for i := range hosts {
		h, was := &hosts[i], mb.noted[i]
		mb.noted[i] = notedHost{h.Incarnation, h.State}
		if first || i+1 == self || mb.noted[i] == was {
			continue
		}
		switch h.State {
		case layout.StateLive:
			mb.noteOther(events.Joined, i+1, h, "")
		case layout.StateLeft:
			if was.incarnation == h.Incarnation && was.state == layout.StateLive {
				mb.noteOther(events.Left, i+1, h, "")
			}
		}
	}
}
