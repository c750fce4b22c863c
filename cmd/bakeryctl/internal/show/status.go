// Package show formats a report of bakeryd, its events, and the records of a device: the state of a
// host, the name of a lock, the tables of status, hosts and events. It requests a report, judges
// nothing and never touches a disk. It imports packages below daemon only for their types, and
// call, cli and render of bakeryctl.
package show

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Show writes a report as a table: problems first, then one line for each host and for each holder
// and waiter.
func Show(w io.Writer, r *report.Report, now time.Time, p render.Paint) {
	device := text.Printable(r.Lockspace.Device)
	if len(r.Disks) > 0 { // a list of paths
		device = text.PrintableLine(r.Lockspace.Device)
	}
	title := fmt.Sprintf("lockspace %s on %s", text.Printable(cmp.Or(r.Lockspace.Name, r.Lockspace.UUID.String())), device)
	fmt.Fprintln(w, p.Of(render.Head, title))
	showProblems(w, r.Problems, p)
	showLockspace(w, r, p)
	showHosts(w, r, p)
	showLocks(w, r, now, p)
	showStuck(w, r, p)
	if len(r.Damaged) > 0 {
		fmt.Fprintf(w, "\n%s\n", p.Of(render.Head, "DAMAGED\tBYTE\tERROR"))
	}
	for _, d := range r.Damaged {
		fmt.Fprintf(w, "%s\t%d\t%s\n", p.Of(render.Bad, d.What), d.Offset, d.Error)
	}
}

// SeverityLevel returns the level at which a problem is displayed.
func SeverityLevel(s report.Severity) render.Level {
	switch s {
	case report.SeverityError:
		return render.Bad
	case report.SeverityWarning:
		return render.Warn
	}
	return render.Soft
}

// ProblemText returns what is wrong and why, in one line.
func ProblemText(p report.Problem) string {
	if p.Why == "" {
		return p.Text
	}
	return p.Text + ": " + p.Why
}

// showProblems writes each problem with its severity, and its remedy in the next line.
func showProblems(w io.Writer, all []report.Problem, p render.Paint) {
	for _, problem := range all {
		line := fmt.Sprintf("%s: %s", problem.Severity, text.PrintableLine(ProblemText(problem)))
		fmt.Fprintf(w, "  %s\n", p.Of(SeverityLevel(problem.Severity), line))
		if problem.Remedy != "" {
			fmt.Fprintf(w, "    %s\n", text.PrintableLine(problem.Remedy))
		}
	}
}

// showStuck lists all stuck locks, unless each of them has a problem of its own.
func showStuck(w io.Writer, r *report.Report, p render.Paint) {
	stuck := only(r.Locks, func(l report.Lock) bool { return l.Stuck != "" })
	if len(stuck) == len(only(r.Problems, func(p report.Problem) bool { return p.Kind == "stuck" && p.Subject != "" })) {
		return
	}
	fmt.Fprintf(w, "\n%s\n", p.Of(render.Head, "STUCK\tWHY"))
	for _, l := range stuck {
		fmt.Fprintf(w, "%s\t%s\n", p.Of(render.Bad, LockName(l)), l.Stuck)
	}
}

// only returns the elements that f accepts.
func only[T any](all []T, f func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return !f(x) })
}

