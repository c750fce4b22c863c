package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Show writes a report as text: problems first, then one line for each host and for each holder and
// waiter.
func Show(out io.Writer, r *report.Report, now time.Time, p render.Paint) error {
	return render.WriteTable(out, func(w io.Writer) {
		showLockspace(w, r, p)
		showHosts(w, r, p)
		showLocks(w, r.Locks, now, p)
		showStuck(w, r.Locks, p)
		if len(r.Damaged) > 0 {
			fmt.Fprintf(w, "\n%s\n", p.Of(render.Head, "DAMAGED\tBYTE\tERROR"))
			for _, d := range r.Damaged {
				fmt.Fprintf(w, "%s\t%d\t%s\n", p.Of(render.Bad, d.What), d.Offset, d.Error)
			}
		}
	})
}

func showLockspace(w io.Writer, r *report.Report, p render.Paint) {
	l := r.Lockspace
	title := fmt.Sprintf("lockspace %s on %s", text.Printable(cmp.Or(l.Name, l.UUID.String())), text.Printable(l.Device))
	fmt.Fprintln(w, p.Of(render.Head, title))
	for _, warning := range l.Warnings {
		fmt.Fprintf(w, "  %s\n", p.Of(render.Warn, "warning: "+warning))
	}
	if n := len(r.Damaged); n > 0 {
		fmt.Fprintf(w, "  %s\n", p.Of(render.Bad, "warning: "+render.Count(n, "record")+" unreadable, see below"))
	}
	if n := len(stuckLocks(r.Locks)); n > 0 {
		fmt.Fprintf(w, "  %s\n", p.Of(render.Bad, "warning: "+render.Count(n, "lock")+" stuck, see below"))
	}
	fmt.Fprintf(w, "  uuid %v", l.UUID)
	if !l.Formatted.IsZero() {
		fmt.Fprintf(w, ", formatted %s", l.Formatted.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	fmt.Fprintf(w, "\n  %d of %s joined, %d of %s in use, lease %v, policy %v\n",
		joined(r.Hosts), render.Count(l.Hosts, "host"), named(r.Locks), render.Count(l.Locks, "lock"),
		time.Duration(l.LeaseMS)*time.Millisecond, l.Policy)
	if r.ThisHost == nil {
		fmt.Fprintf(w, "  read from the device, which does not show whether a host is alive\n")
		return
	}
	left := time.Duration(r.ThisHost.LeaseLeftMS) * time.Millisecond
	state := render.Good
	switch {
	case r.ThisHost.State == "lost" || left <= 0:
		state = render.Bad
	case r.ThisHost.State != "live":
		state = render.Warn
	}
	fmt.Fprintf(w, "  this host is %d, %s: %s, %v left of its lease\n",
		r.ThisHost.ID, text.Printable(r.ThisHost.Name), p.Of(state, r.ThisHost.State), max(0, left).Round(100*time.Millisecond))
}

func joined(hosts []report.Host) (n int) {
	for _, h := range hosts {
		if !h.Dead && h.State != layout.StateLeft {
			n++
		}
	}
	return n
}

func named(locks []report.Lock) (n int) {
	for _, l := range locks {
		if l.Lock != 0 {
			n++
		}
	}
	return n
}

func showHosts(w io.Writer, r *report.Report, p render.Paint) {
	if len(r.Hosts) == 0 {
		fmt.Fprintf(w, "\nno host ever joined\n")
		return
	}
	head := "HOST\tNAME\tSTATE\tRENEWALS\tWATCHDOG\tINCARNATION"
	silent := slices.ContainsFunc(r.Hosts, func(h report.Host) bool { return h.SilentMS != nil })
	if silent {
		head = strings.Replace(head, "\tRENEWALS", "\tSILENT\tRENEWALS", 1)
	}
	fmt.Fprintf(w, "\n%s\n", p.Of(render.Head, head))
	for _, h := range r.Hosts {
		fmt.Fprintf(w, "%d\t%s\t%s\t", h.ID, text.Printable(h.Name), p.Of(HostLevel(h), HostState(h)))
		switch {
		case silent && h.SilentMS != nil:
			of := render.Plain
			if Health(h) == report.HealthSilent {
				of = render.Bad
			}
			fmt.Fprintf(w, "%s\t", p.Of(of, fmt.Sprintf("%.1fs%s", float64(*h.SilentMS)/1000, outlook(h, r.Lockspace.Policy))))
		case silent:
			fmt.Fprint(w, "-\t")
		}
		watchdog := "-"
		if h.WatchdogArmed {
			watchdog = fmt.Sprintf("%ds", h.WatchdogSeconds)
		}
		fmt.Fprintf(w, "%d\t%s\t%016x\n", h.Sequence, watchdog, h.Incarnation)
	}
}

func showLocks(w io.Writer, locks []report.Lock, now time.Time, p render.Paint) {
	if len(locks) == 0 {
		fmt.Fprintf(w, "\nno locks\n")
		return
	}
	fmt.Fprintf(w, "\n%s\n", p.Of(render.Head, "LOCK\tSTATE\tHOST\tMODE\tSINCE\tPID\tCOMMAND"))
	// Locks in use come first.
	locks = slices.Clone(locks)
	slices.SortStableFunc(locks, func(a, b report.Lock) int { return cmp.Compare(freeness(a), freeness(b)) })
	for _, l := range locks {
		name := LockName(l)
		if l.Permits > 1 {
			name += fmt.Sprintf(" x%d", l.Permits)
		}
		rows := lockRows(l, now, p)
		if len(rows) == 0 {
			rows = []string{p.Of(render.Soft, "free") + "\t\t\t\t\t"}
		}
		for _, row := range rows {
			fmt.Fprintf(w, "%s\t%s\n", name, row)
			name = "" // only in the first row
		}
	}
}

// LockName returns the printable name of a lock, or "(directory)" for lock 0.
func LockName(l report.Lock) string {
	if l.Lock == 0 {
		return "(directory)"
	}
	return text.Printable(l.Name)
}

func stuckLocks(locks []report.Lock) (stuck []report.Lock) {
	for _, l := range locks {
		if l.Stuck != "" {
			stuck = append(stuck, l)
		}
	}
	return stuck
}

// showStuck lists the stuck locks with the reason.
func showStuck(w io.Writer, locks []report.Lock, p render.Paint) {
	stuck := stuckLocks(locks)
	if len(stuck) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", p.Of(render.Head, "STUCK\tWHY"))
	for _, l := range stuck {
		fmt.Fprintf(w, "%s\t%s\n", p.Of(render.Bad, LockName(l)), l.Stuck)
	}
}

func freeness(l report.Lock) int {
	if len(l.Holders)+len(l.Queue)+len(l.Local) > 0 {
		return 0
	}
	return 1
}

// lockRows returns the cells from STATE on: one row for each holder and waiter.
func lockRows(l report.Lock, now time.Time, p render.Paint) (rows []string) {
	row := func(of render.Level, state, host string, mode layout.Mode, since time.Time, pid int, command string) {
		cells := []string{p.Of(of, state), host, mode.String(), "", "", ""}
		if !since.IsZero() {
			cells[3] = render.Age(now.Sub(since))
		}
		if pid != 0 {
			cells[4] = strconv.Itoa(pid)
		}
		if command != "" {
			cells[5] = text.PrintableLine(command)
		}
		rows = append(rows, strings.Join(cells, "\t"))
	}
	for _, h := range l.Holders {
		of, state, pid := render.Good, "held", h.PID
		if h.Orphan {
			of, state = render.Warn, "held, orphan"
			if pid = 0; len(h.Processes) > 0 { // the PID of its client is stale
				pid = h.Processes[0]
			}
		}
		if strings.HasPrefix(h.Containment, "weak") {
			of, state = render.Warn, state+", weak"
		}
		if l.Stuck != "" {
			of = render.Bad
		}
		row(of, state, hostText(h.Host, h.HostName), h.Mode, h.Since, pid, h.Command)
	}
	for _, q := range l.Queue {
		state := fmt.Sprintf("%d. %v", q.Place, q.Phase)
		if q.Phase == layout.Choosing {
			state = fmt.Sprintf("%d. entering", q.Place)
		}
		row(render.Warn, state, hostText(q.Host, q.HostName), q.Mode, time.Time{}, 0, "")
	}
	for _, c := range l.Local {
		row(render.Warn, fmt.Sprintf("%d. on this host", c.Place), "", c.Mode, c.Since, c.PID, c.Command)
	}
	return rows
}
