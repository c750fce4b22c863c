package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// showReport writes a report for people: first what needs their attention, and one line for each host and for
// each who holds or waits.
func showReport(out io.Writer, r *report.Report, now time.Time, p paint) error {
	return writeTable(out, func(w io.Writer) {
		showLockspace(w, r, p)
		showHosts(w, r, p)
		showLocks(w, r.Locks, now, p)
		showStuck(w, r.Locks, p)
		if len(r.Damaged) > 0 {
			fmt.Fprintf(w, "\n%s\tBYTE\tERROR%s", p.cell(plain, "DAMAGED"), p.heading())
			for _, d := range r.Damaged {
				fmt.Fprintf(w, "%s\t%d\t%s\n", p.cell(bad, d.What), d.Offset, d.Error)
			}
		}
	})
}

func showLockspace(w io.Writer, r *report.Report, p paint) {
	l := r.Lockspace
	fmt.Fprintf(w, "lockspace %s on %s%s", text.Printable(cmp.Or(l.Name, l.UUID.String())), text.Printable(l.Device), p.heading())
	for _, warning := range l.Warnings {
		fmt.Fprintf(w, "  %s\n", p.cell(warn, "warning: "+warning))
	}
	if n := len(r.Damaged); n > 0 {
		fmt.Fprintf(w, "  %s\n", p.cell(bad, "warning: "+count(n, "record")+" unreadable, see below"))
	}
	if n := len(stuckLocks(r.Locks)); n > 0 {
		fmt.Fprintf(w, "  %s\n", p.cell(bad, "warning: "+count(n, "lock")+" stuck, see below"))
	}
	fmt.Fprintf(w, "  uuid %v", l.UUID)
	if !l.Formatted.IsZero() {
		fmt.Fprintf(w, ", formatted %s", l.Formatted.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	fmt.Fprintf(w, "\n  %d of %s joined, %d of %s in use, lease %v, policy %v\n",
		joined(r.Hosts), count(l.Hosts, "host"), named(r.Locks), count(l.Locks, "lock"),
		time.Duration(l.LeaseMS)*time.Millisecond, l.Policy)
	if r.ThisHost == nil {
		fmt.Fprintf(w, "  read from the device; whether a host is alive does not show there\n")
		return
	}
	left := time.Duration(r.ThisHost.LeaseLeftMS) * time.Millisecond
	state := good
	switch {
	case r.ThisHost.State == "lost" || left <= 0:
		state = bad
	case r.ThisHost.State != "live":
		state = warn
	}
	fmt.Fprintf(w, "  this host is %d, %s: %s, %v left of its lease\n",
		r.ThisHost.ID, text.Printable(r.ThisHost.Name), p.cell(state, r.ThisHost.State), max(0, left).Round(100*time.Millisecond))
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

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func showHosts(w io.Writer, r *report.Report, p paint) {
	if len(r.Hosts) == 0 {
		fmt.Fprintf(w, "\nno host ever joined\n")
		return
	}
	silent := false
	for _, h := range r.Hosts {
		silent = silent || h.SilentMS != nil
	}
	fmt.Fprintf(w, "\nHOST\tNAME\t%s\t", p.cell(plain, "STATE"))
	if silent {
		fmt.Fprintf(w, "%s\t", p.cell(plain, "SILENT"))
	}
	fmt.Fprintf(w, "RENEWALS\tWATCHDOG\tINCARNATION%s", p.heading())
	for _, h := range r.Hosts {
		fmt.Fprintf(w, "%d\t%s\t%s\t", h.ID, text.Printable(h.Name), p.cell(hostLevel(h), hostState(h)))
		switch {
		case silent && h.SilentMS != nil:
			of := plain
			if health(h) == report.HealthSilent {
				of = bad
			}
			fmt.Fprintf(w, "%s\t", p.cell(of, fmt.Sprintf("%.1fs%s", float64(*h.SilentMS)/1000, outlook(h, r.Lockspace.Policy))))
		case silent:
			fmt.Fprintf(w, "%s\t", p.cell(plain, "-"))
		}
		watchdog := "-"
		if h.WatchdogArmed {
			watchdog = fmt.Sprintf("%ds", h.WatchdogSeconds)
		}
		fmt.Fprintf(w, "%d\t%s\t%016x\n", h.Sequence, watchdog, h.Incarnation)
	}
}

func showLocks(w io.Writer, locks []report.Lock, now time.Time, p paint) {
	if len(locks) == 0 {
		fmt.Fprintf(w, "\nno locks\n")
		return
	}
	fmt.Fprintf(w, "\nLOCK\t%s\tHOST\tMODE\tSINCE\tPID\tCOMMAND%s", p.cell(plain, "STATE"), p.heading())
	// Those that are held or wanted come first.
	locks = slices.Clone(locks)
	slices.SortStableFunc(locks, func(a, b report.Lock) int { return cmp.Compare(freeness(a), freeness(b)) })
	for _, l := range locks {
		name := lockName(l)
		if l.Permits > 1 {
			name += fmt.Sprintf(" x%d", l.Permits)
		}
		rows := lockRows(l, now, p)
		if len(rows) == 0 {
			rows = []string{p.cell(soft, "free") + "\t\t\t\t\t"}
		}
		for _, row := range rows {
			fmt.Fprintf(w, "%s\t%s\n", name, row)
			name = "" // once is enough
		}
	}
}

func lockName(l report.Lock) string {
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

// showStuck says which locks do not move, and why.
func showStuck(w io.Writer, locks []report.Lock, p paint) {
	stuck := stuckLocks(locks)
	if len(stuck) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\tWHY%s", p.cell(plain, "STUCK"), p.heading())
	for _, l := range stuck {
		fmt.Fprintf(w, "%s\t%s\n", p.cell(bad, lockName(l)), l.Stuck)
	}
}

func freeness(l report.Lock) int {
	if len(l.Holders)+len(l.Queue)+len(l.Local) > 0 {
		return 0
	}
	return 1
}

// lockRows are the cells from STATE on, a row for each who holds the lock or waits for it.
func lockRows(l report.Lock, now time.Time, p paint) (rows []string) {
	row := func(of level, state, host string, mode layout.Mode, since time.Time, pid int, command string) {
		cells := []string{p.cell(of, state), host, mode.String(), "", "", ""}
		if !since.IsZero() {
			cells[3] = age(now.Sub(since))
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
		of, state, pid := good, "held", h.PID
		if h.Orphan {
			of, state = warn, "held, orphan"
			if pid = 0; len(h.Processes) > 0 { // that of its client means nothing any more
				pid = h.Processes[0]
			}
		}
		if strings.HasPrefix(h.Containment, "weak") {
			of, state = warn, state+", weak"
		}
		if l.Stuck != "" {
			of = bad
		}
		row(of, state, hostText(h.Host, h.HostName), h.Mode, h.Since, pid, h.Command)
	}
	for _, q := range l.Queue {
		state := fmt.Sprintf("%d. %v", q.Place, q.Phase)
		if q.Phase == layout.Choosing {
			state = fmt.Sprintf("%d. entering", q.Place)
		}
		row(warn, state, hostText(q.Host, q.HostName), q.Mode, time.Time{}, 0, "")
	}
	for _, c := range l.Local {
		row(warn, fmt.Sprintf("%d. on this host", c.Place), "", c.Mode, c.Since, c.PID, c.Command)
	}
	return rows
}

func hostText(id int, name string) string {
	if name == "" {
		return strconv.Itoa(id)
	}
	return fmt.Sprintf("%d %s", id, text.Printable(name))
}
