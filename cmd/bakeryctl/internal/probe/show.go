package probe

import (
	"bufio"
	"fmt"
	"io"

	"github.com/bakeryd/bakeryd/blockdev/latency"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/lockspace/measure"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// show writes a report as text.
func (r *Report) show(out io.Writer, p render.Paint) error {
	w := bufio.NewWriter(out) // Flush returns the first error of all writes
	showFindings(w, text.Printable(r.Device), r.Fit, r.Findings, p)
	if r.Measured != nil {
		showMeasured(w, r.Measured)
	}
	return w.Flush()
}

// show writes the report of each device and of all as text.
func (s *SetReport) show(out io.Writer, p render.Paint) error {
	for _, r := range s.Disks {
		if err := r.show(out, p); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	w := bufio.NewWriter(out)
	showFindings(w, fmt.Sprintf("all %d devices", len(s.Disks)), s.Fit, s.Findings, p)
	return w.Flush()
}

func showFindings(w io.Writer, title string, fit bool, findings []Finding, p render.Paint) {
	verdict, of := "fit", render.Good
	if !fit {
		verdict, of = "unfit", render.Bad
	}
	count := map[Verdict]int{}
	for _, f := range findings {
		count[f.Verdict]++
	}
	if n := count[Warning]; n > 0 {
		verdict += ", " + render.Count(n, "warning")
	}
	if n := count[Unknown]; n > 0 {
		verdict += fmt.Sprintf(", %d unknown", n)
	}
	fmt.Fprintf(w, "%s: %s\n\n", title, p.Of(of, verdict))
	_ = render.WriteTable(w, func(w io.Writer) {
		for _, f := range findings {
			fmt.Fprintf(w, "%s\t%s\t%s\n", p.Of(levels[f.Verdict], string(f.Verdict)), shownID(f.ID), text.PrintableLine(f.Detail))
			if f.Remedy != "" {
				fmt.Fprintf(w, "\t\t-> %s\n", text.PrintableLine(f.Remedy))
			}
		}
	})
}

var levels = map[Verdict]render.Level{
	OK: render.Good, Warning: render.Warn, Unfit: render.Bad, Unknown: render.Warn,
}

func showMeasured(w io.Writer, m *measure.Measurement) {
	fmt.Fprintln(w)
	_ = render.WriteTable(w, func(w io.Writer) {
		fmt.Fprint(w, "REQUEST\tCOUNT\tP50\tP90\tP99\tP99.9\tMAX\n")
		row := func(what string, l latency.Summary) {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", what, l.Count, render.Millis(l.P50),
				render.Millis(l.P90), render.Millis(l.P99), render.Millis(l.P999), render.Millis(l.Most))
		}
		row("durable write", m.Write)
		row("read", m.Read)
		row(fmt.Sprintf("read of %d slots", m.Many), m.ReadMany)
	})
	if m.Lockspace {
		fmt.Fprintf(w, "\nwritten: this host's slot of the lock %q\n", measuring.ProbeLock)
	}
}

// shownID returns the id of a finding for people. That of JSON keeps its name.
func shownID(id string) string {
	if id == meetingID {
		return "coherence"
	}
	return id
}
