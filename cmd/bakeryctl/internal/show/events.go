package show

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// EventTable writes one line per event to Out as it arrives. Its columns grow with their contents.
type EventTable struct {
	Out                  io.Writer
	Paint                render.Paint
	Names                HostNames // of the events so far; or of all, if they were added before
	lockWidth, hostWidth int
}

// HostNames has the ids of hosts by name, which need not be unique. Its zero value has none.
type HostNames struct{ ids map[string][]int }

// Add adds the hosts that an event names.
func (n *HostNames) Add(e *events.Event) {
	n.add(e.Host, e.HostName)
	n.add(e.ByHost, e.ByHostName)
	for i := range e.Ahead {
		n.add(e.Ahead[i].Host, e.Ahead[i].HostName)
	}
}

func (n *HostNames) add(id int, name string) {
	if ids := n.ids[name]; name != "" && len(ids) < 2 && !slices.Contains(ids, id) {
		if n.ids == nil {
			n.ids = map[string][]int{}
		}
		n.ids[name] = append(ids, id)
	}
}

// Of returns the name of a host, with its id if another host has that name, and "-" if there is
// none.
func (n *HostNames) Of(id int, name string) string {
	if len(n.ids[name]) > 1 {
		return text.HostName(id, name)
	}
	return EventHost(id, name)
}

// AddHosts adds hosts.
func (n *HostNames) AddHosts(all []report.Host) {
	for i := range all {
		n.add(all[i].ID, all[i].Name)
	}
}

// Host returns the host that an event is about.
func (n *HostNames) Host(e *events.Event) string { return n.Of(e.Host, e.HostName) }

// KindWidth is the width of the longest kind.
const KindWidth = len("disk lost")

// Row writes the line of an event.
func (t *EventTable) Row(e *events.Event) error {
	lock := "-" // an event of a host
	if e.Lock != "" {
		lock = text.Printable(e.Lock)
	}
	t.Names.Add(e)
	host := t.Names.Host(e)
	t.lockWidth = max(8, t.lockWidth, utf8.RuneCountInString(lock))
	t.hostWidth = max(4, t.hostWidth, utf8.RuneCountInString(host))
	kind := t.Paint.Of(EventLevel(e.Kind), fmt.Sprintf("%-*s", KindWidth, EventKind(e)))
	line := fmt.Sprintf("%s  %-*s  %s  %-*s  %s", EventTime(e.At), t.lockWidth, lock, kind, t.hostWidth, host,
		strings.Join(EventDetails(e, &t.Names), "  "))
	_, err := fmt.Fprintln(t.Out, strings.TrimRight(line, " "))
	return err
}

// Rows writes the lines of events. Hosts with one name are told apart from the first line on.
func (t *EventTable) Rows(all []events.Event) error {
	for i := range all {
		t.Names.Add(&all[i])
	}
	for i := range all {
		if err := t.Row(&all[i]); err != nil {
			return err
		}
	}
	return nil
}

// EventKind returns the kind of an event in words.
func EventKind(e *events.Event) string {
	return strings.ReplaceAll(text.Printable(string(e.Kind)), "_", " ")
}

// EventLevel returns the severity of an event kind.
func EventLevel(k events.Kind) render.Level {
	switch k {
	case events.Dead, events.Lost, events.Kill, events.Remains, events.Fenced:
		return render.Bad
	case events.AtRisk, events.Refused, events.Timeout, events.Orphan, events.Gap, events.Asked, events.DiskLost, events.Replaced:
		return render.Warn
	case events.Enter, events.Joined, events.Seen, events.Resumed, events.DiskBack:
		return render.Good
	}
	return render.Plain
}

// EventHost returns the name of a host of an event, or "-" if there is none.
func EventHost(id int, name string) string {
	switch {
	case name != "":
		return text.Printable(name)
	case id != 0:
		return fmt.Sprintf("host %d", id)
	}
	return "-"
}

// EventDetails returns the non-empty cells that follow the host.
func EventDetails(e *events.Event, n *HostNames) (cells []string) {
	if text := clientText(e.PID, e.Command); text != "" {
		cells = append(cells, text)
	}
	if e.Mode == "shared" || e.Kind == events.ModeSet {
		cells = append(cells, text.Printable(e.Mode))
	}
	if e.Token != 0 {
		cells = append(cells, "token "+e.Token.String())
	} else if e.Ticket != 0 {
		cells = append(cells, "ticket "+e.Ticket.String())
	}
	if e.HeldMS > 0 || e.Kind == events.Exit {
		cells = append(cells, "held "+render.Span(e.HeldMS))
	}
	if text := waited(e, n); text != "" {
		cells = append(cells, text)
	}
	if e.ByHost != 0 {
		cells = append(cells, "by "+n.Of(e.ByHost, e.ByHostName))
	}
	if e.Missed > 0 {
		verb := " are missing"
		if e.Missed == 1 {
			verb = " is missing"
		}
		cells = append(cells, render.Count(int(min(e.Missed, 1<<30)), "event")+verb)
	}
	if e.Reason != "" {
		cells = append(cells, text.PrintableLine(e.Reason))
	}
	return cells
}

func clientText(pid int, command string) string {
	switch {
	case pid == 0:
		return text.PrintableLine(command)
	case command == "":
		return fmt.Sprintf("pid %d", pid)
	}
	return fmt.Sprintf("pid %d %s", pid, text.PrintableLine(command))
}

// waited returns how long a client waited and for which holders and waiters.
func waited(e *events.Event, n *HostNames) string {
	var words, ahead []string
	if e.WaitedMS > 0 {
		words = append(words, "waited "+render.Span(e.WaitedMS))
	}
	for _, p := range e.Ahead {
		ahead = append(ahead, aheadText(e, &p, n))
	}
	if len(ahead) > 0 {
		words = append(words, "behind "+strings.Join(ahead, ", "))
	}
	if e.AheadCount > len(e.Ahead) {
		words = append(words, fmt.Sprintf("(%d ahead in all)", e.AheadCount))
	}
	return strings.Join(words, " ")
}

// aheadText describes a host, or a client of the same host, that was ahead.
func aheadText(e *events.Event, p *events.Peer, n *HostNames) string {
	client, phase := clientText(p.PID, p.Command), text.PrintableLine(p.Phase)
	if p.Host == e.Host {
		if client == "" {
			client = "another"
		}
		return fmt.Sprintf("%s (%s here)", client, phase)
	}
	if client != "" {
		phase += " by " + client
	}
	return fmt.Sprintf("%s (%s)", n.Of(p.Host, p.HostName), phase)
}

// EventTime formats a time in the local time zone, to the millisecond.
func EventTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }
