package show

import (
	"fmt"
	"io"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// DiskTable writes the member disks of a lockspace, one line for each, and what is wrong with them.
func DiskTable(w io.Writer, r *report.Report, now time.Time, p render.Paint) {
	if len(r.Disks) == 0 {
		fmt.Fprintf(w, "the lockspace is on one disk: %s\n", text.Printable(r.Lockspace.Device))
		return
	}
	for _, problem := range r.Problems {
		if problem.Kind == "disk" {
			showProblems(w, []report.Problem{problem}, p)
		}
	}
	fmt.Fprintln(w, p.Of(render.Head, "DISK\tDEVICE\tSTATE\tFOR\tREAD\tWRITE\tFAILED\tBEHIND"))
	for _, d := range r.Disks {
		level := render.Bad
		if d.Up() {
			level = render.Good
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", d.Position, text.Printable(d.Device), p.Of(level, d.State),
			render.Age(now.Sub(d.Since)), latency(d.IO.Read), latency(d.IO.Write), d.Failures, d.Behind)
	}
}

// latency returns the median and the 99th percentile of an operation, or "-".
func latency(l report.Latency) string {
	if l.Count == 0 {
		return "-"
	}
	return render.Micros(l.P50US) + ", " + render.Micros(l.P99US)
}
