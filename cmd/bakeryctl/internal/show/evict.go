package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// evictable returns an error if the host cannot be evicted.
func evictable(r *report.Report, h *report.Host, forget bool) error {
	no := func(what, hint string) error {
		return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("%s %s", HostLabel(h), what), Hint: hint}
	}
	switch h.Health {
	case report.HealthLeft:
		return no("has left: its locks are free, there is nothing to evict", "")
	case report.HealthJoining:
		return no("is joining: it holds nothing", "let it finish, or stop it on its machine")
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
		fmt.Fprintf(w, "  seen\t%s\n  incarnation\t%016x\n", Seen(*h, r.Lockspace.Policy), h.Incarnation)
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
	case kind != report.HealthSilent:
		return askText
	case forget:
		return deadText + "\n" + idText
	}
	return deadText
}
