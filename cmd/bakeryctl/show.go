package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/layout"
)

// showReport writes a report for people: first what needs their attention, and one line for each host and for
// each who holds or waits.
func showReport(out io.Writer, r *daemon.Report, now time.Time) error {
	return writeTable(out, func(w io.Writer) {
		showLockspace(w, r)
		showHosts(w, r)
		showLocks(w, r.Locks, now)
		showStuck(w, r.Locks)
		if len(r.Damaged) > 0 {
			fmt.Fprintf(w, "\nDAMAGED\tBYTE\tERROR\n")
			for _, d := range r.Damaged {
				fmt.Fprintf(w, "%s\t%d\t%s\n", d.What, d.Offset, d.Error)
			}
		}
	})
}

func showLockspace(w io.Writer, r *daemon.Report) {
	l := r.Lockspace
	fmt.Fprintf(w, "lockspace %s on %s\n", daemon.Printable(cmp.Or(l.Name, l.UUID.String())), daemon.Printable(l.Device))
	for _, warning := range l.Warnings {
		fmt.Fprintf(w, "  warning: %s\n", warning)
	}
	if n := len(r.Damaged); n > 0 {
		fmt.Fprintf(w, "  warning: %s unreadable, see below\n", count(n, "record"))
	}
	if n := len(stuckLocks(r.Locks)); n > 0 {
		fmt.Fprintf(w, "  warning: %s stuck, see below\n", count(n, "lock"))
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
	fmt.Fprintf(w, "  this host is %d, %s: %s, %v left of its lease\n",
		r.ThisHost.ID, daemon.Printable(r.ThisHost.Name), r.ThisHost.State, max(0, left).Round(100*time.Millisecond))
}

func joined(hosts []daemon.HostReport) (n int) {
	for _, h := range hosts {
		if !h.Dead && h.State != layout.StateLeft {
			n++
		}
	}
	return n
}

func named(locks []daemon.LockReport) (n int) {
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

func showHosts(w io.Writer, r *daemon.Report) {
	if len(r.Hosts) == 0 {
		fmt.Fprintf(w, "\nno host ever joined\n")
		return
	}
	silent := false
	for _, h := range r.Hosts {
		silent = silent || h.SilentMS != nil
	}
	fmt.Fprintf(w, "\nHOST\tNAME\tSTATE\t")
	if silent {
		fmt.Fprintf(w, "SILENT\t")
	}
	fmt.Fprintf(w, "RENEWALS\tWATCHDOG\tINCARNATION\n")
	for _, h := range r.Hosts {
		fmt.Fprintf(w, "%d\t%s\t%s\t", h.ID, daemon.Printable(h.Name), hostState(h))
		switch {
		case silent && h.SilentMS != nil:
			fmt.Fprintf(w, "%.1fs%s\t", float64(*h.SilentMS)/1000, outlook(h, r.Lockspace.Policy))
		case silent:
			fmt.Fprintf(w, "-\t")
		}
		watchdog := "-"
		if h.WatchdogArmed {
			watchdog = fmt.Sprintf("%ds", h.WatchdogSeconds)
		}
		fmt.Fprintf(w, "%d\t%s\t%016x\n", h.Sequence, watchdog, h.Incarnation)
	}
}

func showLocks(w io.Writer, locks []daemon.LockReport, now time.Time) {
	if len(locks) == 0 {
		fmt.Fprintf(w, "\nno locks\n")
		return
	}
	fmt.Fprintf(w, "\nLOCK\tSTATE\tHOST\tMODE\tSINCE\tPID\tCOMMAND\n")
	// Those that are held or wanted come first.
	locks = slices.Clone(locks)
	slices.SortStableFunc(locks, func(a, b daemon.LockReport) int { return cmp.Compare(freeness(a), freeness(b)) })
	for _, l := range locks {
		name := lockName(l)
		if l.Permits > 1 {
			name += fmt.Sprintf(" x%d", l.Permits)
		}
		rows := lockRows(l, now)
		if len(rows) == 0 {
			rows = []string{"free\t\t\t\t\t"}
		}
		for _, row := range rows {
			fmt.Fprintf(w, "%s\t%s\n", name, row)
			name = "" // once is enough
		}
	}
}

func lockName(l daemon.LockReport) string {
	if l.Lock == 0 {
		return "(directory)"
	}
	return daemon.Printable(l.Name)
}

func stuckLocks(locks []daemon.LockReport) (stuck []daemon.LockReport) {
	for _, l := range locks {
		if l.Stuck != "" {
			stuck = append(stuck, l)
		}
	}
	return stuck
}

// showStuck says which locks do not move, and why.
func showStuck(w io.Writer, locks []daemon.LockReport) {
	stuck := stuckLocks(locks)
	if len(stuck) == 0 {
		return
	}
	fmt.Fprintf(w, "\nSTUCK\tWHY\n")
	for _, l := range stuck {
		fmt.Fprintf(w, "%s\t%s\n", lockName(l), l.Stuck)
	}
}

func freeness(l daemon.LockReport) int {
	if len(l.Holders)+len(l.Queue)+len(l.Local) > 0 {
		return 0
	}
	return 1
}

// lockRows are the cells from STATE on, a row for each who holds the lock or waits for it.
func lockRows(l daemon.LockReport, now time.Time) (rows []string) {
	row := func(state, host string, mode layout.Mode, since time.Time, pid int, command string) {
		cells := []string{state, host, mode.String(), "", "", ""}
		if !since.IsZero() {
			cells[3] = age(now.Sub(since))
		}
		if pid != 0 {
			cells[4] = strconv.Itoa(pid)
		}
		if command != "" {
			cells[5] = daemon.PrintableLine(command)
		}
		rows = append(rows, strings.Join(cells, "\t"))
	}
	for _, h := range l.Holders {
		state, pid := "held", h.PID
		if h.Orphan {
			state = "held, orphan"
			if pid = 0; len(h.Processes) > 0 { // that of its client means nothing any more
				pid = h.Processes[0]
			}
		}
		row(state, hostText(h.Host, h.HostName), h.Mode, h.Since, pid, h.Command)
	}
	for _, q := range l.Queue {
		state := fmt.Sprintf("%d. %v", q.Place, q.Phase)
		if q.Phase == layout.Choosing {
			state = fmt.Sprintf("%d. entering", q.Place)
		}
		row(state, hostText(q.Host, q.HostName), q.Mode, time.Time{}, 0, "")
	}
	for _, c := range l.Local {
		row(fmt.Sprintf("%d. on this host", c.Place), "", c.Mode, c.Since, c.PID, c.Command)
	}
	return rows
}

func hostText(id int, name string) string {
	if name == "" {
		return strconv.Itoa(id)
	}
	return fmt.Sprintf("%d %s", id, daemon.Printable(name))
}
