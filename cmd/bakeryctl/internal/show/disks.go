package show

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// DiskTable writes the member disks of a lockspace, one line for each, and what is wrong with them.
// A path may be long: it is the last column, and stays whole.
func DiskTable(w io.Writer, r *report.Report, now time.Time, p render.Paint) {
	if len(r.Disks) == 0 {
		fmt.Fprintf(w, "the lockspace is on one disk: %s\n", text.Printable(r.Lockspace.Device))
		return
	}
	if found := slices.DeleteFunc(slices.Clone(r.Problems), func(p report.Problem) bool { return p.Kind != "disk" && p.Kind != "lockspace" }); len(found) > 0 {
		showProblems(w, found, p)
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, p.Of(render.Head, "DISK\tSTATE\tFOR\tREAD\tWRITE\tFAILED\tBEHIND\tDEVICE"))
	for _, d := range r.Disks {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", d.Position, p.Of(DiskLevel(d), d.State),
			render.Age(now.Sub(d.Since)), latency(d.IO.Read), latency(d.IO.Write), d.Failures, d.Behind, DiskName(d))
	}
}

// DiskName returns the path of a member disk, or "-" if none was given.
func DiskName(d report.Disk) string {
	if d.Device == "" {
		return "-"
	}
	return text.PrintableLine(d.Device)
}

// DiskLevel returns the level at which the state of a member disk is displayed.
func DiskLevel(d report.Disk) render.Level {
	switch d.State {
	case "up":
		return render.Good
	case "checking":
		return render.Warn
	}
	return render.Bad
}

// latency returns the median and the 99th percentile of an operation, or "-".
func latency(l report.Latency) string {
	if l.Count == 0 {
		return "-"
	}
	return render.Micros(l.P50US) + ", " + render.Micros(l.P99US)
}