func showLockspace(w io.Writer, r *report.Report, p render.Paint) {
	l := r.Lockspace
	fmt.Fprintf(w, "  uuid %v", l.UUID)
	if !l.Formatted.IsZero() {
		fmt.Fprintf(w, ", formatted %s", l.Formatted.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	joined := only(r.Hosts, func(h report.Host) bool {
		return !h.Dead && h.State != layout.StateLeft && h.State != layout.StateJoining
	})
	named := only(r.Locks, func(l report.Lock) bool { return l.Number != 0 })
	fmt.Fprintf(w, "\n  %d of %s joined, %d of %s in use, lease %v, policy %v\n",
		len(joined), render.Count(l.Hosts, "host"), len(named), render.Count(l.Locks, "lock"),
		time.Duration(l.LeaseMS)*time.Millisecond, l.Policy)
	if l.FenceAfterMS > 0 {
		fmt.Fprintf(w, "  a host that is silent or frozen for %v is fenced and loses its locks; only what is behind the fence is protected\n",
			time.Duration(l.FenceAfterMS)*time.Millisecond)
	}
	if r.ThisHost == nil {
		fmt.Fprintf(w, "  read from the device: a host that is shown as live may be dead\n")
		return
	}
	lease := time.Duration(r.ThisHost.LeaseLeftMS) * time.Millisecond
	state := render.Good
	switch {
	case r.ThisHost.State == report.StateLost || lease <= 0:
		state = render.Bad
	case r.ThisHost.State != report.StateLive:
		state = render.Warn
	}
	fmt.Fprintf(w, "  this host is %d, %s: %s, %s left of its lease\n",
		r.ThisHost.ID, text.Printable(r.ThisHost.Name), p.Of(state, r.ThisHost.State), report.Left(lease))
}

func showHosts(w io.Writer, r *report.Report, p render.Paint) {
	if len(r.Hosts) == 0 {
		fmt.Fprintf(w, "\nno host ever joined\n")
		return
	}
	shown, left := present(r.Hosts)
	fmt.Fprintln(w)
	if len(shown) > 0 {
		fmt.Fprintln(w, p.Of(render.Head, "HOST\tNAME\tSTATE\tSEEN\tWATCHDOG\tINCARNATION"))
	}
	for _, h := range shown {
		of := render.Plain
		if h.Health == report.HealthSilent || h.Health == report.HealthLost {
			of = render.Bad
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%v\n", h.ID, text.Printable(h.Name), p.Of(HostLevel(h), HostState(h)),
			p.Of(of, Seen(h)), Watchdog(h), h.Incarnation)
	}
	fmt.Fprint(w, left)
}

func showLocks(w io.Writer, r *report.Report, now time.Time, p render.Paint) {
	if len(r.Locks) == 0 {
		fmt.Fprintf(w, "\nno locks\n")
		return
	}
	fmt.Fprintf(w, "\n%s\n", p.Of(render.Head, "LOCK\tSTATE\tHOST\tMODE\tSINCE\tPID\tCOMMAND"))
	free := func(l report.Lock) bool { return len(l.Holders)+len(l.Queue)+len(l.Local) == 0 }
	for _, l := range slices.DeleteFunc(slices.Clone(r.Locks), free) {
		name := LockName(l) + permitsText(l)
		for _, row := range lockRows(l, now, p) {
			fmt.Fprintf(w, "%s\t%s\n", name, row)
			name = "" // only in the first row
		}
	}
	for _, l := range only(r.Locks, free) {
		fmt.Fprintf(w, "%s\t%s\t\t\t\t\t\n", LockName(l)+permitsText(l), p.Of(render.Soft, r.Free(&l)))
	}
}

func permitsText(l report.Lock) string {
	if l.Permits > 1 {
		return fmt.Sprintf(" x%d", l.Permits)
	}
	return ""
}

// LockName returns the printable name of a lock, or "(directory)" for lock 0.
func LockName(l report.Lock) string {
	if l.Number == 0 {
		return "(directory)"
	}
	return text.Printable(l.Name)
}

// lockRows returns the cells from STATE on: one row for each holder and waiter.
// HoldState returns the state of a hold in words.
func HoldState(h report.Holder) (words string, of render.Level) {
	words, of = "held", render.Good
	switch h.HostHealth {
	case report.HealthLost:
		words, of = "lost", render.Bad
	case report.HealthUnknown:
		words, of = "unknown", render.Warn
	}
	if h.Orphan {
		words, of = words+", orphan", max(of, render.Warn)
	}
	return words, of
}

func lockRows(l report.Lock, now time.Time, p render.Paint) (rows []string) {
	row := func(of render.Level, state, host string, mode layout.Mode, since time.Time, pid int, command string) {
		age, id := "", ""
		if !since.IsZero() {
			age = render.Age(now.Sub(since))
		}
		if pid != 0 {
			id = strconv.Itoa(pid)
		}
		rows = append(rows, strings.Join([]string{p.Of(of, state), host, mode.String(), age, id, text.PrintableLine(command)}, "\t"))
	}
	for _, h := range l.Holders {
		state, of := HoldState(h)
		pid := h.PID
		if h.Orphan {
			if pid = 0; len(h.Processes) > 0 { // the PID of its client is stale
				pid = h.Processes[0]
			}
		}
		if strings.HasPrefix(h.Containment, "weak") {
			of, state = max(of, render.Warn), state+", weak"
		}
		if l.Stuck != "" {
			of = render.Bad
		}
		row(of, state, hostText(h.Host, h.HostName), h.Mode, h.Since, pid, h.Command)
	}
	for _, q := range l.Queue {
		phase := q.Phase.String()
		if q.Phase == layout.Choosing {
			phase = "entering"
		}
		row(render.Warn, fmt.Sprintf("%d. %s", q.Place, phase), hostText(q.Host, q.HostName), q.Mode, time.Time{}, 0, "")
	}
	for _, c := range l.Local {
		row(render.Warn, fmt.Sprintf("%d. on this host", c.Place), "", c.Mode, c.Since, c.PID, c.Command)
	}
	return rows
}

// Ask requests a report from the bakeryd at socket.
func Ask(ctx context.Context, socket string) (*report.Report, error) {
	r := new(report.Report)
	if err := call.Ask(ctx, socket, "GET", "/v1/status", nil, r); err != nil {
		return nil, err
	}
	Complete(r)
	return r, nil
}

// AskOrKnown is Ask. If bakeryd cannot read the disk, it also returns what bakeryd has in memory, to be printed, with
// the error; nil if that is nothing.
func AskOrKnown(ctx context.Context, socket string) (*report.Report, error) {
	r, err := Ask(ctx, socket)
	if refusal, ok := errors.AsType[*api.Error](err); ok && refusal.Code == api.CodeDevice {
		if known, age, knownErr := Known(ctx, socket); knownErr == nil {
			return known, &cli.Failure{Code: refusal.ExitCode(), Err: fmt.Errorf("%w; the output is %s", err, age), Hint: refusal.Hint}
		}
	}
	return r, err
}

// Glance requests what the bakeryd at socket has in memory. The answer has a report, an error or both.
func Glance(ctx context.Context, socket string) (*report.Glance, error) {
	g := new(report.Glance)
	if err := call.Ask(ctx, socket, "GET", "/page/status", nil, g); err != nil {
		return nil, err
	}
	switch {
	case g.Report != nil:
		Complete(g.Report)
	case g.Error == nil:
		return nil, call.Unreachable(errors.New("read its answer: it has neither a report nor an error"))
	}
	return g, nil
}

// Known requests what the bakeryd at socket has in memory, and says how old that is. If bakeryd is not joined, Known
// also returns what it knew when its lease was lost, with the error; nil if that is nothing.
func Known(ctx context.Context, socket string) (r *report.Report, age string, err error) {
	g, err := Glance(ctx, socket)
	if err != nil {
		return nil, "", err
	}
	if g.Report == nil {
		return nil, "", call.Failure(g.Error)
	}
	if g.Error != nil && g.Error.Code == api.CodeUnavailable {
		f := call.Failure(g.Error)
		if f.Err = fmt.Errorf("%w; the output is what bakeryd knew", f.Err); g.Report.ThisHost != nil {
			f.Err = fmt.Errorf("%w when its lease was lost, %s ago", f.Err, report.Elapsed(SinceLost(g.Report)))
		}
		return g.Report, "", f
	}
	if g.Read.Bytes == 0 {
		return g.Report, "what bakeryd has in memory, without locks", nil
	}
	return g.Report, fmt.Sprintf("what bakeryd has in memory, with the locks of %s ago", report.Elapsed(time.Duration(g.Read.AgoMS)*time.Millisecond)), nil
}

// SinceLost returns the time since the host that made a report lost its lease; 0 if it has not.
func SinceLost(r *report.Report) time.Duration {
	if r.ThisHost == nil {
		return 0
	}
	return max(0, -time.Duration(r.ThisHost.LeaseLeftMS)*time.Millisecond)
}
