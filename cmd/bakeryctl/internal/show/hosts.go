package show

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// HostTable writes a line for each host that ever joined.
func HostTable(w io.Writer, r *report.Report, p render.Paint) {
	if len(r.Hosts) == 0 {
		fmt.Fprintf(w, "no host ever joined\n")
		return
	}
	if r.ThisHost == nil {
		fmt.Fprintf(w, "read from the device; whether a host is alive does not show there\n\n")
	}
	fmt.Fprintf(w, "ID\tNAME\t%s\tSEEN\tWATCHDOG", p.Cell(render.Plain, "STATE"))
	if slices.ContainsFunc(r.Hosts, func(h report.Host) bool { return len(h.Verdicts) > 0 }) {
		fmt.Fprintf(w, "\tVERDICTS")
	}
	fmt.Fprint(w, p.Heading())
	for _, h := range r.Hosts {
		name := text.Printable(h.Name)
		if r.ThisHost != nil && r.ThisHost.ID == h.ID {
			name += " (this host)"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", h.ID, name, p.Cell(HostLevel(h), HostState(h)), Seen(h, r.Lockspace.Policy), Watchdog(h), Verdicts(h, r.Hosts))
	}
}

// Health is that of a report, also of one by a bakeryd that did not tell it yet.
func Health(h report.Host) report.Health {
	switch {
	case h.Health != "":
		return h.Health
	case h.Dead:
		return report.HealthDead
	}
	return report.Health(h.State.String())
}

// HostState is a host's health and what else there is to know of it.
func HostState(h report.Host) string {
	state := string(Health(h))
	if h.Forgotten && h.Dead {
		state += ", forgotten"
	}
	if h.AskedToLeave {
		state += ", asked to leave"
	}
	if h.Unreadable {
		state += ", unreadable"
	}
	return state
}

// HostLevel is how bad it is what HostState says.
func HostLevel(h report.Host) render.Level {
	switch state := Health(h); {
	case state == report.HealthSilent, h.Unreadable, state == report.HealthDead && !h.Forgotten:
		return render.Bad
	case state == report.HealthJoining, h.AskedToLeave:
		return render.Warn
	case state == report.HealthLive:
		return render.Good
	}
	return render.Soft
}

// Seen says when a host was last seen to renew, and what comes of it if it is not seen again.
func Seen(h report.Host, policy layout.Policy) string {
	switch {
	case h.SilentMS == nil:
		return "-"
	case Health(h) == report.HealthSilent:
		return "silent for " + render.Seconds(*h.SilentMS) + outlook(h, policy)
	}
	return "renewed " + render.Seconds(*h.SilentMS) + " ago"
}

// outlook says what becomes of a silent host, in a part of a sentence.
func outlook(h report.Host, policy layout.Policy) string {
	switch fence := policy == layout.PolicyFence; {
	case h.DeadInMS == nil:
		return ""
	case *h.DeadInMS <= 0 && fence:
		return ", being fenced"
	case *h.DeadInMS <= 0:
		return ", being declared dead"
	case fence:
		return ", fenced in " + render.Seconds(*h.DeadInMS)
	}
	return ", dead in " + render.Seconds(*h.DeadInMS)
}

// Watchdog says within how many seconds the watchdog of a host resets it.
func Watchdog(h report.Host) string {
	if !h.WatchdogArmed {
		return "-"
	}
	return fmt.Sprintf("armed %d s", h.WatchdogSeconds)
}

// Verdicts are what a host publishes of others. An incarnation is named if it is not the one that
// the table shows.
func Verdicts(h report.Host, hosts []report.Host) string {
	var all []string
	for _, v := range h.Verdicts {
		text := fmt.Sprintf("%v %d", v.Kind, v.Host)
		if of := HostByID(hosts, v.Host); of == nil || of.Incarnation != v.Incarnation {
			text += fmt.Sprintf("/%016x", v.Incarnation)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// HostByID returns the host with that id, nil if there is none.
func HostByID(hosts []report.Host, id int) *report.Host {
	for i := range hosts {
		if hosts[i].ID == id {
			return &hosts[i]
		}
	}
	return nil
}

// FindHost finds a host by its id or name. Of several with one name it is the one that has not
// left, if there is but one.
func FindHost(r *report.Report, name string) (*report.Host, error) {
	if id, err := strconv.Atoi(name); err == nil {
		if h := HostByID(r.Hosts, id); h != nil {
			return h, nil
		}
		for _, d := range r.Damaged {
			if d.Kind == lockspace.KindHost && d.Host == id {
				return nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("the record of host %d cannot be read, and this host never read it: %s", id, d.Error),
					Hint: fmt.Sprintf("bakeryctl check --repair writes it, unless bakeryd runs on host %d", id)}
			}
		}
	}
	var all, present []*report.Host
	for i := range r.Hosts {
		if h := &r.Hosts[i]; h.Name == name {
			all = append(all, h)
			if Health(*h) != report.HealthLeft {
				present = append(present, h)
			}
		}
	}
	if len(present) > 0 {
		all = present
	}
	switch len(all) {
	case 0:
		return nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("no host %s has joined", text.Printable(name)), Hint: "bakeryctl hosts shows those that have"}
	case 1:
		return all[0], nil
	}
	var ids []string
	for _, h := range all {
		ids = append(ids, strconv.Itoa(h.ID))
	}
	return nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("%s is the name of hosts %s", text.Printable(name), strings.Join(ids, ", ")), Hint: "give the id"}
}

// HostLabel names a host in a sentence: host 3 (db3).
func HostLabel(h *report.Host) string {
	if h.Name == "" {
		return fmt.Sprintf("host %d", h.ID)
	}
	return fmt.Sprintf("host %d (%s)", h.ID, text.Printable(h.Name))
}

// HostTitle names a host as the status page does: db3 (3).
func HostTitle(id int, name string) string {
	if name == "" {
		return fmt.Sprintf("host %d", id)
	}
	return fmt.Sprintf("%s (%d)", text.Printable(name), id)
}

// hostText names a host in a column: 3 db3.
func hostText(id int, name string) string {
	if name == "" {
		return strconv.Itoa(id)
	}
	return fmt.Sprintf("%d %s", id, text.Printable(name))
}
