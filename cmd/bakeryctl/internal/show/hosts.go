package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// HostTable writes one line for each host. Hosts that have left are named in one line, unless all
// is set.
func HostTable(w io.Writer, r *report.Report, all bool, p render.Paint) {
	if len(r.Hosts) == 0 {
		fmt.Fprintf(w, "no host ever joined\n")
		return
	}
	if r.ThisHost == nil {
		fmt.Fprintf(w, "read from the device: a host that is shown as live may be dead\n\n")
	}
	shown, left := r.Hosts, ""
	if !all {
		shown, left = present(r.Hosts)
	}
	head := "ID\tNAME\tSTATE\tSEEN\tWATCHDOG"
	if slices.ContainsFunc(r.Hosts, func(h report.Host) bool { return len(h.Verdicts) > 0 }) {
		head += "\tVERDICTS"
	}
	if len(shown) > 0 {
		fmt.Fprintln(w, p.Of(render.Head, head))
	}
	for _, h := range shown {
		name := text.Printable(h.Name)
		if r.IsThisHost(h.ID) {
			name += " (this host)"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", h.ID, name, p.Of(HostLevel(h), HostState(h)),
			Seen(h), Watchdog(h), Verdicts(r, h))
	}
	fmt.Fprint(w, left)
}

// present returns the hosts that have not left, and a line that names those that have.
func present(hosts []report.Host) (shown []report.Host, left string) {
	var names []string
	for _, h := range hosts {
		if h.Health == report.HealthLeft {
			names = append(names, hostText(h.ID, h.Name))
		} else {
			shown = append(shown, h)
		}
	}
	if len(names) > 0 {
		left = fmt.Sprintf("left: %s (bakeryctl hosts --all)\n", listed(names))
	}
	return shown, left
}

// Complete adds what the report of an older bakeryd does not have: the health of hosts, the words
// for their silence, and problems.
func Complete(r *report.Report) {
	for i := range r.Hosts {
		switch h := &r.Hosts[i]; {
		case h.Health != "":
		case h.Dead:
			h.Health = report.HealthDead
		default:
			h.Health = report.Health(h.State.String())
		}
	}
	if slices.ContainsFunc(r.Hosts, func(h report.Host) bool { return h.Health == report.HealthSilent && h.Silence == "" }) {
		r.DescribeSilence()
	}
	if r.Problems == nil {
		r.Judge()
	}
}

