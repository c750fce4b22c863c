package show

import (
	"fmt"
	"io"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

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