// HostState returns a host's health and its other conditions.
func HostState(h report.Host) string {
	state := string(h.Health)
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

// HostLevel returns the severity of HostState.
func HostLevel(h report.Host) render.Level {
	switch state := h.Health; {
	case state == report.HealthSilent, state == report.HealthLost, h.Unreadable, state == report.HealthDead && !h.Forgotten:
		return render.Bad
	case state == report.HealthJoining, state == report.HealthUnknown, h.AskedToLeave:
		return render.Warn
	case state == report.HealthLive:
		return render.Good
	}
	return render.Soft
}

// Seen returns when the record of a host last changed, and what happens if a live host does not renew
// again.
func Seen(h report.Host) string {
	if h.Silence != "" {
		return text.PrintableLine(h.Silence)
	}
	if h.SilentMS == nil {
		return "-"
	}
	since := report.Elapsed(time.Duration(*h.SilentMS) * time.Millisecond)
	switch h.Health {
	case report.HealthJoining:
		return "no change for " + since
	case report.HealthDead:
		return "no renewal for " + since
	case report.HealthLeft:
		return "left " + since + " ago"
	}
	return "renewed " + render.Seconds(*h.SilentMS) + " ago"
}

// Watchdog returns the timeout of a host's watchdog, or "-".
func Watchdog(h report.Host) string {
	if !h.WatchdogArmed {
		return "-"
	}
	return fmt.Sprintf("armed %d s", h.WatchdogMS/1000)
}

// Verdicts returns the verdicts that a host publishes. It names an incarnation if the table shows
// another one.
func Verdicts(r *report.Report, h report.Host) string {
	var all []string
	for _, v := range h.Verdicts {
		text := fmt.Sprintf("%v %d", v.Kind, v.Host)
		if of := r.HostByID(v.Host); of == nil || of.Incarnation != v.Incarnation {
			text += "/" + v.Incarnation.String()
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// FindHost returns the host with an id or name. If several hosts have the name, it returns the only
// one that has not left, or an error.
func FindHost(r *report.Report, name string) (*report.Host, error) {
	if id, err := strconv.Atoi(name); err == nil {
		if h := r.HostByID(id); h != nil {
			return h, nil
		}
		for _, d := range r.Damaged {
			if d.Kind == lockspace.KindHost && d.Host == id {
				return nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("the record of host %d cannot be read, and this host never read it: %s", id, d.Error),
					Hint: fmt.Sprintf("if no bakeryd runs on host %d, run bakeryctl check --repair", id)}
			}
		}
	}
	all := only(r.Hosts, func(h report.Host) bool { return h.Name == name })
	if present := only(all, func(h report.Host) bool { return h.Health != report.HealthLeft }); len(present) > 0 {
		all = present
	}
	switch len(all) {
	case 0:
		return nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("no host %s has joined", text.Printable(name)), Hint: "run bakeryctl hosts to list the hosts"}
	case 1:
		return &all[0], nil
	}
	var ids []string
	for _, h := range all {
		ids = append(ids, strconv.Itoa(h.ID))
	}
	return nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("the name %s is ambiguous: hosts %s have it", text.Printable(name), strings.Join(ids, ", ")), Hint: "use the id"}
}

// HostLabel formats a host for a sentence: host 3 (db3).
func HostLabel(h *report.Host) string { return text.HostName(h.ID, h.Name) }

// HostTitle formats a host as the status page does: db3 (3).
func HostTitle(id int, name string) string {
	if name == "" {
		return fmt.Sprintf("host %d", id)
	}
	return fmt.Sprintf("%s (%d)", text.Printable(name), id)
}

// hostText formats a host for a column: 3 db3.
func hostText(id int, name string) string {
	if name == "" {
		return strconv.Itoa(id)
	}
	return fmt.Sprintf("%d %s", id, text.Printable(name))
}

// evictable returns an error if the host cannot be evicted.
func evictable(r *report.Report, h *report.Host, forget bool) error {
	no := func(what, hint string) error {
		return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("%s %s", HostLabel(h), what), Hint: hint}
	}
	switch h.Health {
	case report.HealthLeft:
		return no("has left: its locks are free, there is nothing to evict", "")
	case report.HealthJoining:
		return no("is joining: it holds nothing", fmt.Sprintf("let it finish; if its process has ended, start bakeryd on its machine with --host-id %d: "+
			"that takes the id, and frees it when it leaves", h.ID))
	case report.HealthDead:
		if h.Forgotten {
			return no("is declared dead and forgotten already: its locks are free", "")
		}
		if !forget {
			return no("is declared dead already: its locks are free", "use --forget to free its id for other machines")
		}
	}
	if forget && r.IsThisHost(h.ID) {
		return no("is this host, which cannot forget itself", "stop its bakeryd, or evict it from another host")
	}
	return nil
}

// Eviction writes the state of a host, and the effect of its eviction. It returns an error if the
// host cannot be evicted.
func Eviction(out io.Writer, r *report.Report, h *report.Host, forget bool) error {
	if err := evictable(r, h, forget); err != nil {
		return err
	}
	var holds, waits []string
	for _, l := range r.Locks {
		if slices.ContainsFunc(l.Holders, func(x report.Holder) bool { return x.Host == h.ID }) {
			holds = append(holds, LockName(l))
		}
		if slices.ContainsFunc(l.Queue, func(q report.Queued) bool { return q.Host == h.ID }) {
			waits = append(waits, LockName(l))
		}
	}
	return render.WriteTable(out, func(w io.Writer) {
		fmt.Fprintf(w, "%s\n  state\t%s\n", HostLabel(h), HostState(*h))
		fmt.Fprintf(w, "  seen\t%s\n  incarnation\t%v\n", Seen(*h), h.Incarnation)
		fmt.Fprintf(w, "  watchdog\t%s\n  holds\t%s\n", Watchdog(*h), listed(holds))
		fmt.Fprintf(w, "  waits for\t%s\n%s\n", listed(waits), consequence(r, h, forget))
	})
}

// listed joins the names of at most 10 locks.
func listed(names []string) string {
	const most = 10
	if n := len(names); n > most {
		names = append(names[:most:most], fmt.Sprintf("%d more", n-most))
	}
	return cmp.Or(strings.Join(names, ", "), "-")
}

const (
	cutOff   = "Make sure that it is powered off or cut off from the disk: if it only hangs, it may still write."
	askText  = "It still renews its lease, so it is asked to leave: its bakeryd stops the holders of its locks,\nand no other host acquires them before it has left."
	deadText = "It is declared dead immediately: its locks pass to the next waiters NOW.\n" + cutOff
	idText   = "Its id becomes free for other machines."
)

func consequence(r *report.Report, h *report.Host, forget bool) string {
	switch kind := h.Health; {
	case r.IsThisHost(h.ID):
		return "It is this host: its bakeryd stops the holders of its locks, then leaves and ends."
	case kind == report.HealthDead:
		return idText + "\n" + cutOff
	case kind != report.HealthSilent && kind != report.HealthUnknown:
		return askText
	case forget:
		return deadText + "\n" + idText
	}
	return deadText
}
